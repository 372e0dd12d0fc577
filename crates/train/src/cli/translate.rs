//! `zoo translate`: translation, line by line.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use zoo_models::{GenerateConfig, Strategy};

use super::decoding::DecodingArgs;
use super::input::{Input, Line};
use super::{Command, RunArgs, check_output, print, print_error_line};
use crate::files::write_output;
use crate::generate::generate_config;
use crate::task::LineTranslation;
use crate::unknown::UnknownNotes;
use crate::{Result, TrainError};

/// Translate lines from a file, stdin or a prompt
///
/// Without --file and without piped input, lines are read from a prompt; Ctrl-D ends. The output
/// has one line per input line, in the same order; an empty line gives an empty line. With
/// --n-best, every hypothesis is a line `line number<TAB>score<TAB>text`. A line that exceeds the
/// model's context gives an empty line and a message on standard error, and the command fails at
/// the end.
#[derive(Debug, Args)]
pub struct Translate {
    #[command(flatten)]
    run: RunArgs,

    /// Translate the lines of a file, which may be .gz; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Write the translations to a file when all are done
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,

    /// Print the score before each translation: its log-probability with length penalty
    #[arg(long)]
    scores: bool,

    /// Process N lines at a time; 1 answers each line immediately
    #[arg(long, value_name = "N", default_value_t = 256)]
    batch: usize,

    #[command(flatten)]
    decoding: DecodingArgs,
}

impl Command for Translate {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let inputs: Vec<&Path> = self.file.as_deref().into_iter().collect();
        check_output("--to", self.to.as_deref(), &inputs)?;
        let trained = self.run.open()?;
        let translator = trained.translator()?;
        let mut config = generate_config(&trained.config)?;
        self.decoding.apply(&mut config, translator.vocabulary())?;
        let input = Input::open(self.file.as_deref())?;
        let is_interactive = input.is_interactive;
        if is_interactive {
            print_error_line(format_args!("{}; Ctrl-D ends", trained.description()));
        }
        let mut output = vec![];
        let mut too_long = 0;
        let mut cut = CutLines::default();
        let mut unknown = UnknownNotes::default();
        input.for_each_batch(self.batch, |lines| {
            if is_interactive {
                unknown.reset();
            }
            let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
            let (tokenizer, _) = trained.model.tokenizers();
            unknown.report(tokenizer, &texts, &mut |note| print_error_line(note))?;
            let device = &trained.opened.device;
            let translated = translator.translate(&texts, &config, device)?;
            too_long += translated.iter().filter(|it| it.too_long.is_some()).count();
            cut.add(&translated);
            let text = self.output_lines(&config, lines, translated);
            match &self.to {
                Some(_) => output.extend_from_slice(text.as_bytes()),
                None => print(out, &text)?,
            }
            if is_interactive {
                std::mem::take(&mut cut).report(config.max_length);
            }
            Ok(())
        })?;
        if let Some(path) = &self.to {
            write_output(path, &output)?;
        }
        cut.report(config.max_length);
        match too_long {
            0 => Ok(()),
            1 => Err(TrainError::Refused(
                "1 line was too long and was not translated".to_owned(),
            )),
            count => Err(TrainError::Refused(format!(
                "{count} lines were too long and were not translated"
            ))),
        }
    }
}

impl Translate {
    fn output_lines(
        &self,
        config: &GenerateConfig,
        lines: &[Line],
        translated: Vec<LineTranslation>,
    ) -> String {
        let is_numbered = matches!(config.strategy, Strategy::Beam { n_best: 2.., .. });
        let mut output = String::new();
        for (Line { number, .. }, translated) in lines.iter().zip(translated) {
            if let Some(longest) = translated.too_long {
                print_error_line(format_args!(
                    "line {number} has {} tokens; the model's context is {longest}",
                    translated.tokens
                ));
            }
            if translated.texts.is_empty() {
                output.push('\n');
            }
            for text in translated.texts {
                if is_numbered {
                    output += &format!("{number}\t");
                }
                if is_numbered || self.scores {
                    output += &format!("{:.4}\t", text.score);
                }
                output += &text.text;
                output.push('\n');
            }
        }
        output
    }
}

/// Lines whose translations reached the maximum length.
#[derive(Debug, Default)]
struct CutLines {
    count: usize,
    /// Tokens of the longest cut translation.
    length: usize,
}

impl CutLines {
    fn add(&mut self, translated: &[LineTranslation]) {
        for length in translated.iter().filter_map(LineTranslation::cut_at) {
            self.count += 1;
            self.length = self.length.max(length);
        }
    }

    fn report(&self, max_length: usize) {
        if let Some(note) = self.note(max_length) {
            print_error_line(note);
        }
    }

    fn note(&self, max_length: usize) -> Option<String> {
        let lines = match self.count {
            0 => return None,
            1 => "1 line was".to_owned(),
            count => format!("{count} lines were"),
        };
        Some(if self.length < max_length {
            let length = self.length;
            format!("note: {lines} cut at {length} tokens, the model's context")
        } else {
            format!("note: {lines} cut at max_length {max_length} (--max-length N allows more)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_about_cut_lines() {
        let note = |count, length| CutLines { count, length }.note(16);
        assert_eq!(note(0, 0), None);
        let expected = "note: 1 line was cut at max_length 16 (--max-length N allows more)";
        assert_eq!(note(1, 16).as_deref(), Some(expected));
        let expected = "note: 2 lines were cut at 6 tokens, the model's context";
        assert_eq!(note(2, 6).as_deref(), Some(expected));
    }
}
