//! What there is to learn from, as people write it.

use serde::{Deserialize, Serialize};

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
