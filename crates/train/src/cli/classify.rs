//! `zoo classify`: text classification, line by line.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use zoo_spec::Printable;

use super::input::Input;
use super::{Command, RunArgs, print, print_error_line};
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

    /// File with the lines to classify, may be .gz; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Classify the whole input as one text
    #[arg(long)]
    whole: bool,

    /// Number of classes to print, most likely first
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    top: u64,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    /// Batch size in lines; 1 answers each line immediately
    #[arg(long, value_name = "N", default_value_t = 256)]
    batch: usize,
}

impl Command for Classify {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let trained = self.run.open()?;
        trained.classifier()?;
        let input = Input::open(self.file.as_deref())?;
        if self.whole {
            let text = input.read_all()?;
            return print(out, &self.output_lines(&trained, &[&text])?);
        }
        if input.is_interactive {
            print_error_line(format_args!("{}; Ctrl-D ends", trained.description()));
        }
        input.for_each_batch(self.batch, |lines| {
            let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
            print(out, &self.output_lines(&trained, &texts)?)
        })
    }
}

impl Classify {
    fn output_lines(&self, trained: &TrainedRun, texts: &[&str]) -> Result<String> {
        let is_blank = |text: &&str| text.trim().is_empty();
        let non_blank: Vec<&str> = texts.iter().copied().filter(|it| !is_blank(it)).collect();
        let predictions = trained.classify(&non_blank, &mut |note| print_error_line(note))?;
        let mut predictions = predictions.into_iter();
        let mut output = String::new();
        for text in texts {
            let prediction = if is_blank(text) {
                None
            } else {
                predictions.next()
            };
            output += &self.output_line(text, prediction.as_ref());
            output.push('\n');
        }
        Ok(output)
    }

    fn output_line(&self, text: &str, prediction: Option<&ClassPrediction>) -> String {
        let classes = prediction.map_or(&[][..], |it| &it.classes);
        let classes = classes.iter().take(self.top as usize);
        if self.json {
            let classes = classes.map(|(label, prob)| json!({"label": label, "probability": prob}));
            let label = prediction.map(ClassPrediction::label);
            let classes: Vec<_> = classes.collect();
            return json!({"text": text, "label": label, "classes": classes}).to_string();
        }
        let classes = classes.map(|(label, prob)| format!("{}\t{prob:.4}", Printable(label)));
        classes.collect::<Vec<_>>().join("\t")
    }
}
