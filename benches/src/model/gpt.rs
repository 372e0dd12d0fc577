//! A GPT as GPT-2 has it: learned positions, the embedding for a head. Nothing is forgotten.

use anyhow::{Result, bail};
use burn::tensor::{Device, Tensor};
use zoo_bench_core::case::Pass;
use zoo_bench_core::model::{Setup, Shape};
use zoo_bench_core::record::Counted;
use zoo_models::generate::{GenerateConfig, generate};
use zoo_models::{Gpt, GptConfig, PositionsConfig, Tokens};
use zoo_spec::Mechanism;

use super::Specimen;
use super::batch::{best, loss, rows, shifted, taken};

/// Texts that are to be continued.
pub(super) struct Texts {
    setup: Setup,
    tokens: Tokens,
    next: Tokens,
    prompts: Vec<Vec<u32>>,
}

impl Specimen for Texts {
    type Model = Gpt;

    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<(Gpt, Self)> {
        let Shape::Layers {
            d_model,
            heads,
            d_hidden,
            layers,
            ..
        } = setup.shape
        else {
            bail!("{} has no layers", setup.name())
        };
        let model = GptConfig::new(setup.vocabulary, d_model, heads, layers)
            .with_d_feed_forward(Some(d_hidden))
            .with_mechanism(attention.into())
            .with_positions(PositionsConfig::Learned { longest: setup.n })
            .with_dropout(0.0)
            .try_init(device)?;
        let drawn = rows([setup.batch, setup.n + 1], setup.vocabulary, 1);
        let [tokens, next] = shifted(&drawn);
        let prompt = |row: &Vec<u32>| row[..setup.prompt()].to_vec();
        let specimen = Self {
            setup: setup.clone(),
            prompts: tokens.iter().map(prompt).collect(),
            tokens: Tokens::new(&tokens, model.limits(), device)?,
            next: Tokens::new(&next, model.limits(), device)?,
        };
        Ok((model, specimen))
    }

    fn counted(&self, model: &Gpt, pass: Pass) -> Counted {
        let Setup { batch, n, .. } = self.setup;
        let forward = model.flops(batch, n);
        let work = match pass {
            Pass::Train => 3.0 * forward,
            Pass::Forward | Pass::Decode => forward,
            Pass::Generate => {
                // The last token is not taken in, and nothing is said within the prompt.
                let head = 2 * batch * model.config().d_model * model.config().vocabulary;
                model.flops(batch, n - 1) - ((self.setup.prompt() - 1) * head) as f64
            }
        };
        Counted {
            parameters: model.parameters() as u64,
            work,
        }
    }

    fn logits(&self, model: &Gpt) -> Tensor<3> {
        model.forward(&self.tokens)
    }

    fn loss(&self, logits: Tensor<3>) -> Tensor<1> {
        loss(logits, &self.next)
    }

    fn generate(&self, model: &Gpt) -> Result<Vec<Vec<u32>>> {
        let config = GenerateConfig::default().with_max_length(self.setup.generated());
        let state = model.start(self.setup.batch)?;
        Ok(best(generate(model, state, &self.prompts, &config)?))
    }

    fn said_of(&self, model: &Gpt, texts: &[Vec<u32>]) -> Result<Tensor<3>> {
        let whole = taken(&self.prompts, texts);
        let device = self.tokens.ids().device();
        let said = model.forward(&Tokens::new(&whole, model.limits(), &device)?);
        let [_, places, _] = said.dims();
        Ok(said.slice_dim(1, self.setup.prompt() - 1..places))
    }
}
