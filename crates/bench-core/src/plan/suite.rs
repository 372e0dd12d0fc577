//! Groups of cases by their words.

use super::Extent;
use crate::model::Model;

zoo_spec::words! {
    /// A group of problems that answer one question.
    pub enum Suite: "suite" = Attention {
        /// A whole layer, every query at once: how training and prompts run.
        Attention = "attention",
        /// One query against everything before it: how text is generated.
        Decode = "decode",
        Models = "models",
        All = "all",
    }
}

impl Suite {
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

    pub(super) fn models(self) -> &'static [Model] {
        match self {
            Self::Attention | Self::Decode => &[],
            Self::Models | Self::All => &Model::ALL,
        }
    }
}
