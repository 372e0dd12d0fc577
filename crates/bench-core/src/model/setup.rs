//! A model at a named size.
//!
//! Sizes are plain numbers here, so that a run can be planned, and PyTorch told what to build,
//! without a tensor library. `zoo-bench` makes the model of them.

use serde::Serialize;
use zoo_oracle::find;
use zoo_spec::{Mechanism, MechanismConfig};

use super::{Model, ModelName, Size};
use crate::case::{Case, Pass};

/// A model at one size, on one batch of sequences without padding.
///
/// A size that a model does not have is 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setup {
    /// Which model.
    pub model: Model,
    /// How large.
    pub size: Size,
    /// Sequences in a batch.
    pub batch: usize,
    /// Places of a sequence: words of a document, or of the source and of the target.
    pub n: usize,
    /// Tokens there are.
    pub vocabulary: usize,
    /// Numbers of a token, and in attention layers of a place.
    pub d_model: usize,
    /// Numbers that a recurrent layer keeps, in either direction, or between the two matrices of
    /// a feed-forward layer.
    pub d_hidden: usize,
    /// Numbers that places of a document are compared by.
    pub d_attention: usize,
    /// Sentences of a document, whose words `n` counts together; 1 of other sequences.
    pub sentences: usize,
    /// Attention heads.
    pub heads: usize,
    /// Attention layers; of an encoder and a decoder, as many each.
    pub layers: usize,
    /// Classes.
    pub classes: usize,
}

/// A length that a model's sequences cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "model {name} cannot be measured at n = {n}: its sequences have a multiple of {step} places\n  \
     do: choose another --seq"
)]
pub struct WrongLength {
    /// The model.
    pub name: String,
    /// The length.
    pub n: usize,
    /// What a length is a multiple of.
    pub step: usize,
}

impl Setup {
    /// A model at a size.
    pub fn new(model: Model, size: Size) -> Self {
        let documents = |d_model, d_hidden, d_attention, sentences, classes| {
            [d_model, d_hidden, d_attention, sentences, 0, 0, classes]
        };
        let recurrent = |d_model, d_hidden| [d_model, d_hidden, 0, 1, 0, 0, 0];
        let layers = |d_model, heads, d_hidden, layers, classes| {
            [d_model, d_hidden, 0, 1, heads, layers, classes]
        };
        // Batch, places and tokens; then the sizes of recurrent layers over words and sentences,
        // of a recurrent encoder and decoder, or of a stack of attention layers.
        let (batch, sizes) = match (model, size) {
            (Model::Han, Size::Tiny) => ([2, 8, 50], documents(8, 4, 8, 2, 3)),
            // The paper's: words of 200 numbers, 50 of them kept either way.
            (Model::Han, Size::Small) => ([16, 128, 8000], documents(200, 50, 100, 8, 5)),
            // han-reviews: 32 documents of about 30 sentences of 24 words.
            (Model::Han, Size::Config) => ([32, 720, 12_000], documents(200, 50, 100, 30, 2)),
            (Model::Han, Size::Base) => ([64, 512, 30_000], documents(200, 50, 100, 16, 5)),

            (Model::Seq2Seq, Size::Tiny) => ([2, 8, 50], recurrent(8, 8)),
            (Model::Seq2Seq, Size::Small) => ([16, 24, 8000], recurrent(128, 256)),
            // seq2seq-dates.
            (Model::Seq2Seq, Size::Config) => ([64, 16, 64], recurrent(64, 128)),
            (Model::Seq2Seq, Size::Base) => ([32, 32, 16_000], recurrent(512, 512)),

            (Model::Transformer, Size::Tiny) => ([2, 8, 50], layers(16, 2, 32, 1, 0)),
            (Model::Transformer, Size::Small) => ([8, 32, 8000], layers(256, 4, 1024, 2, 0)),
            // transformer-multi30k: 4,096 tokens on either side, with the padding.
            (Model::Transformer, Size::Config) => ([204, 20, 10_000], layers(128, 4, 256, 4, 0)),
            // The paper's base model.
            (Model::Transformer, Size::Base) => ([8, 64, 32_000], layers(512, 8, 2048, 6, 0)),

            (Model::Gpt, Size::Tiny) => ([2, 8, 50], layers(16, 2, 32, 1, 0)),
            (Model::Gpt, Size::Small) => ([4, 64, 8000], layers(256, 4, 1024, 4, 0)),
            // gpt-shakespeare-cpu.
            (Model::Gpt, Size::Config) => ([12, 64, 69], layers(128, 4, 512, 4, 0)),
            // GPT-2's smallest.
            (Model::Gpt, Size::Base) => ([1, 256, 50_257], layers(768, 12, 3072, 12, 0)),

            (Model::Classifier, Size::Tiny) => ([2, 8, 50], layers(16, 2, 32, 1, 3)),
            (Model::Classifier, Size::Small) => ([4, 256, 8000], layers(256, 4, 1024, 2, 5)),
            // classifier-listops.
            (Model::Classifier, Size::Config) => ([64, 16, 24], layers(64, 4, 256, 3, 10)),
            (Model::Classifier, Size::Base) => ([2, 2048, 30_000], layers(256, 4, 1024, 4, 5)),
        };
        let [batch, n, vocabulary] = batch;
        let [
            d_model,
            d_hidden,
            d_attention,
            sentences,
            heads,
            layers,
            classes,
        ] = sizes;
        Self {
            model,
            size,
            batch,
            n,
            vocabulary,
            d_model,
            d_hidden,
            d_attention,
            sentences,
            heads,
            layers,
            classes,
        }
    }

    /// The same on sequences of another length.
    ///
    /// # Errors
    ///
    /// [`WrongLength`] if it cannot have that.
    pub fn at_length(self, n: usize) -> Result<Self, WrongLength> {
        let step = match self.model {
            // Half of a text is written by the model that reads the other half.
            Model::Gpt => 2,
            _ => self.sentences,
        };
        if n > 0 && n.is_multiple_of(step) {
            return Ok(Self { n, ..self });
        }
        Err(WrongLength {
            name: self.name(),
            n,
            step,
        })
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
        let model = self.model;
        let others: &[Mechanism] = match model {
            Model::Han => &[Mechanism::Additive],
            Model::Seq2Seq => &[
                Mechanism::Additive,
                Mechanism::Dot,
                Mechanism::Multiplicative,
                Mechanism::LocalM,
                Mechanism::LocalP,
            ],
            Model::Transformer | Model::Gpt | Model::Classifier => &Mechanism::ALL,
        };
        if !others.contains(&attention) {
            let words: Vec<&str> = others.iter().map(|other| other.word()).collect();
            return Some(format!("its attention is {}", words.join(" or ")));
        }
        let in_layers = self.layers > 0;
        // An encoder sees all places of a text, a decoder those that came before.
        let layer = match model {
            Model::Gpt => "layer-causal",
            _ => "layer",
        };
        let config = MechanismConfig::from(attention);
        if in_layers && !takes(layer, self.n, attention) {
            return Some("it has a layer that this attention cannot be".to_owned());
        }
        match pass {
            Pass::Train | Pass::Forward => None,
            Pass::Decode => Some("decode is for attention alone".to_owned()),
            Pass::Generate if !model.usual_passes().contains(&pass) => {
                Some("it generates nothing".to_owned())
            }
            Pass::Generate if in_layers && config.capabilities().decoding.is_err() => {
                Some("this attention cannot go place by place".to_owned())
            }
            Pass::Generate => None,
        }
    }
}

/// Whether a mechanism can be the attention of a layer over `n` places.
fn takes(layer: &str, n: usize, attention: Mechanism) -> bool {
    let problem = find(layer).and_then(|problem| problem.at_length(n));
    problem.is_some_and(|problem| Case::attention(attention, problem, Pass::Forward).is_possible())
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

    #[test]
    fn a_model_says_which_attention_it_cannot_have() {
        let refuses = |model, attention, pass| {
            let setup = Setup::new(model, Size::Small);
            setup.refuses(attention, pass).unwrap_or_default()
        };
        let (flash, lsh) = (Mechanism::Flash, Mechanism::Lsh);
        assert_eq!(refuses(Model::Gpt, flash, Pass::Generate), "");
        assert_eq!(refuses(Model::Gpt, lsh, Pass::Train), "");
        assert!(refuses(Model::Gpt, lsh, Pass::Generate).contains("place by place"));
        assert!(refuses(Model::Han, flash, Pass::Train).contains("is additive"));
        assert!(refuses(Model::Seq2Seq, flash, Pass::Train).contains("dot or multiplicative"));
        let retention = Mechanism::Retention;
        assert_eq!(refuses(Model::Gpt, retention, Pass::Generate), "");
        assert!(refuses(Model::Classifier, retention, Pass::Train).contains("cannot be"));
        assert!(refuses(Model::Classifier, flash, Pass::Generate).contains("nothing"));
    }

    #[test]
    fn a_document_is_as_long_as_its_sentences() {
        let han = Setup::new(Model::Han, Size::Small);
        assert_eq!(han.clone().at_length(64).map(|han| han.n), Ok(64));
        let error = han.at_length(65).unwrap_err().to_string();
        assert!(
            error.contains("han-small cannot") && error.contains("of 8 places"),
            "{error}"
        );
        assert!(Setup::new(Model::Gpt, Size::Small).at_length(1).is_err());
    }
}
