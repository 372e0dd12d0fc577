//! `zoo classify`: a class for each line.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use zoo_spec::Printable;

use super::input::Input;
use super::{Command, Using, print, print_error_line};
use crate::{Classified, Result, Trained};

/// Tells the class of every line of a file or of standard input
///
/// Without --file, and with nothing piped in, it asks for lines; Ctrl-D ends. A line comes out
/// for each: the likeliest class and its probability, then the next ones, with tabs between;
/// an empty line for an empty one.
#[derive(Debug, Args)]
pub struct Classify {
    #[command(flatten)]
    using: Using,

    /// The lines to classify, also as .gz; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Takes all of the input as one text, which may have several lines
    #[arg(long)]
    whole: bool,

    /// How many classes are told, the likeliest first
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    top: u64,

    /// Writes a JSON object a line, with all of --top
    #[arg(long)]
    json: bool,

    /// Lines that are read before any is written; 1 answers each at once
    #[arg(long, value_name = "N", default_value_t = 256)]
    batch: usize,
}

impl Command for Classify {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let trained = self.using.open()?;
        trained.classifier()?;
        let input = Input::open(self.file.as_deref())?;
        if self.whole {
            let text = input.whole()?;
            return print(out, &self.lines(&trained, &[&text])?);
        }
        if input.is_typed {
            print_error_line(format_args!("{}; Ctrl-D ends", trained.described()));
        }
        input.in_batches(self.batch, |lines| {
            let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
            print(out, &self.lines(&trained, &texts)?)
        })
    }
}

impl Classify {
    /// What is told of these texts.
    fn lines(&self, trained: &Trained, texts: &[&str]) -> Result<String> {
        let is_blank = |text: &&str| text.trim().is_empty();
        let some: Vec<&str> = texts.iter().copied().filter(|it| !is_blank(it)).collect();
        let classified = trained.classify(&some, &mut |note| print_error_line(note))?;
        let mut classified = classified.into_iter();
        let mut told = String::new();
        for text in texts {
            let classified = match is_blank(text) {
                true => None,
                false => classified.next(),
            };
            told += &self.line(text, classified.as_ref());
            told.push('\n');
        }
        Ok(told)
    }

    fn line(&self, text: &str, classified: Option<&Classified>) -> String {
        let classes = classified.map_or(&[][..], |it| &it.classes);
        let classes = classes.iter().take(self.top as usize);
        if self.json {
            let classes =
                classes.map(|(label, share)| json!({"label": label, "probability": share}));
            let label = classified.map(Classified::label);
            let classes: Vec<_> = classes.collect();
            return json!({"text": text, "label": label, "classes": classes}).to_string();
        }
        let classes = classes.map(|(label, share)| format!("{}\t{share:.4}", Printable(label)));
        classes.collect::<Vec<_>>().join("\t")
    }
}
