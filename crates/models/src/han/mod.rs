//! Hierarchical attention network: word attention pools words into sentences, sentence attention
//! pools sentences into a document.
//!
//! ```text
//! sentence = Σ α_t h_t    α = softmax(v · tanh(W h_t + b))    h = bidirectional GRU over words
//! document = Σ β_i g_i    β = softmax(u · tanh(V g_i + c))    g = bidirectional GRU over sentences
//! class    = softmax(A · document + a)
//! ```
//!
//! Yang et al., [Hierarchical Attention Networks for Document
//! Classification](https://aclanthology.org/N16-1174), 2016.

mod documents;

use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use zoo_kernels::recurrent::{Direction, Recurrent, RecurrentConfig};
use zoo_kernels::{Activation, dropout, linear};
use zoo_spec::keys::check_keys;
use zoo_spec::{Cell, HanSpec};

pub use self::documents::Documents;
use crate::blocks::normal;
use crate::{ContextAttention, Limits, ModelError, Summary};

/// Configuration of a [`Han`]. The default sizes are the paper's.
///
/// ```
/// # use zoo_models::HanConfig;
/// // 10,000 words, 5 classes.
/// let config = HanConfig::new(10_000, 5).with_dropout(0.1);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HanConfig {
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Number of classes.
    pub classes: usize,
    /// Keys of a config file.
    #[serde(flatten)]
    pub spec: HanSpec,
}

zoo_spec::han_keys!(setters HanConfig);

impl HanConfig {
    /// Creates a config with defaults for everything else.
    pub fn new(vocabulary: usize, classes: usize) -> Self {
        Self {
            vocabulary,
            classes,
            spec: HanSpec::default(),
        }
    }

    fn build(&self, device: &Device) -> Han {
        let spec = &self.spec;
        let encoder = |d_input: usize, d_hidden: usize| {
            RecurrentConfig::new(d_input, d_hidden)
                .with_cell(spec.cell)
                .with_direction(Direction::Both)
                .init(device)
        };
        let attention = |d_model| ContextAttention::new(d_model, spec.d_attention, device);
        Han {
            embedding: EmbeddingConfig::new(self.vocabulary, spec.d_embedding)
                .with_initializer(normal(0.1))
                .init(device),
            word_encoder: encoder(spec.d_embedding, spec.d_word),
            word_attention: attention(2 * spec.d_word),
            sentence_encoder: encoder(2 * spec.d_word, spec.d_sentence),
            sentence_attention: attention(2 * spec.d_sentence),
            classifier: LinearConfig::new(2 * spec.d_sentence, self.classes).init(device),
            dropout: DropoutConfig::new(spec.dropout).init(),
            config: self.clone(),
        }
    }

    /// Checks the config without creating the model. An error names the field and allowed values.
    pub fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("vocabulary", 1, self.vocabulary)?;
        ModelError::at_least("classes", 1, self.classes)?;
        Ok(check_keys(&self.spec, HanSpec::KEYS)?)
    }
}

/// Document classifier with word and sentence attention. Created by a [`HanConfig`].
///
/// Padding does not change the output. A sentence without words is a zero vector at its position
/// in the document. A document without sentences is a zero vector, so its logits are the
/// classifier's bias. The attention weights of both are zero.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Han {
    /// Word embedding.
    pub embedding: Embedding,
    /// Bidirectional recurrent encoder over the words of a sentence.
    pub word_encoder: Recurrent,
    /// Word attention.
    pub word_attention: ContextAttention,
    /// Bidirectional recurrent encoder over the sentences of a document.
    pub sentence_encoder: Recurrent,
    /// Sentence attention.
    pub sentence_attention: ContextAttention,
    /// Classification head.
    pub classifier: Linear,
    /// Dropout of the embeddings and the pooled vectors.
    pub dropout: Dropout,
    #[module(skip)]
    config: HanConfig,
}

model!(Han, HanConfig, "HAN");

/// Output of a [`Han`].
#[derive(Debug, Clone)]
pub struct HanOutput {
    /// `[documents, classes]`.
    pub logits: Tensor<2>,
    /// Attention weights of the words, `[documents, sentences, words]`. They sum to 1 in each
    /// sentence; those of padding and of sentences without words are zero.
    pub word_weights: Tensor<3>,
    /// Attention weights of the sentences, `[documents, sentences]`, likewise.
    pub sentence_weights: Tensor<2>,
}

impl Han {
    /// Classifies documents.
    ///
    /// # Panics
    ///
    /// Backends may panic if the documents were validated for a larger vocabulary.
    pub fn forward(&self, documents: &Documents) -> HanOutput {
        let sentences = documents.sentences();
        let words = zoo_kernels::embedding(&self.embedding, sentences.ids(), 1.0); // [rows, words, d_embedding]
        let words = dropout(&self.dropout, words);
        let lengths = Some(sentences.lengths());
        let (words, _) = self.word_encoder.forward(words, lengths, None); // [rows, words, 2 * d_word]
        let pooled = self.word_attention.forward(words, sentences.pattern());
        let word_weights = documents.scatter(pooled.weights);

        let sentences = documents.scatter(dropout(&self.dropout, pooled.vector));
        let counts = Some(documents.counts());
        let (sentences, _) = self.sentence_encoder.forward(sentences, counts, None);
        let pooled = self
            .sentence_attention
            .forward(sentences, documents.pattern());
        let document = dropout(&self.dropout, pooled.vector); // [documents, 2 * d_sentence]
        HanOutput {
            logits: linear(&self.classifier, Activation::Identity, document),
            word_weights,
            sentence_weights: pooled.weights,
        }
    }

    /// Limits of the input.
    pub fn limits(&self) -> Limits {
        let [vocabulary, _] = self.embedding.weight.dims();
        Limits::new(vocabulary, None)
    }

    /// Summary of the model.
    pub fn summary(&self) -> Summary {
        let [vocabulary, d_embedding] = self.embedding.weight.dims();
        let [_, classes] = self.classifier.weight.dims();
        let encoder = |encoder: &Recurrent| {
            let (input, output) = (encoder.d_input(), encoder.d_output());
            let sizes = format!("{input} -> {output}, bidirectional {}", encoder.cell());
            (sizes, encoder.num_params())
        };
        let attention = |attention: &ContextAttention| {
            let [d_model, d_attention] = attention.projection.weight.dims();
            let sizes = format!("{d_model}, d_attention {d_attention}");
            (sizes, attention.num_params())
        };
        let table = format!("{vocabulary} x {d_embedding}");
        let classifier = format!("{} -> {classes}", self.sentence_encoder.d_output());
        let parts = [
            ("embedding", (table, self.embedding.num_params())),
            ("word encoder", encoder(&self.word_encoder)),
            ("word attention", attention(&self.word_attention)),
            ("sentence encoder", encoder(&self.sentence_encoder)),
            ("sentence attention", attention(&self.sentence_attention)),
            ("classifier", (classifier, self.classifier.num_params())),
        ];
        let summary = Summary::new(format!("HAN: {vocabulary} words, {classes} classes"));
        (parts.into_iter()).fold(summary, |summary, (name, (sizes, parameters))| {
            summary.with(name, sizes, parameters)
        })
    }

    /// Floating-point operations of the matmuls of one forward pass over `documents` of `sentences`
    /// of `words` each.
    pub fn flops(&self, documents: usize, sentences: usize, words: usize) -> f64 {
        let all_sentences = documents * sentences;
        let all_words = all_sentences * words;
        let [d_sentence, classes] = self.classifier.weight.dims();
        self.word_encoder.flops(all_words)
            + self.word_attention.flops(all_words)
            + self.sentence_encoder.flops(all_sentences)
            + self.sentence_attention.flops(all_sentences)
            + 2.0 * (documents * d_sentence * classes) as f64
    }
}
