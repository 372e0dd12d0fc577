//! `zoo translate`: a text for each line.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use zoo_models::{GenerateConfig, Strategy};

use super::decoding::Decoding;
use super::input::{Input, Line};
use super::using::Using;
use super::{print, print_error_line};
use crate::files::write_output;
use crate::generate::generate_config;
use crate::{TrainError, Trained, Translated};

/// Writes a text for every line of a file or of standard input
///
/// Without --file, and with nothing piped in, it asks for lines; Ctrl-D ends. Lines come out in
/// the order they came in, one for each, and an empty line for an empty one. With --n-best, a
/// text is `number<TAB>score<TAB>text`, where the number is that of the line. A line that is too
/// long for the model becomes an empty one, with a message on standard error, and the command
/// fails in the end.
#[derive(Debug, Args)]
pub struct Translate {
    /// Which run, and how.
    #[command(flatten)]
    pub using: Using,

    /// The lines to translate, also as .gz; - is standard input
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Writes into a file, when all is done, instead of printing
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,

    /// Writes the score before each text: the logarithm of how likely the model thinks it
    #[arg(long)]
    pub scores: bool,

    /// Lines that are read before any is written; 1 answers each at once
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub batch: usize,

    /// How texts are written.
    #[command(flatten)]
    pub decoding: Decoding,
}

impl Translate {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// Those of [`Trained::translator`], of files, and if lines were too long.
    pub fn run(self, out: &mut dyn Write) -> Result<(), TrainError> {
        let trained = self.using.open()?;
        let vocabulary = trained.translator()?.vocabulary();
        let config = generate_config(&trained.config)?;
        let config = self.decoding.apply(config, vocabulary)?;
        let input = Input::open(self.file.as_deref())?;
        if input.is_typed {
            print_error_line(format_args!("{}; Ctrl-D ends", trained.described()));
        }
        let mut kept = vec![];
        let mut too_long = 0;
        let mut unknown = Unknown::default();
        let read = input.in_batches(self.batch, |lines| {
            unknown.count(&trained, lines)?;
            let text = self.lines(&trained, &config, lines, &mut too_long)?;
            match &self.to {
                Some(_) => kept.extend_from_slice(text.as_bytes()),
                None => print(out, &text)?,
            }
            Ok(())
        });
        unknown.tell();
        read?;
        if let Some(path) = &self.to {
            write_output(path, &kept)?;
        }
        match too_long {
            0 => Ok(()),
            1 => Err(TrainError::Refused(
                "a line was too long, and an empty one was written for it".to_owned(),
            )),
            count => Err(TrainError::Refused(format!(
                "{count} lines were too long, and empty ones were written for them"
            ))),
        }
    }

    /// What is written for these lines.
    fn lines(
        &self,
        trained: &Trained,
        config: &GenerateConfig,
        lines: &[Line],
        too_long: &mut usize,
    ) -> Result<String, TrainError> {
        let is_numbered = matches!(config.strategy, Strategy::Beam { n_best: 2.., .. });
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        let device = &trained.opened.device;
        let translated = trained.translator()?.translate(&texts, config, device)?;
        let mut written = String::new();
        for (Line { number, .. }, translated) in lines.iter().zip(translated) {
            let texts = match translated {
                Translated::Texts(texts) => texts,
                Translated::Empty => vec![],
                Translated::TooLong { length, longest } => {
                    *too_long += 1;
                    print_error_line(format_args!(
                        "line {number} is too long: it has {length} tokens, and the model has \
                         places for {longest}"
                    ));
                    vec![]
                }
            };
            if texts.is_empty() {
                written.push('\n');
            }
            for text in texts {
                if is_numbered {
                    written += &format!("{number}\t");
                }
                if is_numbered || self.scores {
                    written += &format!("{:.4}\t", text.score);
                }
                written += &text.text;
                written.push('\n');
            }
        }
        Ok(written)
    }
}

/// What the tokenizer has no token for, over all lines: told once.
#[derive(Default)]
struct Unknown {
    lines: usize,
    tokens: usize,
    of_lines: usize,
    of_tokens: usize,
}

impl Unknown {
    fn count(&mut self, trained: &Trained, lines: &[Line]) -> Result<(), TrainError> {
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        for (all, unknown) in trained.translator()?.unknown_tokens(&texts)? {
            self.of_lines += 1;
            self.of_tokens += all;
            self.tokens += unknown;
            self.lines += usize::from(unknown > 0);
        }
        Ok(())
    }

    fn tell(&self) {
        let Self {
            lines,
            tokens,
            of_lines,
            of_tokens,
        } = self;
        if *tokens > 0 {
            print_error_line(format_args!(
                "{tokens} of {of_tokens} tokens, in {lines} of {of_lines} lines, are unknown to the \
                 tokenizer: the model sees that something is there, and not what"
            ));
        }
    }
}
