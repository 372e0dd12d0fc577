//! `zoo classify`: text classification, line by line.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use zoo_spec::Printable;

use super::input::Input;
use super::{Command, RunArgs, print, print_error_line};
use crate::unknown::UnknownNotes;
use crate::{ClassPrediction, Result, TrainedRun};

/// Classify lines from a file, stdin or a prompt
///
/// Without --file and without piped input, lines are read from a prompt; Ctrl-D ends. The output
/// has one line per input line: the classes with their probabilities, most likely first,
/// tab-separated. An empty line gives an empty line.
#[derive(Debug, Args)]
pub struct Classify {
    #[command(flatten)]
    run: RunArgs,

    /// Classify the lines of a file, which may be .gz; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Classify the whole input as one text
    #[arg(long)]
    whole: bool,

    /// Print the N most likely classes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    top: u64,

    /// Print one JSON object per line, with the words that are not in the vocabulary
    #[arg(long)]
    json: bool,

    /// Process N lines at a time; 1 answers each line immediately
    #[arg(long, value_name = "N", default_value_t = 256)]
    batch: usize,
}

impl Command for Classify {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let trained = self.run.open()?;
        trained.classifier()?;
        let input = Input::open(self.file.as_deref())?;
        let is_interactive = input.is_interactive;
        let mut unknown = UnknownNotes::default();
        if self.whole {
            let text = input.read_all()?;
            return print(out, &self.output_lines(&trained, &[&text], &mut unknown)?);
        }
        if is_interactive {
            print_error_line(format_args!("{}; Ctrl-D ends", trained.description()));
        }
        input.for_each_batch(self.batch, |lines| {
            if is_interactive {
                unknown.reset();
            }
            let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
            print(out, &self.output_lines(&trained, &texts, &mut unknown)?)
        })
    }
}

impl Classify {
    fn output_lines(
        &self,
        trained: &TrainedRun,
        texts: &[&str],
        unknown: &mut UnknownNotes,
    ) -> Result<String> {
        let (tokenizer, _) = trained.model.tokenizers();
        let note = &mut |note: &str| print_error_line(note);
        let unknown = unknown.report(tokenizer, texts, note)?;
        let is_blank = |text: &&str| text.trim().is_empty();
        let non_blank: Vec<&str> = texts.iter().copied().filter(|it| !is_blank(it)).collect();
        let predictions = trained.classify(&non_blank, note)?;
        let mut predictions = predictions.into_iter().peekable();
        let lines = texts.iter().zip(&unknown).map(|(text, unknown)| {
            let prediction = predictions.next_if(|_| !is_blank(text));
            self.output_line(text, unknown, prediction.as_ref()) + "\n"
        });
        Ok(lines.collect())
    }

    fn output_line(
        &self,
        text: &str,
        unknown: &[String],
        prediction: Option<&ClassPrediction>,
    ) -> String {
        let classes = prediction.map_or(&[][..], |it| &it.classes);
        let classes = classes.iter().take(self.top as usize);
        if self.json {
            let classes = classes.map(|(label, prob)| json!({"label": label, "probability": prob}));
            let label = prediction.map(ClassPrediction::label);
            let classes: Vec<_> = classes.collect();
            return json!({
                "text": text,
                "label": label,
                "classes": classes,
                "unknown": unknown,
            })
            .to_string();
        }
        let classes = classes.map(|(label, prob)| format!("{}\t{prob:.4}", Printable(label)));
        classes.collect::<Vec<_>>().join("\t")
    }
}
