//! The models that are measured, by their words.

mod setup;

use std::fmt;
use std::str::FromStr;

use zoo_spec::{Difference, Mechanism, UnknownWord, words};

pub use self::setup::Setup;
use crate::case::Pass;

words! {
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
    /// How large a model is: what comes behind its name. `models.toml` has the sizes.
    pub enum Size: "size" {
        /// As small as it can be.
        Tiny = "tiny",
        /// The quick extent's.
        Small = "small",
        /// As in a config that is shipped.
        Config = "config",
        /// The full extent's.
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

    /// The attentions that it can have.
    pub fn attentions(self) -> &'static [Mechanism] {
        match self {
            Self::Han => &[Mechanism::Additive],
            Self::Seq2Seq => &[
                Mechanism::Additive,
                Mechanism::Dot,
                Mechanism::Multiplicative,
                Mechanism::LocalM,
                Mechanism::LocalP,
            ],
            Self::Transformer | Self::Gpt | Self::Classifier => &Mechanism::ALL,
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
    /// parameters are the same: the usual one, or what computes the same in another way.
    pub fn is_same_in_pytorch(self, attention: Mechanism) -> bool {
        let is_full = |mechanism| Difference::of(mechanism) == Difference::None;
        let usual = self.usual_attention();
        attention == usual || is_full(attention) && is_full(usual)
    }
}

/// A model's name, with a size or without: `gpt`, `gpt-base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelName {
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
    fn names_read_back() {
        for model in Model::ALL {
            for size in Size::ALL {
                let name: ModelName = Setup::new(model, size).name().parse().expect("a name");
                assert_eq!((name.model, name.size), (model, Some(size)));
            }
            let name: ModelName = model.word().parse().expect("a name");
            assert_eq!((name.model, name.size), (model, None));
        }
    }
}
