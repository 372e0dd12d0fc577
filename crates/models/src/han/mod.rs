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

mod config;
mod documents;

use burn::module::{DisplaySettings, Module, ModuleDisplay};
use burn::nn::{Dropout, Embedding, Linear};
use burn::tensor::Tensor;
use zoo_kernels::dropout;
use zoo_kernels::recurrent::Recurrent;

pub use self::config::HanConfig;
pub use self::documents::Documents;
use crate::{ContextAttention, Limits, Summary};

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

impl ModuleDisplay for Han {
    fn format(&self, _: DisplaySettings) -> String {
        self.summary().to_string()
    }
}

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
    /// What it was made by.
    pub fn config(&self) -> &HanConfig {
        &self.config
    }

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
            format!(
                "{} -> {}, {} both ways",
                encoder.d_input(),
                encoder.d_output(),
                encoder.cell()
            )
        };
        let attention = |attention: &ContextAttention| {
            let [d_model, d_attention] = attention.projection.weight.dims();
            format!("{d_model}, compared by {d_attention}")
        };
        Summary::new(format!("HAN: {vocabulary} words, {classes} classes"))
            .with(
                "embedding",
                format!("{vocabulary} x {d_embedding}"),
                self.embedding.num_params(),
            )
            .with(
                "word encoder",
                encoder(&self.word_encoder),
                self.word_encoder.num_params(),
            )
            .with(
                "word attention",
                attention(&self.word_attention),
                self.word_attention.num_params(),
            )
            .with(
                "sentence encoder",
                encoder(&self.sentence_encoder),
                self.sentence_encoder.num_params(),
            )
            .with(
                "sentence attention",
                attention(&self.sentence_attention),
                self.sentence_attention.num_params(),
            )
            .with(
                "classifier",
                format!("{} -> {classes}", self.sentence_encoder.d_output()),
                self.classifier.num_params(),
            )
    }

    /// Numbers it has learned.
    pub fn parameters(&self) -> usize {
        self.summary().parameters()
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
