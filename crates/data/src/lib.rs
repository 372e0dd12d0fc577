//! Examples to learn from, without Burn.
//!
//! - [`ParallelText`], [`LabelledText`], [`plain_text`]: examples from files, packed or not, with a
//!   [`ReadReport`] of what could not be used;
//! - [`tasks`]: examples made up by a seed;
//! - [`Split`], [`Labels`], [`split_sentences`]: what is held back, what classes there are, where
//!   sentences end;
//! - [`TokenizerConfig`]: text as tokens and back;
//! - [`LengthRule`], [`Batching`], [`Windows`]: what is learned from at each step;
//! - [`metrics`]: how good the output of a model is.
//!
//! Everything that is drawn is a function of a seed, on any machine.
//!
//! ```
//! use zoo_data::tasks::{Arrangement, Sequences};
//! use zoo_data::{BatchSize, Batching, DataError, Encoded, PairTokenizers, TokenizerConfig};
//!
//! let sequences = Sequences {
//!     train_size: 100,
//!     ..Sequences::default()
//! };
//! let parts = Arrangement::Reverse.generate(&sequences, 1)?;
//! let tokenizers = PairTokenizers::train_joint(&TokenizerConfig::words(), &parts.train)?;
//! let pairs = tokenizers.encode(&parts.train)?;
//! let extents = pairs.iter().map(Encoded::extent).collect();
//! let plan = Batching::new(BatchSize::Tokens(128), 1).plan(extents)?;
//! for batch in plan.epoch(0) {
//!     assert!(plan.padded(&batch) <= 128);
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
pub use read::{LabelledText, ParallelText, Read, ReadReport, plain_text};
pub use sentences::split_sentences;
pub use split::{Parts, Split};
pub use tokenizer::{
    BEGIN, END, PAD, PairTokenizers, SPECIAL_TOKENS, Tokenizer, TokenizerConfig, UNKNOWN,
};
pub use zoo_config::{Sentences, WordRule};
