//! Tasks that need no files: made up by a seed, the same on every machine.
//!
//! Each is a section of a config file, which has the sizes of its examples and how many of them
//! there are. An example of the validation or test part is never one of the training part.

mod dates;
mod documents;
mod listops;
mod parts;
mod phrases;
mod recall;
mod sequences;

pub use zoo_config::{Dates, Direction, Documents, ListOps, Phrases, Recall, Sequences};

pub use self::documents::MarkedDocument;
pub use self::phrases::phrases;
pub use self::sequences::Arrangement;
use crate::{DataError, Parts};

/// A task that makes up its examples.
pub trait Generate {
    /// What an example is.
    type Example;

    /// Makes up all examples by a seed.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if a size makes no sense, [`DataError::Refused`] if there are
    /// not as many.
    fn generate(&self, seed: u64) -> Result<Parts<Vec<Self::Example>>, DataError>;
}

#[cfg(test)]
mod tests;
