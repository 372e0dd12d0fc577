//! Examples to learn from.
mod draw;
mod error;
mod example;
mod labels;
mod read;
mod sentences;
mod split;
pub mod tasks;
#[cfg(test)]
mod test_files;
mod tokenizer;

pub use error::DataError;
pub use example::{Examples, Labelled, Pair};
pub use labels::Labels;
pub use read::{BadLine, LabelledText, ParallelText, Read, ReadReport, plain_text};
pub use sentences::SentenceRule;
pub use split::{Parts, Split};
pub use tokenizer::{
    BEGIN, END, PAD, PairTokenizers, SPECIAL_TOKENS, Tokenizer, TokenizerConfig, TokenizerKind,
    UNKNOWN, WordRule,
};
