//! Tokenizers of what is given and of what is wanted: one for both, or one each.

use std::path::Path;

use super::{Tokenizer, TokenizerConfig};
use crate::{DataError, Pair};

const JOINT: &str = "tokenizer.json";
const SOURCE: &str = "tokenizer.source.json";
const TARGET: &str = "tokenizer.target.json";

/// What makes tokens of both sides of a pair.
#[derive(Debug, Clone)]
pub enum PairTokenizers {
    /// One for both: a token is the same on either side.
    Joint(Tokenizer),
    /// One each.
    Separate {
        /// Of what is given.
        source: Tokenizer,
        /// Of what is wanted.
        target: Tokenizer,
    },
}

impl PairTokenizers {
    /// Learns one for both sides.
    pub fn train_joint(config: &TokenizerConfig, pairs: &[Pair]) -> Result<Self, DataError> {
        let sources = pairs.iter().map(|pair| pair.source.as_str());
        let targets = pairs.iter().map(|pair| pair.target.as_str());
        Ok(Self::Joint(config.train(sources.chain(targets))?))
    }

    /// Learns one for each side.
    pub fn train_separate(
        source: &TokenizerConfig,
        target: &TokenizerConfig,
        pairs: &[Pair],
    ) -> Result<Self, DataError> {
        Ok(Self::Separate {
            source: source.train(pairs.iter().map(|pair| pair.source.as_str()))?,
            target: target.train(pairs.iter().map(|pair| pair.target.as_str()))?,
        })
    }

    /// That of what is given.
    pub fn source(&self) -> &Tokenizer {
        match self {
            Self::Joint(both) => both,
            Self::Separate { source, .. } => source,
        }
    }

    /// That of what is wanted.
    pub fn target(&self) -> &Tokenizer {
        match self {
            Self::Joint(both) => both,
            Self::Separate { target, .. } => target,
        }
    }

    /// The files of a folder with them, by their names: `tokenizer.json`, or
    /// `tokenizer.source.json` and `tokenizer.target.json`.
    pub fn files(&self) -> Vec<(&'static str, &Tokenizer)> {
        match self {
            Self::Joint(both) => vec![(JOINT, both)],
            Self::Separate { source, target } => vec![(SOURCE, source), (TARGET, target)],
        }
    }

    /// Reads a folder with those [`files`](Self::files).
    pub fn load(folder: &Path) -> Result<Self, DataError> {
        let [source, target] = [SOURCE, TARGET].map(|name| folder.join(name));
        match source.exists() || target.exists() {
            true => Ok(Self::Separate {
                source: Tokenizer::load(&source)?,
                target: Tokenizer::load(&target)?,
            }),
            false => Ok(Self::Joint(Tokenizer::load(&folder.join(JOINT))?)),
        }
    }
}
