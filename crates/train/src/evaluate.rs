//! How good a model is at what it was trained for: in loss, and in what people publish. The texts are
//! a run's own that it has not learned from, or others.

use std::collections::BTreeMap;
use std::path::PathBuf;

use burn::tensor::Device;
use zoo_config::{Config, Metric};
use zoo_data::metrics::{Accuracy, Bleu, BleuScore, ChrfScore, ConfusionMatrix, Perplexity};
use zoo_models::GenerateConfig;

use crate::generate::generate_config;
use crate::task::Note;
use crate::{Result, Trained};

/// How good a model was.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// The mean loss of what was to be said, and over how much.
    pub(crate) loss: Perplexity,
    pub(crate) outcome: Outcome,
    pub(crate) samples: Vec<Sample>,
}

/// What came of a validation or a test.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Texts {
        /// Those that are right in every token.
        exact: Accuracy,
        bleu: BleuScore,
        chrf: ChrfScore,
        /// What was written, in the order of the examples.
        hypotheses: Vec<String>,
    },
    Classes(ConfusionMatrix),
    /// Text was gone on with: there is the loss alone.
    Continuation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) given: String,
    /// What was wanted, if one thing was.
    pub(crate) wanted: Option<String>,
    pub(crate) said: String,
}

impl Judgement {
    /// One number of it; nothing for what this task has not.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        match (metric, &self.outcome) {
            (Metric::Loss, _) => self.loss.loss(),
            (Metric::Perplexity, _) => self.loss.value(),
            (Metric::Exact, Outcome::Texts { exact, .. }) => exact.sequences(),
            (Metric::Bleu, Outcome::Texts { bleu, .. }) => Some(bleu.score),
            (Metric::Chrf, Outcome::Texts { chrf, .. }) => Some(chrf.score),
            (Metric::Accuracy, Outcome::Classes(matrix)) => matrix.accuracy(),
            (Metric::MacroF1, Outcome::Classes(matrix)) => matrix.macro_f1(),
            _ => None,
        }
    }

    /// All its numbers, by their names.
    pub fn values(&self) -> Vec<(Metric, f64)> {
        let all = [
            Metric::Loss,
            Metric::Perplexity,
            Metric::Exact,
            Metric::Bleu,
            Metric::Chrf,
            Metric::Accuracy,
            Metric::MacroF1,
        ];
        let of_classes = matches!(self.outcome, Outcome::Classes(_));
        all.into_iter()
            // Nobody counts classes in perplexity.
            .filter(|metric| !(of_classes && *metric == Metric::Perplexity))
            .filter_map(|metric| Some((metric, self.value(metric)?)))
            .collect()
    }

    /// The same by the names of the metrics.
    pub(crate) fn by_name(&self) -> BTreeMap<String, f64> {
        let values = self.values().into_iter();
        values
            .map(|(metric, value)| (metric.word().to_owned(), value))
            .collect()
    }
}

/// What it takes to judge, beside a model and examples.
#[derive(Debug, Clone)]
pub(crate) struct Judge {
    /// How texts are written, by models that write any.
    pub(crate) generate: Option<GenerateConfig>,
    pub(crate) bleu: Bleu,
    /// Examples whose result is shown.
    pub(crate) samples: usize,
    pub(crate) device: Device,
}

/// BLEU as the config's validation computes it.
pub(crate) fn bleu_of(config: &Config) -> Bleu {
    Bleu {
        tokenizer: config.bleu_tokenizer().unwrap_or_default(),
        ..Bleu::default()
    }
}

/// A part of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DataPart {
    /// What the run learns from.
    #[value(skip)]
    Train,
    /// What the run was validated with.
    Valid,
    /// What nobody looked at while it was trained.
    Test,
}

impl DataPart {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Train => "training",
            Self::Valid => "validation",
            Self::Test => "test",
        }
    }
}

/// The texts that a run is evaluated with.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A part of its own data; the test, or the validation where there is no test, if not given.
    Own(Option<DataPart>),
    /// Texts to translate, and what should become of them, line by line.
    Parallel(PathBuf, PathBuf),
    Labelled(PathBuf),
    Plain(PathBuf),
}

#[derive(Debug)]
pub(crate) struct Evaluated {
    pub(crate) judgement: Judgement,
    /// What the texts are called.
    pub(crate) name: String,
    /// How many examples or characters there are.
    pub(crate) size: usize,
}

impl Trained {
    pub(crate) fn evaluate(
        &self,
        source: &Source,
        bleu: Bleu,
        samples: usize,
        note: Note<'_>,
    ) -> Result<Evaluated> {
        let judge = Judge {
            generate: generate_config(&self.config).ok(),
            bleu,
            samples,
            device: self.opened.device.clone(),
        };
        self.model.evaluate(self, source, &judge, note)
    }
}

#[cfg(test)]
mod tests {
    use zoo_data::metrics::CorpusMetric;

    use super::*;

    #[test]
    fn validation_computes_bleu_with_the_tokenizer_of_the_config() {
        let text = "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\n[validation]\n";
        for (key, expected) in [("", "tok:none"), ("bleu_tokenizer = \"char\"", "tok:char")] {
            let config = Config::parse("a.toml", &format!("{text}{key}\n"), &[]).unwrap();
            let mut counts = bleu_of(&config).counts();
            counts.add("a b", &["a b"]).unwrap();
            let score = counts.score().unwrap();
            assert!(score.signature.contains(expected), "{}", score.signature);
        }
    }
}
