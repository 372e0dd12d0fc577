//! What there is to learn from, as people write it.

use serde::{Deserialize, Serialize};

use crate::{DataError, Parts};

/// A text and what is to be made of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pair {
    /// What is given.
    pub source: String,
    /// What is wanted.
    pub target: String,
}

impl Pair {
    /// A text and what is to be made of it.
    pub fn new(source: impl Into<String>, target: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            target: target.into(),
        }
    }

    /// The other direction.
    pub fn swapped(self) -> Self {
        Self {
            source: self.target,
            target: self.source,
        }
    }
}

/// A document and what class it is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Labelled {
    /// The class, by its name.
    pub label: String,
    /// The document.
    pub text: String,
}

impl Labelled {
    /// A document and what class it is of.
    pub fn new(label: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            text: text.into(),
        }
    }
}

/// Examples of one of the kinds there are, in their parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Examples {
    /// To translate: one text becomes another.
    Pairs(Parts<Vec<Pair>>),
    /// To classify: a document has a label.
    Labelled(Parts<Vec<Labelled>>),
    /// To go on with: running text.
    Text(Parts<String>),
}

impl Examples {
    /// What kind they are, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Pairs(_) => "pairs",
            Self::Labelled(_) => "labelled documents",
            Self::Text(_) => "text",
        }
    }

    /// That there is something to train with, and something to validate with.
    ///
    /// # Errors
    ///
    /// [`DataError::Empty`] with the part that has nothing.
    pub fn check(&self) -> Result<(), DataError> {
        let (train, valid) = match self {
            Self::Pairs(parts) => (parts.train.is_empty(), parts.valid.is_empty()),
            Self::Labelled(parts) => (parts.train.is_empty(), parts.valid.is_empty()),
            Self::Text(parts) => (parts.train.trim().is_empty(), parts.valid.trim().is_empty()),
        };
        for (empty, part) in [(train, "training"), (valid, "validation")] {
            if empty {
                return Err(DataError::Empty {
                    what: format!("the {part} data"),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_without_examples_is_named() {
        let some = vec![Pair::new("a", "b")];
        let parts = |train: &[Pair], valid: &[Pair]| {
            Examples::Pairs(Parts {
                train: train.to_vec(),
                valid: valid.to_vec(),
                test: vec![],
            })
        };
        assert!(parts(&some, &some).check().is_ok());
        let message = |examples: Examples| examples.check().unwrap_err().to_string();
        assert_eq!(
            message(parts(&[], &some)),
            "the training data has no examples"
        );
        assert_eq!(
            message(parts(&some, &[])),
            "the validation data has no examples"
        );
        let text = Examples::Text(Parts {
            train: "a".to_owned(),
            valid: " \n".to_owned(),
            test: String::new(),
        });
        assert_eq!(text.kind(), "text");
        assert_eq!(message(text), "the validation data has no examples");
    }

    #[test]
    fn a_pair_goes_both_ways() {
        let pair = Pair::new("好久不见", "long time no see");
        assert_eq!(
            pair.clone().swapped(),
            Pair::new("long time no see", "好久不见")
        );
        assert_eq!(pair.clone().swapped().swapped(), pair);
    }
}
