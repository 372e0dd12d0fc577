//! `zoo translate`: a text for each line.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use zoo_models::{GenerateConfig, Strategy};

use super::decoding::Decoding;
use super::input::{Input, Line};
use super::{Command, Using, print, print_error_line};
use crate::files::write_output;
use crate::generate::generate_config;
use crate::task::Translated;
use crate::{Result, TrainError, Trained};

/// Writes a text for every line of a file or of standard input
///
/// Without --file, and with nothing piped in, it asks for lines; Ctrl-D ends. Lines come out in
/// the order they came in, one for each, and an empty line for an empty one. With --n-best, a
/// text is `number<TAB>score<TAB>text`, where the number is that of the line. A line that is too
/// long for the model becomes an empty one, with a message on standard error, and the command
/// fails in the end.
#[derive(Debug, Args)]
pub struct Translate {
    #[command(flatten)]
    using: Using,

    /// The lines to translate, also as .gz; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Writes into a file, when all is done, instead of printing
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,

    /// Writes the score before each text: the logarithm of how likely the model thinks it
    #[arg(long)]
    scores: bool,

    /// Lines that are read before any is written; 1 answers each at once
    #[arg(long, value_name = "N", default_value_t = 256)]
    batch: usize,

    #[command(flatten)]
    decoding: Decoding,
}

impl Command for Translate {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let trained = self.using.open()?;
        let vocabulary = trained.translator()?.vocabulary();
        let config = generate_config(&trained.config)?;
        let config = self.decoding.apply(config, vocabulary)?;
        let input = Input::open(self.file.as_deref())?;
        if input.is_typed {
            print_error_line(format_args!("{}; Ctrl-D ends", trained.described()));
        }
        let mut kept = vec![];
        let mut counts = Counts::default();
        let read = input.in_batches(self.batch, |lines| {
            let text = self.lines(&trained, &config, lines, &mut counts)?;
            match &self.to {
                Some(_) => kept.extend_from_slice(text.as_bytes()),
                None => print(out, &text)?,
            }
            Ok(())
        });
        counts.report_unknown();
        read?;
        if let Some(path) = &self.to {
            write_output(path, &kept)?;
        }
        match counts.too_long {
            0 => Ok(()),
            1 => Err(TrainError::Refused(
                "a line was too long, and an empty one was written for it".to_owned(),
            )),
            count => Err(TrainError::Refused(format!(
                "{count} lines were too long, and empty ones were written for them"
            ))),
        }
    }
}

impl Translate {
    /// What is written for these lines.
    fn lines(
        &self,
        trained: &Trained,
        config: &GenerateConfig,
        lines: &[Line],
        counts: &mut Counts,
    ) -> Result<String> {
        let is_numbered = matches!(config.strategy, Strategy::Beam { n_best: 2.., .. });
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        let device = &trained.opened.device;
        let translated = trained.translator()?.translate(&texts, config, device)?;
        let mut written = String::new();
        for (Line { number, .. }, translated) in lines.iter().zip(translated) {
            counts.add(&translated);
            if let Some(longest) = translated.too_long {
                print_error_line(format_args!(
                    "line {number} is too long: it has {} tokens, and the model has places for \
                     {longest}",
                    translated.tokens
                ));
            }
            if translated.texts.is_empty() {
                written.push('\n');
            }
            for text in translated.texts {
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

/// What there is to say about all lines, once.
#[derive(Default)]
struct Counts {
    too_long: usize,
    lines: usize,
    tokens: usize,
    unknown_tokens: usize,
    /// Lines with unknown tokens.
    unknown_lines: usize,
}

impl Counts {
    fn add(&mut self, translated: &Translated) {
        self.too_long += usize::from(translated.too_long.is_some());
        self.lines += 1;
        self.tokens += translated.tokens;
        self.unknown_tokens += translated.unknown;
        self.unknown_lines += usize::from(translated.unknown > 0);
    }

    fn report_unknown(&self) {
        if self.unknown_tokens > 0 {
            print_error_line(format_args!(
                "{} of {} tokens, in {} of {} lines, are unknown to the tokenizer: the model sees \
                 that something is there, and not what",
                self.unknown_tokens, self.tokens, self.unknown_lines, self.lines
            ));
        }
    }
}
