//! A model at a named size.
//!
//! Sizes are plain numbers here, so that a run can be planned, and PyTorch told what to build,
//! without a tensor library. `zoo-bench` makes the model of them.

use std::sync::LazyLock;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use zoo_spec::{Mechanism, MechanismConfig};

use super::{Model, ModelName, Size};
use crate::case::Pass;

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
    let file = toml::from_str(include_str!("models.toml"));
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
    fn tokens_go_in_or_come_out() {
        let gpt = Setup::new(Model::Gpt, Size::Small);
        assert_eq!(gpt.tokens(Pass::Train), 4 * 64);
        assert_eq!(gpt.tokens(Pass::Generate), 4 * 32);
        let transformer = Setup::new(Model::Transformer, Size::Small);
        assert_eq!(transformer.tokens(Pass::Train), 8 * (32 + 32));
        assert_eq!(transformer.tokens(Pass::Generate), 8 * 32);
    }
}
