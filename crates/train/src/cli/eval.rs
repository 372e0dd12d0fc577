//! `zoo eval`: how good a run is, in the numbers that people publish.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde_json::{Value, json};
use zoo_data::metrics::{BleuTokenizer, Case};
use zoo_spec::printable_text;

use super::{Command, Using, print, print_error_line};
use crate::evaluate::Evaluated;
use crate::evaluate::{Judgement, Outcome, bleu_of};
use crate::files::write_output;
use crate::show::line::number;
use crate::{DataPart, Result, Source, TrainError, Trained};

/// Says how good a run is at texts it has not learned from
///
/// The texts are the run's own, read again as its config says, or those of other files.
#[derive(Debug, Args)]
pub struct Eval {
    #[command(flatten)]
    using: Using,

    /// Which part of the run's own data; the test's, or the validation's where there is no test
    #[arg(long, value_enum)]
    part: Option<DataPart>,

    /// Texts to translate, instead of the run's own
    #[arg(
        long,
        value_name = "FILE",
        requires = "target",
        conflicts_with = "part"
    )]
    source: Option<PathBuf>,

    /// What should become of them, line by line
    #[arg(long, value_name = "FILE", requires = "source")]
    target: Option<PathBuf>,

    /// Texts with their classes, instead of the run's own: a file or folder of the format that
    /// its name says
    #[arg(long, value_name = "FILE", conflicts_with_all = ["part", "source"])]
    labelled: Option<PathBuf>,

    /// Running text, instead of the run's own
    #[arg(long, value_name = "FILE", conflicts_with_all = ["part", "source", "labelled"])]
    text: Option<PathBuf>,

    /// How BLEU splits words: 13a, none, char or zh; validation.bleu_tokenizer, if not given
    #[arg(long, value_name = "WORD")]
    bleu_tokenize: Option<BleuTokenizer>,

    /// Makes everything lower case before BLEU compares it
    #[arg(long)]
    lowercase: bool,

    /// Shows so many examples with what was said of them
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = RangedU64ValueParser::<usize>::new().range(..=1000))]
    samples: usize,

    /// Writes what the model wrote into a file, a line for each example
    #[arg(long, value_name = "FILE")]
    hypotheses: Option<PathBuf>,

    /// Prints one JSON object instead of lines and tables
    #[arg(long)]
    json: bool,
}

impl Command for Eval {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let trained = self.using.open()?;
        let mut bleu = bleu_of(&trained.config);
        bleu.tokenizer = self.bleu_tokenize.unwrap_or(bleu.tokenizer);
        if self.lowercase {
            bleu.case = Case::Lower;
        }
        let note = &mut |note: &str| print_error_line(note);
        let evaluated = trained.evaluate(&self.texts(), bleu, self.samples, note)?;
        let judgement = &evaluated.judgement;
        if let Some(path) = &self.hypotheses {
            let Outcome::Texts { hypotheses, .. } = &judgement.outcome else {
                return Err(TrainError::Refused(format!(
                    "--hypotheses: a {} writes no text for each example",
                    trained.config.model.word()
                )));
            };
            let lines = hypotheses
                .iter()
                .map(|text| text.replace(['\n', '\r'], " ") + "\n");
            write_output(path, lines.collect::<String>().as_bytes())?;
        }
        if self.json {
            let value = as_json(&trained, &evaluated);
            let text = serde_json::to_string_pretty(&value);
            return print(
                out,
                &(text.map_err(TrainError::content("the result"))? + "\n"),
            );
        }
        let unit = match judgement.outcome {
            Outcome::Continuation => "characters",
            Outcome::Texts { .. } | Outcome::Classes(_) => "examples",
        };
        let head = format!(
            "{}\n{}: {} {unit}\n\n",
            trained.described(),
            evaluated.name,
            evaluated.size
        );
        print(out, &(head + &as_lines(judgement)))
    }
}

impl Eval {
    /// The texts to evaluate with.
    fn texts(&self) -> Source {
        match (&self.source, &self.target, &self.labelled, &self.text) {
            (Some(source), Some(target), ..) => Source::Parallel(source.clone(), target.clone()),
            (_, _, Some(path), _) => Source::Labelled(path.clone()),
            (_, _, _, Some(path)) => Source::Plain(path.clone()),
            _ => Source::Own(self.part),
        }
    }
}

fn as_lines(judgement: &Judgement) -> String {
    let mut text = String::new();
    for sample in &judgement.samples {
        text += &format!("  given:  {}\n", sample.given.trim_end());
        if let Some(wanted) = &sample.wanted {
            text += &format!("  wanted: {}\n", wanted.trim_end());
        }
        text += &format!("  said:   {}\n\n", sample.said.trim_end());
    }
    match &judgement.outcome {
        Outcome::Texts {
            exact, bleu, chrf, ..
        } => {
            text += &format!("{bleu}\n{chrf}\n");
            text += &format!("{exact}\n{}\n", judgement.loss);
        }
        Outcome::Classes(matrix) => {
            text += &matrix.to_string();
            let loss = judgement.loss.loss().unwrap_or(f64::NAN);
            text += &format!("\nloss {}\n", number(zoo_config::Metric::Loss, loss));
        }
        Outcome::Continuation => text += &format!("{}\n", judgement.loss),
    }
    // Labels and samples come from the data.
    printable_text(&text).into_owned()
}

fn as_json(trained: &Trained, evaluated: &Evaluated) -> Value {
    let judgement = &evaluated.judgement;
    let mut value = json!({
        "run": trained.folder.path().display().to_string(),
        "step": trained.step,
        "device": trained.opened.to_string(),
        "data": evaluated.name,
        "size": evaluated.size,
    });
    for (metric, number) in judgement.values() {
        value[metric.word()] = json!(number);
    }
    match &judgement.outcome {
        Outcome::Texts { bleu, chrf, .. } => {
            value["bleu_details"] = json!(bleu);
            value["chrf_signature"] = json!(chrf.signature);
        }
        Outcome::Classes(matrix) => {
            let labels = matrix.labels();
            let classes = 0..labels.len();
            let counts: Vec<Vec<usize>> = classes
                .clone()
                .map(|truth| {
                    let row = classes.clone().map(|told| matrix.count(truth, told));
                    row.map(Result::unwrap_or_default).collect()
                })
                .collect();
            let scores = classes.filter_map(|class| {
                let scores = matrix.class(class).ok()?;
                Some(json!({
                    "label": labels[class],
                    "precision": scores.precision,
                    "recall": scores.recall,
                    "f1": scores.f1,
                    "examples": scores.support,
                }))
            });
            value["classes"] = json!(scores.collect::<Vec<_>>());
            value["confusion"] = json!(counts);
        }
        Outcome::Continuation => {}
    }
    if !judgement.samples.is_empty() {
        let samples = judgement.samples.iter().map(
            |sample| json!({"given": sample.given, "wanted": sample.wanted, "said": sample.said}),
        );
        value["samples"] = json!(samples.collect::<Vec<_>>());
    }
    value
}
