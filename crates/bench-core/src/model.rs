//! The models that are measured, by their words, and their sizes.
//!
//! Sizes are plain numbers here, so that a run can be planned, and PyTorch told what to build,
//! without a tensor library. `zoo-bench` makes the model of them.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use zoo_spec::{Difference, Mechanism, MechanismConfig, UnknownWord, words};

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

/// A model at one size, on one batch of sequences without padding.
///
/// A size that a model does not have is 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    pub model: Model,
    pub size: Size,
    /// Sequences in a batch.
    pub batch: usize,
    /// Positions of a sequence: words of a document, or of the source and of the target.
    pub n: usize,
    pub vocabulary: usize,
    /// The width of an embedding, and of attention layers.
    pub d_model: usize,
    /// The hidden width of a recurrent layer, in either direction, or of a feed-forward layer.
    pub d_hidden: usize,
    /// The width that positions of a document are compared by.
    #[serde(default)]
    pub d_attention: usize,
    /// Sentences of a document, whose words `n` counts together; 1 of other sequences.
    #[serde(default = "one")]
    pub sentences: usize,
    #[serde(default)]
    pub heads: usize,
    /// Attention layers; of an encoder and a decoder, as many each.
    #[serde(default)]
    pub layers: usize,
    #[serde(default)]
    pub classes: usize,
}

fn one() -> usize {
    1
}

/// Every model at every size.
static SETUPS: LazyLock<Vec<Setup>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        setups: Vec<Setup>,
    }
    let file = toml::from_str(include_str!("model/models.toml"));
    file.map_or_else(
        |error| panic!("models.toml: {error}"),
        |file: File| file.setups,
    )
});

impl Setup {
    pub fn all() -> &'static [Self] {
        &SETUPS
    }

    pub fn new(model: Model, size: Size) -> Self {
        let mut setups = SETUPS.iter();
        let found = setups.find(|setup| setup.model == model && setup.size == size);
        found
            .expect("models.toml has every model at every size")
            .clone()
    }

    /// The same on sequences of another length.
    pub fn at_length(self, n: usize) -> Result<Self> {
        let step = match self.model {
            // Half of a text is written by the model that reads the other half.
            Model::Gpt => 2,
            _ => self.sentences,
        };
        ensure!(
            n > 0 && n.is_multiple_of(step),
            "model {} cannot be measured at n = {n}: its sequences have a multiple of {step} \
             positions\n  do: choose another --seq",
            self.name()
        );
        Ok(Self { n, ..self })
    }

    /// What it is called: `gpt-small`.
    pub fn name(&self) -> String {
        let (model, size) = (self.model, Some(self.size));
        ModelName { model, size }.to_string()
    }

    /// Tokens it reads before it generates: half of a text, or all of a source.
    pub fn prompt(&self) -> usize {
        match self.model {
            Model::Gpt => self.n / 2,
            _ => self.n,
        }
    }

    /// Tokens it generates for each sequence.
    pub fn generated(&self) -> usize {
        match self.model {
            Model::Gpt => self.n - self.prompt(),
            _ => self.n,
        }
    }

    /// Tokens of a pass: those that go in, or, generating, those that come out.
    pub fn tokens(&self, pass: Pass) -> usize {
        let sequences = match (self.model, pass) {
            (_, Pass::Generate) => return self.batch * self.generated(),
            (Model::Transformer | Model::Seq2Seq, _) => 2,
            _ => 1,
        };
        sequences * self.batch * self.n
    }

    /// Why it cannot be measured with this attention in this pass, if it cannot.
    pub fn refuses(&self, attention: Mechanism, pass: Pass) -> Option<String> {
        let others = self.model.attentions();
        if !others.contains(&attention) {
            let words: Vec<&str> = others.iter().map(|other| other.word()).collect();
            return Some(format!("its attention is {}", words.join(" or ")));
        }
        let capabilities = MechanismConfig::from(attention).capabilities();
        let in_layers = self.layers > 0;
        let generates = self.model.usual_passes().contains(&Pass::Generate);
        // An encoder's positions attend to all of a text, a decoder's to those before.
        let reason = match (pass, capabilities.bidirectional, capabilities.decoding) {
            (_, Err(reason), _) if in_layers && self.model != Model::Gpt => reason,
            (Pass::Decode, ..) => "decode is for attention alone",
            (Pass::Generate, ..) if !generates => "it generates nothing",
            (Pass::Generate, _, Err(reason)) if in_layers => reason,
            _ => return None,
        };
        Some(reason.to_owned())
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

    #[test]
    fn tokens_go_in_or_come_out() {
        let gpt = Setup::new(Model::Gpt, Size::Small);
        assert_eq!(gpt.tokens(Pass::Train), 4 * 64);
        assert_eq!(gpt.tokens(Pass::Generate), 4 * 32);
        let transformer = Setup::new(Model::Transformer, Size::Small);
        assert_eq!(transformer.tokens(Pass::Train), 8 * (32 + 32));
        assert_eq!(transformer.tokens(Pass::Generate), 8 * 32);
    }
}
