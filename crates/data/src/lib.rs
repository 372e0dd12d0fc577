//! Datasets, synthetic tasks, tokenizers, batching and metrics, without Burn.
//!
//! - [`ParallelText`], [`LabelledText`], [`plain_text`]: examples from files, `.gz` or `.zip`, with
//!   a [`ReadReport`] of lines that could not be parsed;
//! - [`tasks`]: synthetic examples, generated from a seed;
//! - [`Splitter`], [`Labels`], [`split_sentences`]: train/valid/test splits, class indices,
//!   sentence splitting;
//! - [`TokenizerConfig`]: tokenizers that are trained on text;
//! - [`LengthRule`], [`Batching`], [`Windows`]: truncation and batching;
//! - [`metrics`]: BLEU, chrF, accuracy, F1, perplexity.
//!
//! All random choices are a function of a seed, on any machine.
//!
//! ```
//! use zoo_data::tasks::{SequenceTask, Sequences};
//! use zoo_data::{BatchSize, Batching, DataError, Encoded, PairTokenizers, TokenizerConfig};
//!
//! let sequences = Sequences {
//!     train_size: 100,
//!     ..Sequences::default()
//! };
//! let splits = SequenceTask::Reverse.generate(&sequences, 1)?;
//! let tokenizers = PairTokenizers::train_joint(&TokenizerConfig::words(), &splits.train)?;
//! let pairs = tokenizers.encode(&splits.train)?;
//! let extents = pairs.iter().map(Encoded::extent).collect();
//! let plan = Batching::new(BatchSize::Tokens(128), 1).plan(extents)?;
//! for batch in plan.epoch(0) {
//!     assert!(plan.padded_tokens(&batch) <= 128);
//! }
//! # Ok::<(), DataError>(())
//! ```

mod batch;
mod encoded;
mod error;
mod example;
mod labels;
pub mod metrics;
mod read;
mod sentences;
mod split;
pub mod tasks;
#[cfg(test)]
mod test_files;
mod tokenizer;

pub use batch::{BatchPlan, BatchSize, Batching, Position, Window, Windows};
pub use encoded::{DocumentIds, Encoded, Extent, LabelledIds, LengthReport, LengthRule, PairIds};
pub use error::DataError;
pub use example::{Labelled, Pair};
pub use labels::Labels;
pub use read::{Dataset, LabelledText, ParallelText, ReadReport, plain_text};
pub use sentences::split_sentences;
pub use split::{Splits, Splitter};
pub use tokenizer::{
    BOS, EOS, PAD, PairTokenizers, SPECIAL_TOKENS, Tokenizer, TokenizerConfig, UNK,
};
pub use zoo_config::{PreTokenization, Sentences};
