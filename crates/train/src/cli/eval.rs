//! `zoo eval`: loss and published metrics of a run.

use std::convert::Infallible;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde_json::{Value, json};
use zoo_config::wrap;
use zoo_data::metrics::{BleuTokenizer, Case};
use zoo_spec::printable_text;

use super::terminal::width;
use super::{Command, RunArgs, check_output, print, print_error_line, renamed_part};
use crate::evaluate::{Evaluation, Evaluator, TaskMetrics};
use crate::files::write_output;
use crate::report::format::metric_value;
use crate::{DataSplit, EvalSet, Metrics, Result, TrainError, TrainedRun};

/// Evaluate a trained run on its test (or validation) set
///
/// Uses the data of the run's config unless other files are given.
#[derive(Debug, Args)]
pub struct Eval {
    #[command(flatten)]
    run: RunArgs,

    /// Evaluate this split [default: test, or valid if there is no test split]
    #[arg(long, value_enum, group = "eval-set")]
    split: Option<DataSplit>,

    #[arg(long = "part", hide = true, value_parser = renamed_part("--split"))]
    _part: Option<Infallible>,

    /// Translate these source texts, one per line, instead of the run's data
    #[arg(long, value_name = "FILE", requires = "target", group = "eval-set")]
    source: Option<PathBuf>,

    /// Compare with these reference translations, one per line
    #[arg(long, value_name = "FILE", requires = "source")]
    target: Option<PathBuf>,

    /// Classify these labelled texts instead of the run's data; the file name determines the format
    #[arg(long, value_name = "FILE", group = "eval-set")]
    labelled: Option<PathBuf>,

    /// Predict this plain text instead of the run's data
    #[arg(long, value_name = "FILE", group = "eval-set")]
    text: Option<PathBuf>,

    /// Tokenize for BLEU with 13a, none, char or zh [default: validation.bleu_tokenizer, chosen
    /// from the data if unset]
    #[arg(long, value_name = "NAME")]
    bleu_tokenize: Option<BleuTokenizer>,

    /// Compute BLEU on lowercased text
    #[arg(long)]
    lowercase: bool,

    /// Print N examples with reference and prediction
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = RangedU64ValueParser::<usize>::new().range(..=1000))]
    samples: usize,

    /// Write the predictions to a file, one per line
    #[arg(long, value_name = "FILE")]
    hypotheses: Option<PathBuf>,

    /// Print the metrics as JSON
    #[arg(long)]
    json: bool,
}

impl Command for Eval {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let trained = self.run.open()?;
        trained.check_has_data("zoo eval", "use `zoo generate` or `zoo attend`")?;
        if self.hypotheses.is_some() && trained.translator().is_err() {
            return Err(TrainError::Refused(format!(
                "--hypotheses is only supported for sequence-to-sequence models; this run is a {}\n  \
                 help: omit --hypotheses",
                trained.config.model.name()
            )));
        }
        let files = trained.config.files();
        let own = files.iter().map(|(_, path)| *path);
        let other = self.source.iter().chain(&self.target).map(Path::new);
        let inputs: Vec<&Path> = own.chain(other).collect();
        check_output("--hypotheses", self.hypotheses.as_deref(), &inputs)?;
        let device = trained.opened.device.clone();
        let mut evaluator = Evaluator::new(&trained.config, self.samples, device);
        if let Some(tokenizer) = self.bleu_tokenize {
            evaluator.bleu.tokenizer = tokenizer;
        }
        if self.lowercase {
            evaluator.bleu.case = Case::Lower;
        }
        let note = &mut |note: &str| print_error_line(note);
        let eval_set = self.eval_set();
        let model = &trained.model;
        let evaluation = model.evaluate(&trained, &eval_set, &evaluator, note)?;
        let metrics = &evaluation.metrics;
        if let (Some(path), TaskMetrics::Translation { hypotheses, .. }) =
            (&self.hypotheses, &metrics.task_metrics)
        {
            let line = |text: &String| text.replace(['\n', '\r'], " ") + "\n";
            let lines: String = hypotheses.iter().map(line).collect();
            write_output(path, lines.as_bytes())?;
        }
        if self.json {
            let value = to_json(&trained, &evaluation);
            return print(out, &format!("{value:#}\n"));
        }
        let unit = match metrics.task_metrics {
            TaskMetrics::LanguageModelling => "characters",
            TaskMetrics::Translation { .. } | TaskMetrics::Classification(_) => "examples",
        };
        let Evaluation { name, size, .. } = &evaluation;
        let head = format!("{}\n{name}: {size} {unit}\n\n", trained.description());
        print(out, &(head + &to_lines(metrics)))
    }
}

impl Eval {
    fn eval_set(&self) -> EvalSet {
        match (&self.source, &self.target, &self.labelled, &self.text) {
            (Some(source), Some(target), ..) => EvalSet::Parallel(source.clone(), target.clone()),
            (_, _, Some(path), _) => EvalSet::Labelled(path.clone()),
            (_, _, _, Some(path)) => EvalSet::Plain(path.clone()),
            _ => EvalSet::Own(self.split),
        }
    }
}

fn to_lines(metrics: &Metrics) -> String {
    let mut text = String::new();
    for sample in &metrics.samples {
        text += &format!("  source:     {}\n", sample.source.trim_end());
        if let Some(reference) = &sample.reference {
            text += &format!("  reference:  {}\n", reference.trim_end());
        }
        text += &format!("  prediction: {}\n\n", sample.prediction.trim_end());
    }
    match &metrics.task_metrics {
        TaskMetrics::Translation {
            exact, bleu, chrf, ..
        } => {
            text += &wrap(&score_lines(&bleu.to_string()), width());
            text += &wrap(&score_lines(&chrf.to_string()), width());
            text += &format!("{exact}\n{}\n", metrics.loss);
        }
        TaskMetrics::Classification(matrix) => {
            text += &matrix.to_string();
            let loss = metrics.loss.loss().unwrap_or(f64::NAN);
            text += &format!("\nloss {}\n", metric_value(zoo_config::Metric::Loss, loss));
        }
        TaskMetrics::LanguageModelling => text += &format!("{}\n", metrics.loss),
    }
    // Labels and samples may contain control characters.
    printable_text(&text).into_owned()
}

/// A score in the format of sacreBLEU, `BLEU|nrefs:1|... = 94.02 97.2/... (BP = ...)`, as lines: the
/// score, its details and its signature.
fn score_lines(score: &str) -> String {
    let Some((signature, values)) = score.split_once(" = ") else {
        return format!("{score}\n");
    };
    let name = signature.split('|').next().unwrap_or_default();
    match values.split_once(' ') {
        Some((value, details)) => format!("{name} {value}\n  {details}\n  {signature}\n"),
        None => format!("{name} {values}\n  {signature}\n"),
    }
}

fn to_json(trained: &TrainedRun, evaluation: &Evaluation) -> Value {
    let metrics = &evaluation.metrics;
    let mut value = json!({
        "run": trained.folder.path().display().to_string(),
        "step": trained.step,
        "device": trained.opened.to_string(),
        "data": evaluation.name,
        "size": evaluation.size,
    });
    for (metric, score) in metrics.values() {
        value[metric.name()] = json!(score);
    }
    match &metrics.task_metrics {
        TaskMetrics::Translation { bleu, chrf, .. } => {
            value["bleu_details"] = json!(bleu);
            value["chrf_signature"] = json!(chrf.signature);
        }
        TaskMetrics::Classification(matrix) => {
            let labels = matrix.labels();
            let classes = 0..labels.len();
            let row = |label: usize| -> Vec<usize> {
                let counts = classes.clone().map(|class| matrix.count(label, class));
                counts.map(Result::unwrap_or_default).collect()
            };
            let counts: Vec<Vec<usize>> = classes.clone().map(row).collect();
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
        TaskMetrics::LanguageModelling => {}
    }
    if !metrics.samples.is_empty() {
        value["samples"] = json!(metrics.samples);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_come_first() {
        let bleu = "BLEU|nrefs:1|case:mixed = 94.02 97.2/94.8 (BP = 1.000 ratio = 1.000)";
        let expected =
            "BLEU 94.02\n  97.2/94.8 (BP = 1.000 ratio = 1.000)\n  BLEU|nrefs:1|case:mixed\n";
        assert_eq!(score_lines(bleu), expected);
        let expected = "chrF2 95.10\n  chrF2|nrefs:1\n";
        assert_eq!(score_lines("chrF2|nrefs:1 = 95.10"), expected);
    }
}
