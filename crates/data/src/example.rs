//! Text examples: pairs and labelled documents.

use serde::{Deserialize, Serialize};

/// A source text and its target text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pair {
    /// Source text.
    pub source: String,
    /// Target text.
    pub target: String,
}

impl Pair {
    /// Creates a pair.
    pub fn new(source: impl Into<String>, target: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            target: target.into(),
        }
    }
}

/// A document and its class.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Labelled {
    /// Class name.
    pub label: String,
    /// Text of the document.
    pub text: String,
}

impl Labelled {
    /// Creates a labelled document.
    pub fn new(label: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            text: text.into(),
        }
    }
}
