//! Tasks that need no files: made up by a seed, the same on every machine.
//!
//! Each is a small struct with the sizes of its examples. An example of the validation or
//! test part is never one of the training part.

mod dates;
mod documents;
mod listops;
mod parts;
mod phrases;
mod recall;
mod sequences;
mod word;

pub use self::dates::Dates;
pub use self::documents::{Documents, KeyWord, MarkedDocument};
pub use self::listops::{Expression, ListOps, ListOpsError, Operation};
pub use self::parts::Counts;
pub use self::phrases::{PhraseDirection, Phrases};
pub use self::recall::Recall;
pub use self::sequences::{Arrangement, Sequences};
pub use self::word::Task;

#[cfg(test)]
mod tests;
