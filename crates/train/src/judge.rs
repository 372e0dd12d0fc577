//! How good a model is at what it was trained for: in loss, and in what people publish.

use burn::tensor::Device;
use zoo_config::{Config, Metric};
use zoo_data::metrics::{Accuracy, Bleu, BleuScore, ChrfScore, ConfusionMatrix, Perplexity};
use zoo_models::GenerateConfig;

/// How good a model was.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// The mean loss of what was to be said, and over how much.
    pub loss: Perplexity,
    /// What came of it.
    pub outcome: Outcome,
    /// Some of what the model said.
    pub samples: Vec<Sample>,
}

/// What came of a validation or a test.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Texts were written.
    Texts {
        /// Those that are right in every token.
        exact: Accuracy,
        /// As translations.
        bleu: BleuScore,
        /// As translations, by characters.
        chrf: ChrfScore,
        /// What was written, in the order of the examples.
        hypotheses: Vec<String>,
    },
    /// Classes were told.
    Classes(ConfusionMatrix),
    /// Text was gone on with: there is the loss alone.
    Continuation,
}

/// Something that a model said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// What it was given.
    pub given: String,
    /// What was wanted, if one thing was.
    pub wanted: Option<String>,
    /// What it said.
    pub said: String,
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
}

/// What it takes to judge, beside a model and examples.
#[derive(Debug, Clone)]
pub struct Judge {
    /// How texts are written, by models that write any.
    pub generate: Option<GenerateConfig>,
    /// How translations are compared.
    pub bleu: Bleu,
    /// Examples whose result is shown.
    pub samples: usize,
    /// Where to compute.
    pub device: Device,
}

/// BLEU as the config's validation computes it.
pub fn bleu_of(config: &Config) -> Bleu {
    Bleu {
        tokenizer: config.bleu_tokenizer().unwrap_or_default(),
        ..Bleu::default()
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
            let score = bleu_of(&config).corpus(&["a b"], &[vec!["a b"]]).unwrap();
            assert!(score.signature.contains(expected), "{}", score.signature);
        }
    }
}
