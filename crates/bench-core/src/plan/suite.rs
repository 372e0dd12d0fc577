//! Groups of cases by their words.

use std::fmt;
use std::str::FromStr;

use zoo_spec::UnknownWord;

use super::Extent;
use crate::model::Model;

/// A group of problems that answer one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Suite {
    /// A whole layer, every query at once: how training and prompts run.
    #[default]
    Attention,
    /// One query against everything before it: how text is generated.
    Decode,
    /// Whole models.
    Models,
    /// Every one of them.
    All,
}

impl Suite {
    /// Every suite, in the order they are shown.
    pub const EACH: [Self; 4] = [Self::Attention, Self::Decode, Self::Models, Self::All];

    /// The word people write.
    pub fn word(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Decode => "decode",
            Self::Models => "models",
            Self::All => "all",
        }
    }

    /// What it measures, in a few words.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Attention => {
                "a causal layer over n positions; with --full also one that sees everything"
            }
            Self::Decode => "one place more after n - 1 that are kept: the time of a token",
            Self::Models => "whole models: a step of training, and generation or a forward pass",
            Self::All => "every suite",
        }
    }

    /// Its problems.
    pub(super) fn problems(self, extent: Extent) -> Vec<&'static str> {
        match (self, extent) {
            // What every mechanism takes.
            (Self::Attention, Extent::Quick) => vec!["layer-causal"],
            (Self::Attention, Extent::Full) => vec!["layer", "layer-causal"],
            (Self::Decode, _) => vec!["decode-step"],
            (Self::Models, _) => vec![],
            (Self::All, _) => [Self::Attention, Self::Decode]
                .into_iter()
                .flat_map(|suite| suite.problems(extent))
                .collect(),
        }
    }

    /// Its models.
    pub(super) fn models(self) -> &'static [Model] {
        match self {
            Self::Attention | Self::Decode => &[],
            Self::Models | Self::All => &Model::ALL,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Suite {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::EACH
            .into_iter()
            .find(|suite| suite.word() == word)
            .ok_or_else(|| UnknownWord::new("suite", word, Self::EACH.map(Self::word)))
    }
}
