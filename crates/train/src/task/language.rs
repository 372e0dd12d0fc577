//! Text that is continued.

use std::path::Path;

use burn::tensor::{Device, Tensor};
use zoo_config::{Config, GptSpec};
use zoo_data::metrics::Perplexity;
use zoo_data::{Parts, Tokenizer, plain_text};
use zoo_models::{Gpt, GptConfig, ModelError, Tokens, generate, token_loss};

use super::texts::read_plain;
use super::tokens::{TOKENIZER, one_tokenizer};
use super::{Note, ROWS, Task, TextWindow, add_loss};
use crate::attend::{Seen, maps, not_empty, written};
use crate::judge::{Judge, Judgement, Outcome, Sample};
use crate::trained::TrainedTask;
use crate::{DataPart, Source, TrainError, Trained};

/// Learning to predict the next token of running text.
#[derive(Debug)]
pub struct LanguageModelling {
    section: GptSpec,
    pub(crate) tokenizer: Tokenizer,
}

impl Task for LanguageModelling {
    type Model = Gpt;
    type Texts = String;
    type Ids = Vec<u32>;
    type Example = TextWindow;

    const UNIT: &'static str = "characters";
    const FILES: &'static str = "--text FILE";
    const USAGE: &'static str = "`zoo generate` goes on with a text by it";

    fn read(config: &Config, note: Note<'_>) -> Result<Parts<String>, TrainError> {
        read_plain(config, note)
    }

    fn read_files(_: &Config, source: &Source, _: Note<'_>) -> Result<Option<String>, TrainError> {
        match source {
            Source::Plain(path) => Ok(Some(plain_text(path)?)),
            _ => Ok(None),
        }
    }

    fn size(text: &String) -> usize {
        text.chars().count()
    }

    fn prepare(config: &Config, section: &GptSpec, train: &String) -> Result<Self, TrainError> {
        Ok(Self {
            section: section.clone(),
            tokenizer: one_tokenizer(config, std::iter::once(train.as_str()))?,
        })
    }

    fn load(section: &GptSpec, folder: &Path) -> Result<Self, TrainError> {
        Ok(Self {
            section: section.clone(),
            tokenizer: Tokenizer::load(&folder.join(TOKENIZER))?,
        })
    }

    fn tokenizers(&self) -> Vec<(&'static str, &Tokenizer)> {
        vec![(TOKENIZER, &self.tokenizer)]
    }

    fn vocabularies(&self) -> (usize, Option<usize>) {
        (self.tokenizer.vocabulary(), None)
    }

    fn encode(
        &self,
        _: &Config,
        _: DataPart,
        text: &String,
        _: Note<'_>,
    ) -> Result<Vec<u32>, TrainError> {
        Ok(self.tokenizer.encode(text)?)
    }

    fn context(&self) -> usize {
        self.section.context
    }

    fn model(&self, device: &Device) -> Result<Gpt, ModelError> {
        let config = GptConfig {
            vocabulary: self.tokenizer.vocabulary(),
            spec: self.section.clone(),
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

    fn evaluate(
        &self,
        model: &Gpt,
        examples: &[TextWindow],
        _: &String,
        judge: &Judge,
    ) -> Result<Judgement, TrainError> {
        let mut loss = Perplexity::default();
        for windows in examples.chunks(ROWS) {
            let windows: Vec<&TextWindow> = windows.iter().collect();
            add_loss::<Self>(model, &windows, &judge.device, &mut loss)?;
        }
        let samples = match (&judge.generate, examples.first()) {
            (Some(config), Some(first)) if judge.samples > 0 => {
                // The first few tokens of what it has not seen, to be continued.
                let given = &first.input[..first.input.len().min(16)];
                let prompts = vec![given; judge.samples];
                let texts = model
                    .start(prompts.len())
                    .and_then(|state| generate(model, state, &prompts, config))
                    .map_err(TrainError::model("decoding"))?;
                let best = texts
                    .into_iter()
                    .filter_map(|texts| texts.into_iter().next());
                let sample = |tokens: Vec<u32>| {
                    Ok::<_, TrainError>(Sample {
                        given: self.tokenizer.decode(given)?,
                        wanted: None,
                        said: self.tokenizer.decode(&tokens)?,
                    })
                };
                best.map(|text| sample(text.tokens))
                    .collect::<Result<_, _>>()?
            }
            _ => vec![],
        };
        Ok(Judgement {
            loss,
            outcome: Outcome::Continuation,
            samples,
        })
    }

    fn look(
        &self,
        model: &Gpt,
        trained: &Trained,
        text: &str,
        _: Option<&str>,
    ) -> Result<Seen, TrainError> {
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
