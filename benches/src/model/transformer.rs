//! A Transformer as its paper has it: norms after each part, waves for positions, one
//! embedding for source, target and head. Nothing is forgotten. The mechanism is that of
//! self-attention on both sides; from target to source it is flash.

use anyhow::{Result, bail};
use burn::tensor::{Device, Tensor};
use zoo_bench_core::case::Pass;
use zoo_bench_core::model::{Setup, Shape};
use zoo_bench_core::record::Counted;
use zoo_models::generate::{GenerateConfig, generate};
use zoo_models::{Tokens, Transformer, TransformerConfig, Tying};
use zoo_spec::Mechanism;

use super::Specimen;
use super::batch::{best, loss, rows, shifted, taken};

/// Sources and what they are to become.
pub(super) struct Pairs {
    setup: Setup,
    source: Tokens,
    target: Tokens,
    next: Tokens,
    /// The token that each target begins with.
    begins: Vec<Vec<u32>>,
}

impl Specimen for Pairs {
    type Model = Transformer;

    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<(Transformer, Self)> {
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
        let model = TransformerConfig::new(setup.vocabulary, setup.vocabulary)
            .with_d_model(d_model)
            .with_heads(heads)
            .with_d_feed_forward(Some(d_hidden))
            .with_encoder_layers(layers)
            .with_decoder_layers(layers)
            .with_tying(Tying::All)
            .with_encoder_mechanism(attention.into())
            .with_decoder_mechanism(attention.into())
            .with_dropout(0.0)
            .try_init(device)?;
        let source = rows([setup.batch, setup.n], setup.vocabulary, 1);
        let drawn = rows([setup.batch, setup.n + 1], setup.vocabulary, 2);
        let [target, next] = shifted(&drawn);
        let specimen = Self {
            setup: setup.clone(),
            begins: target.iter().map(|row| row[..1].to_vec()).collect(),
            source: Tokens::new(&source, model.source_limits(), device)?,
            target: Tokens::new(&target, model.target_limits(), device)?,
            next: Tokens::new(&next, model.target_limits(), device)?,
        };
        Ok((model, specimen))
    }

    fn counted(&self, model: &Transformer, pass: Pass) -> Counted {
        let Setup { batch, n, .. } = self.setup;
        // A target that is generated goes through the same, place by place.
        let forward = model.flops(batch, n, n);
        Counted {
            parameters: model.parameters() as u64,
            work: match pass {
                Pass::Train => 3.0 * forward,
                Pass::Forward | Pass::Decode | Pass::Generate => forward,
            },
        }
    }

    fn logits(&self, model: &Transformer) -> Tensor<3> {
        model.forward(&self.source, &self.target)
    }

    fn loss(&self, logits: Tensor<3>) -> Tensor<1> {
        loss(logits, &self.next)
    }

    fn generate(&self, model: &Transformer) -> Result<Vec<Vec<u32>>> {
        let config = GenerateConfig::default().with_max_length(self.setup.generated());
        let state = model.start(&self.source)?;
        Ok(best(generate(model, state, &self.begins, &config)?))
    }

    fn said_of(&self, model: &Transformer, texts: &[Vec<u32>]) -> Result<Tensor<3>> {
        let whole = taken(&self.begins, texts);
        let device = self.source.ids().device();
        let target = Tokens::new(&whole, model.target_limits(), &device)?;
        Ok(model.forward(&self.source, &target))
    }
}
