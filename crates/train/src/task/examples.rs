//! What batches are made of.

use zoo_data::{DocumentIds, Encoded, Extent, LabelledIds, PairIds, Window};

use crate::learn::Checksum;

pub(crate) trait Example: Encoded + Clone + Send + Sync + 'static {
    /// How many tokens or classes are predicted of it: what a loss is the mean of.
    fn predicted(&self) -> usize;

    /// How many tokens are read and predicted, as speed is counted.
    fn tokens(&self) -> usize;
}

/// An example of a text of its own.
pub(crate) trait TextExample: Example {
    /// Adds its tokens, and its target or label, to checksums.
    fn add_to(&self, inputs: &mut Checksum, targets: &mut Checksum);
}

impl Example for PairIds {
    /// The target, and its end.
    fn predicted(&self) -> usize {
        self.target.len() + 1
    }

    fn tokens(&self) -> usize {
        self.source.len() + self.predicted()
    }
}

impl TextExample for PairIds {
    fn add_to(&self, inputs: &mut Checksum, targets: &mut Checksum) {
        inputs.add(&self.source);
        targets.add(&self.target);
    }
}

impl Example for LabelledIds {
    fn predicted(&self) -> usize {
        1
    }

    fn tokens(&self) -> usize {
        self.ids.len()
    }
}

impl TextExample for LabelledIds {
    fn add_to(&self, inputs: &mut Checksum, labels: &mut Checksum) {
        inputs.add(&self.ids);
        labels.add_number(self.label);
    }
}

impl Example for DocumentIds {
    fn predicted(&self) -> usize {
        1
    }

    fn tokens(&self) -> usize {
        self.sentences.iter().map(Vec::len).sum()
    }
}

impl TextExample for DocumentIds {
    fn add_to(&self, inputs: &mut Checksum, labels: &mut Checksum) {
        inputs.add_number(self.sentences.len());
        self.sentences.iter().for_each(|ids| inputs.add(ids));
        labels.add_number(self.label);
    }
}

/// A window of running text, and what comes after each of its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextWindow {
    pub(super) input: Vec<u32>,
    /// The same, one token on.
    pub(super) target: Vec<u32>,
}

impl From<Window<'_>> for TextWindow {
    fn from(window: Window<'_>) -> Self {
        Self {
            input: window.input.to_vec(),
            target: window.target.to_vec(),
        }
    }
}

impl Encoded for TextWindow {
    fn extent(&self) -> Extent {
        Extent {
            width: self.input.len(),
            other: 0,
            rows: 1,
        }
    }

    fn shorten(&mut self, longest: usize) {
        self.input.truncate(longest);
        self.target.truncate(longest);
    }
}

impl Example for TextWindow {
    fn predicted(&self) -> usize {
        self.target.len()
    }

    fn tokens(&self) -> usize {
        self.target.len()
    }
}
