//! `zoo generate`: a text is gone on with.

use std::io::Write;

use clap::Args;
use zoo_data::Tokenizer;
use zoo_models::generate::generate_streaming;
use zoo_models::{GenerateConfig, Gpt, Stop};

use super::decoding::Decoding;
use super::{Command, Using, print};
use crate::generate::generate_config;
use crate::{Result, TrainError};

/// Goes on with a text, token by token
///
/// The prompt is printed as the model reads it, and tokens as they come; a beam search knows
/// them at the end. Where all places of the model are taken, it goes on from the last half of
/// them.
#[derive(Debug, Args)]
pub struct Generate {
    #[command(flatten)]
    using: Using,

    /// What is gone on with; a new line, if not given
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,

    /// How many texts, one after the other; each is drawn by a seed of its own, the first by
    /// --seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,

    #[command(flatten)]
    decoding: Decoding,
}

impl Command for Generate {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let trained = self.using.open()?;
        let generator = trained.model.generator();
        let generator = generator.ok_or_else(|| trained.cannot("generate"))?;
        let (model, tokenizer) = (&generator.model, &generator.task.tokenizer);
        let config = generate_config(&trained.config)?;
        let mut config = self.decoding.apply(config, tokenizer.vocabulary())?;
        let prompt = tokenizer.encode(self.prompt.as_deref().unwrap_or("\n"))?;
        if prompt.is_empty() {
            return Err(TrainError::Refused(match self.prompt {
                Some(prompt) => format!(
                    "--prompt {prompt:?} has no tokens for this run's tokenizer: give it some text"
                ),
                None => "this run's tokenizer has no token for a new line: give a --prompt to go \
                         on with"
                    .to_owned(),
            }));
        }
        for number in 0..self.count {
            if number > 0 {
                print(out, "\n---\n")?;
            }
            let text = tokenizer.decode(&prompt)?;
            let streamed = Streamed {
                tokenizer,
                ids: prompt.clone(),
                // What nobody has written is not shown.
                printed: self.prompt.as_ref().map_or(text.len(), |_| 0),
                text,
            };
            streamed.write(model, &config, out)?;
            print(out, "\n")?;
            config.seed = config.seed.wrapping_add(1);
        }
        Ok(())
    }
}

/// Far from the seeds of the texts beside it.
const NEXT_WINDOW: u64 = 1 << 32;

/// A text that is printed while it is made.
struct Streamed<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    /// The text so far, and how much of it is printed.
    text: String,
    printed: usize,
}

impl Streamed<'_> {
    /// Prints it, and what the model makes of it.
    fn write(mut self, model: &Gpt, config: &GenerateConfig, out: &mut dyn Write) -> Result<()> {
        self.print(out, false)?;
        let mut config = config.clone();
        let mut prompt = self.ids.clone();
        loop {
            let state = model.start(1).map_err(TrainError::model("decoding"))?;
            let mut failed = None;
            let made = generate_streaming(model, state, &[&prompt], &config, |_, token| {
                if failed.is_none() {
                    failed = self.push(token, out).err();
                }
            });
            let made = made.map_err(TrainError::model("--prompt"))?;
            if let Some(error) = failed {
                return Err(error);
            }
            let Some(text) = made.into_iter().flatten().next() else {
                break;
            };
            config.max_length = config.max_length.saturating_sub(text.tokens.len());
            config.min_length = config.min_length.saturating_sub(text.tokens.len());
            let longest = model.limits().longest.unwrap_or(usize::MAX);
            if text.stop != Stop::Length || config.max_length == 0 || longest < 2 {
                break;
            }
            // All places are taken: the last half of the text is what it goes on from.
            prompt = self.ids[self.ids.len().saturating_sub(longest / 2)..].to_vec();
            config.seed = config.seed.wrapping_add(NEXT_WINDOW);
        }
        self.print(out, true)
    }

    fn push(&mut self, token: u32, out: &mut dyn Write) -> Result<()> {
        self.ids.push(token);
        self.text = self.tokenizer.decode(&self.ids)?;
        self.print(out, false)
    }

    /// Prints what is new; a character whose bytes are not all there yet waits, but at the end.
    fn print(&mut self, out: &mut dyn Write, is_end: bool) -> Result<()> {
        let until = match is_end {
            true => self.text.len(),
            false => self.text.trim_end_matches('\u{fffd}').len(),
        };
        if let Some(new) = self.text.get(self.printed..until) {
            print(out, new)?;
            self.printed = until;
        }
        Ok(())
    }
}
