//! What a model learns from, and how much of it there is.

use zoo_data::{DocumentIds, LabelledIds, PairIds};

/// Something to learn from.
pub trait Example: Clone + Send + Sync + 'static {
    /// How many tokens or classes are to be said of it: what a loss is the mean of.
    fn said(&self) -> usize;

    /// How many tokens are read and said, as speed is counted.
    fn tokens(&self) -> usize;
}

impl Example for PairIds {
    /// The target, and its end.
    fn said(&self) -> usize {
        self.target.len() + 1
    }

    fn tokens(&self) -> usize {
        self.source.len() + self.said()
    }
}

/// A piece of running text, and what comes after each of its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextWindow {
    /// What is given.
    pub input: Vec<u32>,
    /// The same, one place on.
    pub target: Vec<u32>,
}

impl Example for TextWindow {
    fn said(&self) -> usize {
        self.target.len()
    }

    fn tokens(&self) -> usize {
        self.target.len()
    }
}

impl Example for LabelledIds {
    fn said(&self) -> usize {
        1
    }

    fn tokens(&self) -> usize {
        self.ids.len()
    }
}

impl Example for DocumentIds {
    fn said(&self) -> usize {
        1
    }

    fn tokens(&self) -> usize {
        self.sentences.iter().map(Vec::len).sum()
    }
}
