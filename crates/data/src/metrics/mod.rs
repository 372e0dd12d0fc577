//! How good the output of a model is, in the numbers that people publish.
//!
//! - [`Bleu`], [`Chrf`]: translations against references, as sacreBLEU computes them, with
//!   a signature that says how; both are [`CorpusMetric`]s;
//! - [`Accuracy`]: tokens and whole sequences that are right;
//! - [`ConfusionMatrix`]: which class is taken for which, precision, recall, macro-F1;
//! - [`Perplexity`]: how surprised a language model is.
//!
//! All of them take one example after the other and add up counts, so that batches need not be
//! stored. No tensor library is in here.

mod accuracy;
mod bleu;
mod chrf;
mod confusion;
mod corpus;
mod error;
mod perplexity;
mod table;
mod text;
mod tokenizer;

pub use accuracy::Accuracy;
pub use bleu::{Bleu, BleuScore};
pub use chrf::{Chrf, ChrfScore};
pub use confusion::{ClassScores, ConfusionMatrix};
pub use corpus::{CorpusCounts, CorpusMetric};
pub use error::MetricError;
pub use perplexity::Perplexity;
pub use text::Case;
pub use tokenizer::tokenize;
pub use zoo_config::BleuTokenizer;
