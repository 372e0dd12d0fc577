//! `zoo generate`: text generation from a prompt.

use std::io::Write;
use std::ops::ControlFlow;

use clap::Args;
use zoo_data::Tokenizer;
use zoo_models::generate::generate_streaming;
use zoo_models::{GenerateConfig, GeneratedSequence, Gpt, Stop, Strategy, generate};

use super::decoding::DecodingArgs;
use super::{Command, RunArgs, print, print_error_line};
use crate::task::LanguageModelling;
use crate::trained::TrainedTask;
use crate::unknown::UnknownNotes;
use crate::{Result, TrainError};

/// Generate text from a prompt (GPT, or a model folder of Hugging Face)
///
/// The prompt is printed as the tokenizer decodes it, followed by the tokens as they are generated;
/// beam search prints them at the end. Several texts (--count, --n-best) are separated by a line
/// `---`. When the context is full, generation continues from its last half.
#[derive(Debug, Args)]
pub struct Generate {
    #[command(flatten)]
    run: RunArgs,

    /// Continue this prompt [default: a newline]
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,

    /// Generate N samples; sample i uses seed + i
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,

    #[command(flatten)]
    decoding: DecodingArgs,
}

impl Command for Generate {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let trained = self.run.open()?;
        let generator = trained.generator()?;
        let tokenizer = &generator.task.tokenizer;
        let mut config = trained.generate_config()?;
        let vocabulary = generator.model.limits().vocabulary;
        self.decoding.apply(&mut config, vocabulary)?;
        if self.count > 1 && !matches!(config.strategy, Strategy::Sample { .. }) {
            return Err(TrainError::Refused(format!(
                "--count {count} requires sampling; greedy decoding and beam search repeat the same \
                 text\n  help: use --strategy sample, or --n-best {count} for the best texts of beam \
                 search",
                count = self.count
            )));
        }
        let prompt = self.prompt.as_deref();
        if let Some(prompt) = prompt {
            let note = &mut |note: &str| print_error_line(note);
            UnknownNotes::default().report(tokenizer, &[prompt], note)?;
        }
        let emit = &mut |text: &str| print(out, text);
        generate_texts(generator, prompt, self.count, &config, emit)
    }
}

/// Receives pieces of text as they are generated.
type Emit<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

/// Generates `count` samples or the best texts of beam search, separated by a line `---`.
pub(crate) fn generate_texts(
    generator: &TrainedTask<LanguageModelling>,
    prompt: Option<&str>,
    count: u64,
    config: &GenerateConfig,
    emit: Emit<'_>,
) -> Result<()> {
    let (model, tokenizer) = (&generator.model, &generator.task.tokenizer);
    let mut config = config.clone();
    let ids = tokenizer.encode(prompt.unwrap_or("\n"))?;
    if ids.is_empty() {
        return Err(TrainError::Refused(match prompt {
            Some(prompt) => {
                format!(
                    "--prompt {prompt:?} is empty after tokenization\n  help: use another prompt"
                )
            }
            None => {
                "a newline has no tokens in this run's vocabulary\n  help: set --prompt".to_owned()
            }
        }));
    }
    // Beam search finds all texts at once; after the context is full, each has one continuation.
    let mut hypotheses = vec![].into_iter();
    if let Strategy::Beam { .. } = config.strategy {
        let state = model.start(1).map_err(TrainError::model("decoding"))?;
        let found = generate(model, state, &[&ids], &config);
        let found = found.map_err(TrainError::model("--prompt"))?;
        hypotheses = found.concat().into_iter();
    }
    if let Strategy::Beam { n_best, .. } = &mut config.strategy {
        *n_best = 1;
    }
    for index in 0..count.max(hypotheses.len() as u64) {
        if index > 0 {
            emit("\n---\n")?;
        }
        let text = tokenizer.decode(&ids)?;
        let stream = TextStream {
            tokenizer,
            ids: ids.clone(),
            // The default prompt is not printed.
            printed: prompt.map_or(text.len(), |_| 0),
            text,
        };
        stream.generate(model, &config, hypotheses.next(), emit)?;
        emit("\n")?;
        config.seed = config.seed.wrapping_add(1);
    }
    Ok(())
}

/// The seed offset of the next window, far from the seeds of other texts.
const WINDOW_SEED: u64 = 1 << 32;

struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    text: String,
    /// Bytes of `text` that are printed.
    printed: usize,
}

impl TextStream<'_> {
    /// Generates a text that starts with `first`, if it is given.
    fn generate(
        mut self,
        model: &Gpt,
        config: &GenerateConfig,
        mut first: Option<GeneratedSequence>,
        emit: Emit<'_>,
    ) -> Result<()> {
        self.print(emit, false)?;
        let mut config = config.clone();
        let mut prompt = self.ids.clone();
        loop {
            let text = match first.take() {
                Some(text) => {
                    let mut tokens = text.tokens.iter();
                    tokens.try_for_each(|token| self.push(*token, emit))?;
                    Some(text)
                }
                None => self.generate_window(model, &prompt, &config, emit)?,
            };
            let Some(text) = text else {
                break;
            };
            config.max_length = config.max_length.saturating_sub(text.tokens.len());
            config.min_length = config.min_length.saturating_sub(text.tokens.len());
            let longest = model.limits().longest.unwrap_or(usize::MAX);
            if text.stop != Stop::Length || config.max_length == 0 || longest < 2 {
                break;
            }
            // The context is full: continue from its last half.
            prompt = self.ids[self.ids.len().saturating_sub(longest / 2)..].to_vec();
            config.seed = config.seed.wrapping_add(WINDOW_SEED);
        }
        self.print(emit, true)
    }

    /// Generates until the context is full.
    fn generate_window(
        &mut self,
        model: &Gpt,
        prompt: &[u32],
        config: &GenerateConfig,
        emit: Emit<'_>,
    ) -> Result<Option<GeneratedSequence>> {
        let state = model.start(1).map_err(TrainError::model("decoding"))?;
        let mut failed = None;
        let on_token = |_: usize, token: u32| match self.push(token, emit) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        };
        let generated = generate_streaming(model, state, &[prompt], config, on_token);
        let generated = generated.map_err(TrainError::model("--prompt"))?;
        match failed {
            Some(error) => Err(error),
            None => Ok(generated.into_iter().flatten().next()),
        }
    }

    fn push(&mut self, token: u32, emit: Emit<'_>) -> Result<()> {
        self.ids.push(token);
        self.text = self.tokenizer.decode(&self.ids)?;
        self.print(emit, false)
    }

    /// Prints new text. An incomplete UTF-8 character is held back until the end.
    fn print(&mut self, emit: Emit<'_>, is_end: bool) -> Result<()> {
        let end = if is_end {
            self.text.len()
        } else {
            self.text.trim_end_matches('\u{fffd}').len()
        };
        if let Some(new) = self.text.get(self.printed..end) {
            emit(new)?;
            self.printed = end;
        }
        Ok(())
    }
}
