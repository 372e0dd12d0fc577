//! Benchmark models and their sizes, as plain data for planning and for PyTorch. `zoo-bench` builds
//! the models.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use zoo_spec::{Difference, Mechanism, MechanismConfig, UnknownName, names};

use crate::case::Pass;

names! {
    pub enum Model: "model" {
        /// Hierarchical attention network for document classification.
        Han = "han",
        /// Encoder-decoder of "Attention Is All You Need".
        Transformer = "transformer",
        /// Recurrent encoder-decoder with attention.
        Seq2Seq = "seq2seq",
        Gpt = "gpt",
        Classifier = "classifier",
    }
}

names! {
    /// Size suffix of a model name; the sizes are defined in `models.toml`.
    pub enum Size: "size" {
        Tiny = "tiny",
        /// Default of a quick run.
        Small = "small",
        /// As in the config file in `configs/`.
        Config = "config",
        /// Default of a full run.
        Base = "base",
    }
}

impl Model {
    pub fn default_passes(self) -> &'static [Pass] {
        match self {
            Self::Han | Self::Classifier => &[Pass::Train, Pass::Forward],
            Self::Transformer | Self::Seq2Seq | Self::Gpt => &[Pass::Train, Pass::Generate],
        }
    }

    pub fn supported_attention(self) -> &'static [Mechanism] {
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

    pub fn default_attention(self) -> Mechanism {
        match self {
            Self::Han | Self::Seq2Seq => Mechanism::Additive,
            Self::Transformer | Self::Gpt | Self::Classifier => Mechanism::Flash,
        }
    }

    /// Whether the PyTorch model computes the same function as ours with this attention, so that
    /// FLOPs and parameters are equal: the default attention, or another exact implementation.
    pub fn is_equivalent_in_pytorch(self, attention: Mechanism) -> bool {
        let is_exact = |mechanism| Difference::from(mechanism) == Difference::None;
        let default = self.default_attention();
        attention == default || is_exact(attention) && is_exact(default)
    }
}

/// Model name with optional size: `gpt`, `gpt-base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelName {
    pub model: Model,
    /// `None` is the default of the extent.
    pub size: Option<Size>,
}

impl FromStr for ModelName {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let sizes = || Size::ALL.map(Some).into_iter().chain([None]);
        let all = || {
            let names = |model| sizes().map(move |size| Self { model, size });
            Model::ALL.into_iter().flat_map(names)
        };
        all().find(|name| name.to_string() == text).ok_or_else(|| {
            // Names without a size first, so that they are suggested for a misspelt name.
            let mut known: Vec<String> = all().map(|name| name.to_string()).collect();
            known.sort_by_key(|name| name.contains('-'));
            UnknownName::new("model", text, known)
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

/// Hyperparameters of a model and its unpadded batch. Sizes that a model does not have are 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    pub model: Model,
    pub size: Size,
    pub batch: usize,
    /// Sequence length: words of a document, or tokens of the source and of the target.
    pub n: usize,
    pub vocabulary: usize,
    pub d_model: usize,
    /// Hidden size of the feed-forward network, or of the recurrent layer per direction.
    pub d_hidden: usize,
    /// Attention dimension of a HAN.
    #[serde(default)]
    pub d_attention: usize,
    /// Sentences per document; 1 for other models.
    #[serde(default = "one")]
    pub sentences: usize,
    #[serde(default)]
    pub heads: usize,
    /// Transformer layers, in the encoder and in the decoder each.
    #[serde(default)]
    pub layers: usize,
    #[serde(default)]
    pub classes: usize,
}

fn one() -> usize {
    1
}

static SETUPS: LazyLock<Vec<Setup>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        setups: Vec<Setup>,
    }
    let file: Result<File, _> = toml::from_str(include_str!("model/models.toml"));
    file.expect("models.toml is valid").setups
});

impl Setup {
    pub fn all() -> &'static [Self] {
        &SETUPS
    }

    pub fn new(model: Model, size: Size) -> Self {
        let is_found = |setup: &&Self| setup.model == model && setup.size == size;
        let found = SETUPS.iter().find(is_found).cloned();
        found.expect("models.toml has every model at every size")
    }

    pub fn at_length(self, n: usize) -> Result<Self> {
        let step = match self.model {
            // The prompt is half of the sequence, the other half is generated.
            Model::Gpt => 2,
            _ => self.sentences,
        };
        ensure!(
            n > 0 && n.is_multiple_of(step),
            "model {} cannot be measured at sequence length {n}: it must be a multiple of {step}\n  \
             help: choose another --seq",
            self.name()
        );
        Ok(Self { n, ..self })
    }

    pub fn name(&self) -> String {
        let (model, size) = (self.model, Some(self.size));
        ModelName { model, size }.to_string()
    }

    /// Prompt length in tokens: half of the sequence, or the whole source.
    pub fn prompt_len(&self) -> usize {
        match self.model {
            Model::Gpt => self.n / 2,
            _ => self.n,
        }
    }

    pub fn generated_len(&self) -> usize {
        match self.model {
            Model::Gpt => self.n - self.prompt_len(),
            _ => self.n,
        }
    }

    /// Tokens per pass: input tokens, or generated tokens in [`Pass::Generate`].
    pub fn tokens(&self, pass: Pass) -> usize {
        let sequences = match (self.model, pass) {
            (_, Pass::Generate) => return self.batch * self.generated_len(),
            (Model::Transformer | Model::Seq2Seq, _) => 2,
            _ => 1,
        };
        sequences * self.batch * self.n
    }

    /// Why this attention or pass is not supported, if it is not.
    pub fn unsupported_reason(&self, attention: Mechanism, pass: Pass) -> Option<String> {
        let supported = self.model.supported_attention();
        if !supported.contains(&attention) {
            let names: Vec<&str> = supported.iter().map(|mechanism| mechanism.name()).collect();
            let names = names.join(", ");
            return Some(format!("the model supports only {names} attention"));
        }
        let capabilities = MechanismConfig::from(attention).capabilities();
        let in_layers = self.layers > 0;
        // In decoders.
        let is_causal = matches!(self.model, Model::Gpt | Model::Transformer);
        if let (true, Err(reason)) = (in_layers && is_causal, capabilities.causal) {
            return Some(reason.to_owned());
        }
        let generates = self.model.default_passes().contains(&Pass::Generate);
        // Encoders need bidirectional attention; a GPT is causal.
        let reason = match (pass, capabilities.bidirectional, capabilities.decoding) {
            (_, Err(reason), _) if in_layers && self.model != Model::Gpt => reason,
            (Pass::Decode, ..) => "decode is for attention mechanisms only",
            (Pass::Generate, ..) if !generates => "the model does not generate text",
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
    fn names_round_trip() {
        for model in Model::ALL {
            for size in Size::ALL {
                let name: ModelName = Setup::new(model, size).name().parse().expect("a name");
                assert_eq!((name.model, name.size), (model, Some(size)));
            }
            let name: ModelName = model.name().parse().expect("a name");
            assert_eq!((name.model, name.size), (model, None));
        }
    }

    #[test]
    fn tokens_are_inputs_or_generated() {
        let gpt = Setup::new(Model::Gpt, Size::Small);
        assert_eq!(gpt.tokens(Pass::Train), 4 * 64);
        assert_eq!(gpt.tokens(Pass::Generate), 4 * 32);
        let transformer = Setup::new(Model::Transformer, Size::Small);
        assert_eq!(transformer.tokens(Pass::Train), 8 * (32 + 32));
        assert_eq!(transformer.tokens(Pass::Generate), 8 * 32);
    }
}
