//! Training and evaluation examples.

use zoo_data::{DocumentIds, Encoded, Extent, LabelledIds, PairIds, Window};

use crate::training::Checksum;

pub(crate) trait Example: Encoded + Clone + Send + Sync + 'static {
    /// Number of predicted tokens, over which the loss is averaged; 1 if it is a class.
    fn predicted(&self) -> usize {
        1
    }

    /// Number of input and output tokens, for the throughput.
    fn tokens(&self) -> usize;

    fn update_checksums(&self, inputs: &mut Checksum, targets: &mut Checksum);
}

impl Example for PairIds {
    /// The target and its end token.
    fn predicted(&self) -> usize {
        self.target.len() + 1
    }

    fn tokens(&self) -> usize {
        self.source.len() + self.predicted()
    }

    fn update_checksums(&self, inputs: &mut Checksum, targets: &mut Checksum) {
        inputs.add(&self.source);
        targets.add(&self.target);
    }
}

impl Example for LabelledIds {
    fn tokens(&self) -> usize {
        self.ids.len()
    }

    fn update_checksums(&self, inputs: &mut Checksum, labels: &mut Checksum) {
        inputs.add(&self.ids);
        labels.add_number(self.label);
    }
}

impl Example for DocumentIds {
    fn tokens(&self) -> usize {
        self.sentences.iter().map(Vec::len).sum()
    }

    fn update_checksums(&self, inputs: &mut Checksum, labels: &mut Checksum) {
        inputs.add_number(self.sentences.len());
        self.sentences.iter().for_each(|ids| inputs.add(ids));
        labels.add_number(self.label);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextWindow {
    pub(super) input: Vec<u32>,
    /// The input shifted by one token.
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

    fn truncate(&mut self, longest: usize) {
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

    fn update_checksums(&self, inputs: &mut Checksum, targets: &mut Checksum) {
        inputs.add(&self.input);
        targets.add(&self.target);
    }
}
