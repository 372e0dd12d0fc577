//! Synthetic tasks, generated from a seed, equal on every machine.
//!
//! Each task is a section of the config, with the sizes of its splits. No example of the validation
//! or test split occurs in the training split.

mod dates;
mod documents;
mod listops;
mod phrases;
mod recall;
mod sequences;
mod splits;

pub use zoo_config::{Dates, Direction, Documents, ListOps, Phrases, Recall, Sequences};

pub use self::documents::MarkedDocument;
pub use self::phrases::phrases;
pub use self::sequences::SequenceTask;
use crate::{DataError, Splits};

/// A task with generated examples.
pub trait Generate {
    /// Type of an example.
    type Example;

    /// Generates all splits.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if a size is invalid, [`DataError::Invalid`] if there are fewer
    /// distinct examples than requested.
    fn generate(&self, seed: u64) -> Result<Splits<Vec<Self::Example>>, DataError>;
}

#[cfg(test)]
mod tests;
