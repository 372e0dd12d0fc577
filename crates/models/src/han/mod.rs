//! Hierarchical attention network: words make sentences, sentences make a document, and at
//! either level a learned vector asks what matters.
//!
//! ```text
//! sentence = Σ α_t h_t    α = softmax(v · tanh(W h_t + b))    h = GRU both ways over words
//! document = Σ β_i g_i    β = softmax(u · tanh(V g_i + c))    g = GRU both ways over sentences
//! class    = softmax(A · document + a)
//! ```
//!
//! Yang et al., [Hierarchical Attention Networks for Document
//! Classification](https://aclanthology.org/N16-1174), 2016.

mod documents;

use burn::module::Module;
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, Linear, LinearConfig,
};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use zoo_kernels::dropout;
use zoo_kernels::recurrent::{Direction, Recurrent, RecurrentConfig};
use zoo_spec::keys::check_keys;
use zoo_spec::{Cell, HanSpec};

pub use self::documents::Documents;
use crate::{ContextAttention, ContextAttentionConfig, Limits, ModelError, Summary};

/// Configuration of a [`Han`]; `init` makes one. The default sizes are the paper's.
///
/// ```
/// # use zoo_models::HanConfig;
/// // 10,000 words, 5 classes.
/// let config = HanConfig::new(10_000, 5).with_dropout(0.1);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HanConfig {
    /// Words of the vocabulary.
    pub vocabulary: usize,
    /// Classes.
    pub classes: usize,
    /// Sizes and choices, as in a config file.
    #[serde(flatten)]
    pub spec: HanSpec,
}

zoo_spec::han_keys!(setters HanConfig);

impl HanConfig {
    /// A hierarchical attention network for so many words and classes.
    pub fn new(vocabulary: usize, classes: usize) -> Self {
        Self {
            vocabulary,
            classes,
            spec: HanSpec::default(),
        }
    }

    /// Makes the model, for sizes that come from a file.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn try_init(&self, device: &Device) -> Result<Han, ModelError> {
        self.check()?;
        let spec = &self.spec;
        let encoder = |d_input: usize, d_hidden: usize| {
            RecurrentConfig::new(d_input, d_hidden)
                .with_cell(spec.cell)
                .with_direction(Direction::Both)
                .init(device)
        };
        let attention = |d_model| ContextAttentionConfig::new(d_model, spec.d_attention);
        Ok(Han {
            embedding: EmbeddingConfig::new(self.vocabulary, spec.d_embedding)
                .with_initializer(Initializer::Normal {
                    mean: 0.0,
                    std: 0.1,
                })
                .init(device),
            word_encoder: encoder(spec.d_embedding, spec.d_word),
            word_attention: attention(2 * spec.d_word).init(device),
            sentence_encoder: encoder(2 * spec.d_word, spec.d_sentence),
            sentence_attention: attention(2 * spec.d_sentence).init(device),
            classifier: LinearConfig::new(2 * spec.d_sentence, self.classes).init(device),
            dropout: DropoutConfig::new(spec.dropout).init(),
            config: self.clone(),
        })
    }

    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("vocabulary", 1, self.vocabulary)?;
        ModelError::at_least("classes", 1, self.classes)?;
        Ok(check_keys(&self.spec, HanSpec::KEYS)?)
    }
}

/// A classifier of documents that shows which words and sentences it went by. Made by a
/// [`HanConfig`].
///
/// Padding changes nothing. A sentence without words is a vector of zeros, which has its
/// place in the document; its words have no weights. A document without sentences is a
/// vector of zeros, so that its logits are the classifier's bias; its weights are zero.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Han {
    /// A vector for each word.
    pub embedding: Embedding,
    /// Goes over the words of a sentence, both ways.
    pub word_encoder: Recurrent,
    /// Which words matter in a sentence.
    pub word_attention: ContextAttention,
    /// Goes over the sentences of a document, both ways.
    pub sentence_encoder: Recurrent,
    /// Which sentences matter in a document.
    pub sentence_attention: ContextAttention,
    /// From a document to its class.
    pub classifier: Linear,
    /// How much is forgotten, and whether the model is training.
    pub dropout: Dropout,
    #[module(skip)]
    config: HanConfig,
}

model!(Han, HanConfig, "HAN");

/// What a [`Han`] says about documents.
#[derive(Debug, Clone)]
pub struct Judged {
    /// `[documents, classes]`.
    pub logits: Tensor<2>,
    /// `[documents, sentences, words]`: how much of a sentence is whose. Each sentence's sum
    /// to 1, or are all zero where it has no words or is padding.
    pub word_weights: Tensor<3>,
    /// `[documents, sentences]`: how much of a document is whose, likewise.
    pub sentence_weights: Tensor<2>,
}

impl Han {
    /// Judges documents.
    ///
    /// # Panics
    ///
    /// If the documents were checked for a larger vocabulary, backends may.
    pub fn forward(&self, documents: &Documents) -> Judged {
        let sentences = documents.sentences();
        let words = self.embedding.forward(sentences.ids()); // [rows, words, d_embedding]
        let words = dropout(&self.dropout, words);
        let lengths = Some(sentences.lengths());
        let (words, _) = self.word_encoder.forward(words, lengths, None); // [rows, words, 2 * d_word]
        let pooled = self.word_attention.forward(words, sentences.pattern());
        let word_weights = documents.placed(pooled.weights);

        let sentences = documents.placed(dropout(&self.dropout, pooled.vector));
        let counts = Some(documents.counts());
        let (sentences, _) = self.sentence_encoder.forward(sentences, counts, None);
        let pooled = self
            .sentence_attention
            .forward(sentences, documents.pattern());
        let document = dropout(&self.dropout, pooled.vector); // [documents, 2 * d_sentence]
        Judged {
            logits: self.classifier.forward(document),
            word_weights,
            sentence_weights: pooled.weights,
        }
    }

    /// What the model takes.
    pub fn limits(&self) -> Limits {
        let [vocabulary, _] = self.embedding.weight.dims();
        Limits {
            vocabulary,
            longest: None,
        }
    }

    /// What it is made of.
    pub fn summary(&self) -> Summary {
        let [vocabulary, d_embedding] = self.embedding.weight.dims();
        let [_, classes] = self.classifier.weight.dims();
        let encoder = |encoder: &Recurrent| {
            let (input, output) = (encoder.d_input(), encoder.d_output());
            let sizes = format!("{input} -> {output}, {} both ways", encoder.cell());
            (sizes, encoder.num_params())
        };
        let attention = |attention: &ContextAttention| {
            let [d_model, d_attention] = attention.projection.weight.dims();
            let sizes = format!("{d_model}, compared by {d_attention}");
            (sizes, attention.num_params())
        };
        let table = format!("{vocabulary} x {d_embedding}");
        let last = format!("{} -> {classes}", self.sentence_encoder.d_output());
        let parts = [
            ("embedding", (table, self.embedding.num_params())),
            ("word encoder", encoder(&self.word_encoder)),
            ("word attention", attention(&self.word_attention)),
            ("sentence encoder", encoder(&self.sentence_encoder)),
            ("sentence attention", attention(&self.sentence_attention)),
            ("classifier", (last, self.classifier.num_params())),
        ];
        let summary = Summary::new(format!("HAN: {vocabulary} words, {classes} classes"));
        (parts.into_iter()).fold(summary, |summary, (name, (sizes, parameters))| {
            summary.with(name, sizes, parameters)
        })
    }

    /// What the matmuls of one forward pass cost, for so many documents, of so many
    /// sentences each, of so many words each.
    pub fn flops(&self, documents: usize, sentences: usize, words: usize) -> f64 {
        let [rows, places] = [documents * sentences, documents * sentences * words];
        let [d_sentence, classes] = self.classifier.weight.dims();
        self.word_encoder.flops(places)
            + self.word_attention.flops(places)
            + self.sentence_encoder.flops(rows)
            + self.sentence_attention.flops(rows)
            + 2.0 * (documents * d_sentence * classes) as f64
    }
}
