//! Tokenizers of source and target texts.

use std::path::Path;

use super::{Tokenizer, TokenizerConfig};
use crate::{DataError, Pair};

const JOINT: &str = "tokenizer.json";
const SOURCE: &str = "tokenizer.source.json";
const TARGET: &str = "tokenizer.target.json";

/// Tokenizers of the two sides of a pair.
#[derive(Debug, Clone)]
pub enum PairTokenizers {
    /// One tokenizer with a shared vocabulary.
    Joint(Tokenizer),
    /// One tokenizer for each side.
    Separate {
        /// Source tokenizer.
        source: Tokenizer,
        /// Target tokenizer.
        target: Tokenizer,
    },
}

impl PairTokenizers {
    /// Trains one tokenizer on both sides.
    pub fn train_joint(config: &TokenizerConfig, pairs: &[Pair]) -> Result<Self, DataError> {
        let sources = pairs.iter().map(|pair| pair.source.as_str());
        let targets = pairs.iter().map(|pair| pair.target.as_str());
        Ok(Self::Joint(config.train(sources.chain(targets))?))
    }

    /// Trains one tokenizer on each side.
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

    /// Source tokenizer.
    pub fn source(&self) -> &Tokenizer {
        match self {
            Self::Joint(both) => both,
            Self::Separate { source, .. } => source,
        }
    }

    /// Target tokenizer.
    pub fn target(&self) -> &Tokenizer {
        match self {
            Self::Joint(both) => both,
            Self::Separate { target, .. } => target,
        }
    }

    /// File names and tokenizers: `tokenizer.json`, or `tokenizer.source.json` and
    /// `tokenizer.target.json`.
    pub fn files(&self) -> Vec<(&'static str, &Tokenizer)> {
        match self {
            Self::Joint(both) => vec![(JOINT, both)],
            Self::Separate { source, target } => vec![(SOURCE, source), (TARGET, target)],
        }
    }

    /// Loads the [`files`](Self::files) of a folder.
    pub fn load(folder: &Path) -> Result<Self, DataError> {
        let [source, target] = [SOURCE, TARGET].map(|name| folder.join(name));
        if !source.exists() && !target.exists() {
            return Ok(Self::Joint(Tokenizer::load(&folder.join(JOINT))?));
        }
        Ok(Self::Separate {
            source: Tokenizer::load(&source)?,
            target: Tokenizer::load(&target)?,
        })
    }
}
