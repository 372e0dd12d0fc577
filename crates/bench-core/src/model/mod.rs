//! The models that are measured, by their words.

mod setup;

use std::fmt;
use std::str::FromStr;

use zoo_spec::{Mechanism, UnknownWord};

pub use self::setup::{Setup, WrongLength};
use crate::case::Pass;
use crate::words::words;

words! {
    /// A model.
    pub enum Model: "model" {
        /// The hierarchical attention network for documents.
        Han = "han",
        /// The encoder and decoder of "Attention Is All You Need".
        Transformer = "transformer",
        /// Recurrent encoder and decoder with attention between them.
        Seq2Seq = "seq2seq",
        /// The decoder alone.
        Gpt = "gpt",
        /// The encoder alone, with a class for each text.
        Classifier = "classifier",
    }
}

words! {
    /// How large a model is: what comes behind its name.
    pub enum Size: "size" {
        /// As small as it can be: for tests of the measuring itself.
        Tiny = "tiny",
        /// A few million parameters, a step in tenths of a second on two cores: the quick
        /// extent's.
        Small = "small",
        /// As in a config that is shipped, with a batch of it: what a step of training takes.
        Config = "config",
        /// As in its paper, or as near as a step of a few seconds on two cores comes: the full
        /// extent's.
        Base = "base",
    }
}

impl Model {
    /// What is measured of it unless somebody asks for something else.
    pub fn usual_passes(self) -> &'static [Pass] {
        match self {
            Self::Han | Self::Classifier => &[Pass::Train, Pass::Forward],
            Self::Transformer | Self::Seq2Seq | Self::Gpt => &[Pass::Train, Pass::Generate],
        }
    }

    /// The attention in it unless somebody asks for another.
    pub fn usual_attention(self) -> Mechanism {
        match self {
            Self::Han | Self::Seq2Seq => Mechanism::Additive,
            Self::Transformer | Self::Gpt | Self::Classifier => Mechanism::Flash,
        }
    }

    /// Whether PyTorch's is the same computation with that attention, so that its work and
    /// parameters are the same.
    pub fn is_same_in_pytorch(self, attention: Mechanism) -> bool {
        match self {
            Self::Han | Self::Seq2Seq => attention == Mechanism::Additive,
            Self::Transformer | Self::Gpt | Self::Classifier => {
                matches!(attention, Mechanism::Standard | Mechanism::Flash)
            }
        }
    }
}

/// A model's name, with a size or without: `gpt`, `gpt-base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelName {
    /// Which model.
    pub model: Model,
    /// How large; none is the extent's.
    pub size: Option<Size>,
}

impl FromStr for ModelName {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let sizes = || Size::ALL.map(Some).into_iter().chain([None]);
        let all = || {
            let of = |model| sizes().map(move |size| Self { model, size });
            Model::ALL.into_iter().flat_map(of)
        };
        all().find(|name| name.to_string() == word).ok_or_else(|| {
            // The shorter ones first: a slip is then answered by what it most likely meant.
            let mut known: Vec<String> = all().map(|name| name.to_string()).collect();
            known.sort_by_key(|name| name.contains('-'));
            UnknownWord::new("model", word, known)
        })
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            Some(size) => write!(f, "{}-{}", self.model, size),
            None => write!(f, "{}", self.model),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_a_slip_gets_the_nearest() {
        for model in Model::ALL {
            for size in Size::ALL {
                let name: ModelName = Setup::new(model, size).name().parse().expect("a name");
                assert_eq!((name.model, name.size), (model, Some(size)));
            }
            let name: ModelName = model.word().parse().expect("a name");
            assert_eq!((name.model, name.size), (model, None));
        }
        for (wrong, right) in [
            ("gtp", "gpt"),
            ("transfromer", "transformer"),
            ("gpt-bsae", "gpt-base"),
            ("seq2sqe", "seq2seq"),
        ] {
            let error = wrong.parse::<ModelName>().unwrap_err();
            assert_eq!(error.nearest(), Some(right));
        }
    }
}
