//! Evaluation metrics.
//!
//! - [`Bleu`], [`Chrf`]: translation quality, computed as in sacreBLEU and with its signature; both
//!   are [`CorpusMetric`]s;
//! - [`Accuracy`]: token accuracy and exact match;
//! - [`ConfusionMatrix`]: precision, recall and macro-F1 of a classifier;
//! - [`Perplexity`]: perplexity of a language model.
//!
//! All metrics add up counts example by example, so predictions need not be stored.

mod accuracy;
mod bleu;
mod chrf;
mod confusion;
mod corpus;
mod perplexity;
mod text;
mod tokenizer;

pub use accuracy::Accuracy;
pub use bleu::{Bleu, BleuScore};
pub use chrf::{Chrf, ChrfScore};
pub use confusion::{ClassScores, ConfusionMatrix};
pub use corpus::{CorpusCounts, CorpusMetric};
pub use perplexity::Perplexity;
pub use text::Case;
pub use tokenizer::tokenize;
pub use zoo_config::BleuTokenizer;

/// Invalid input of a metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MetricError(String);
