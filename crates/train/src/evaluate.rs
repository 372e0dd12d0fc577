//! Evaluation: loss and published metrics of a model, on the run's own held-out data or on other
//! files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use burn::tensor::Device;
use serde::Serialize;
use zoo_config::{Config, Metric};
use zoo_data::metrics::{Accuracy, Bleu, BleuScore, ChrfScore, ConfusionMatrix, Perplexity};
use zoo_models::GenerateConfig;

use crate::generate::generate_config;

/// The results of an evaluation.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// The mean loss per predicted token or class.
    pub(crate) loss: Perplexity,
    pub(crate) task_metrics: TaskMetrics,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug, Clone)]
pub(crate) enum TaskMetrics {
    Translation {
        /// Exact matches of whole sequences.
        exact: Accuracy,
        bleu: BleuScore,
        chrf: ChrfScore,
        /// Model outputs, in the order of the examples.
        hypotheses: Vec<String>,
    },
    Classification(ConfusionMatrix),
    /// The loss is the only metric.
    LanguageModelling,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Sample {
    pub(crate) source: String,
    /// None for a language model.
    pub(crate) reference: Option<String>,
    pub(crate) prediction: String,
}

impl Metrics {
    /// The value of a metric; None if the task does not have it.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        match (metric, &self.task_metrics) {
            (Metric::Loss, _) => self.loss.loss(),
            (Metric::Perplexity, TaskMetrics::Classification(_)) => None,
            (Metric::Perplexity, _) => self.loss.value(),
            (Metric::Exact, TaskMetrics::Translation { exact, .. }) => exact.sequences(),
            (Metric::Bleu, TaskMetrics::Translation { bleu, .. }) => Some(bleu.score),
            (Metric::Chrf, TaskMetrics::Translation { chrf, .. }) => Some(chrf.score),
            (Metric::Accuracy, TaskMetrics::Classification(matrix)) => matrix.accuracy(),
            (Metric::MacroF1, TaskMetrics::Classification(matrix)) => matrix.macro_f1(),
            _ => None,
        }
    }

    /// All metrics of the task.
    pub fn values(&self) -> Vec<(Metric, f64)> {
        let value = |metric| Some((metric, self.value(metric)?));
        Metric::ALL.into_iter().filter_map(value).collect()
    }

    pub(crate) fn to_map(&self) -> BTreeMap<String, f64> {
        let named = |(metric, value): (Metric, f64)| (metric.name().to_owned(), value);
        self.values().into_iter().map(named).collect()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Evaluator {
    pub(crate) generate: Option<GenerateConfig>,
    pub(crate) bleu: Bleu,
    /// Number of examples to return with their predictions.
    pub(crate) samples: usize,
    pub(crate) device: Device,
}

impl Evaluator {
    pub(crate) fn new(config: &Config, samples: usize, device: Device) -> Self {
        Self {
            generate: generate_config(config).ok(),
            bleu: bleu_from_config(config),
            samples,
            device,
        }
    }
}

fn bleu_from_config(config: &Config) -> Bleu {
    Bleu {
        tokenizer: config.bleu_tokenizer().unwrap_or_default(),
        ..Bleu::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DataSplit {
    #[value(skip)]
    Train,
    /// Evaluate the validation split
    Valid,
    /// Evaluate the test split
    Test,
}

impl DataSplit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Train => "training",
            Self::Valid => "validation",
            Self::Test => "test",
        }
    }
}

/// The data to evaluate on.
#[derive(Debug, Clone)]
pub(crate) enum EvalSet {
    /// A split of the run's own data; by default test, or valid if there is no test split.
    Own(Option<DataSplit>),
    /// Source texts and reference translations, one per line.
    Parallel(PathBuf, PathBuf),
    Labelled(PathBuf),
    Plain(PathBuf),
}

#[derive(Debug)]
pub(crate) struct Evaluation {
    pub(crate) metrics: Metrics,
    pub(crate) name: String,
    /// Number of examples, or of characters of running text.
    pub(crate) size: usize,
}

#[cfg(test)]
mod tests {
    use zoo_data::metrics::CorpusMetric;

    use super::*;

    #[test]
    fn bleu_uses_the_tokenizer_of_the_config() {
        let text = "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\n[validation]\n";
        for (key, expected) in [("", "tok:none"), ("bleu_tokenizer = \"char\"", "tok:char")] {
            let config = Config::parse("a.toml", &format!("{text}{key}\n"), &[]).unwrap();
            let mut counts = bleu_from_config(&config).counts();
            counts.add("a b", &["a b"]).unwrap();
            let score = counts.score().unwrap();
            assert!(score.signature.contains(expected), "{}", score.signature);
        }
    }
}
