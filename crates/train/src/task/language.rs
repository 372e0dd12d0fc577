//! Text that is continued.

use std::path::Path;

use burn::tensor::{Device, Tensor};
use zoo_config::{Config, GptSpec};
use zoo_data::Tokenizer;
use zoo_models::{Gpt, GptConfig, ModelError, Tokens, generate, token_loss};

use super::tokens::{TOKENIZER, one_tokenizer};
use super::{Note, Task, TextWindow};
use crate::attend::{Seen, maps, not_empty, written};
use crate::evaluate::{Judge, Outcome, Sample};
use crate::trained::TrainedTask;
use crate::{DataPart, Result, TrainError, Trained};

/// Learning to predict the next token of running text.
#[derive(Debug)]
pub(crate) struct LanguageModelling {
    pub(crate) tokenizer: Tokenizer,
}

impl Task for LanguageModelling {
    type Model = Gpt;
    type Texts = String;
    type Ids = Vec<u32>;
    type Example = TextWindow;

    const USAGE: &'static str = "`zoo generate` goes on with a text by it";

    fn prepare(config: &Config, train: &String) -> Result<Self> {
        let tokenizer = one_tokenizer(config, std::iter::once(train.as_str()))?;
        Ok(Self { tokenizer })
    }

    fn load(folder: &Path) -> Result<Self> {
        let tokenizer = Tokenizer::load(&folder.join(TOKENIZER))?;
        Ok(Self { tokenizer })
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![(TOKENIZER, self.tokenizer.to_json()?)])
    }

    fn vocabularies(&self) -> (usize, Option<usize>) {
        (self.tokenizer.vocabulary(), None)
    }

    fn encode(&self, _: &Config, _: DataPart, text: &String, _: Note<'_>) -> Result<Vec<u32>> {
        Ok(self.tokenizer.encode(text)?)
    }

    fn model(&self, section: &GptSpec, device: &Device) -> Result<Gpt, ModelError> {
        let config = GptConfig {
            vocabulary: self.tokenizer.vocabulary(),
            spec: section.clone(),
        };
        config.try_init(device)
    }

    fn loss(
        model: &Gpt,
        examples: &[&TextWindow],
        smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError> {
        let inputs: Vec<&[u32]> = examples.iter().map(|it| it.input.as_slice()).collect();
        let targets: Vec<&[u32]> = examples.iter().map(|it| it.target.as_slice()).collect();
        let inputs = Tokens::new(&inputs, model.limits(), device)?;
        let wanted = Tokens::new(&targets, model.limits(), device)?;
        let penalty = model.config().spec.entropy_penalty;
        if penalty == 0.0 || !device.is_autodiff() {
            return Ok(token_loss(model.forward(&inputs), &wanted, smoothing));
        }
        let (logits, entropy) = model.forward_with_entropy(&inputs)?;
        Ok(token_loss(logits, &wanted, smoothing) + entropy.mul_scalar(penalty))
    }

    fn outcome(
        &self,
        model: &Gpt,
        examples: &[TextWindow],
        _: &String,
        judge: &Judge,
    ) -> Result<(Outcome, Vec<Sample>)> {
        let mut samples = vec![];
        if let (Some(config), Some(first), 1..) = (&judge.generate, examples.first(), judge.samples)
        {
            // The first few tokens of what it has not seen, to be continued.
            let given = &first.input[..first.input.len().min(16)];
            let prompts = vec![given; judge.samples];
            let texts = model
                .start(prompts.len())
                .and_then(|state| generate(model, state, &prompts, config))
                .map_err(TrainError::model("decoding"))?;
            for best in texts.iter().filter_map(|texts| texts.first()) {
                samples.push(Sample {
                    given: self.tokenizer.decode(given)?,
                    wanted: None,
                    said: self.tokenizer.decode(&best.tokens)?,
                });
            }
        }
        Ok((Outcome::Continuation, samples))
    }

    fn look(&self, model: &Gpt, trained: &Trained, text: &str, _: Option<&str>) -> Result<Seen> {
        let ids = self.tokenizer.encode(text)?;
        not_empty("--text", &ids)?;
        let tokens = Tokens::new(&[&ids], model.limits(), &trained.opened.device);
        let tokens = tokens.map_err(TrainError::model("--text"))?;
        let labels = written(&self.tokenizer, &ids);
        let weights = model.look(&tokens);
        Ok(Seen {
            notes: vec![text.to_owned()],
            parts: vec![maps("Self-attention", &labels, &labels, weights)?],
        })
    }

    fn generator(trained: &TrainedTask<Self>) -> Option<&TrainedTask<Self>> {
        Some(trained)
    }
}
