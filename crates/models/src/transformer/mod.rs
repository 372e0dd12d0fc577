//! An encoder of one sequence and a decoder of another.
//!
//! ```text
//! encoder   x_(l+1) = norm(x' + feed_forward(x')),  x' = norm(x_l + attention(x_l))
//! decoder   the same, causally, and between both  x'' = norm(x' + attention to the encoded(x'))
//! logits    head(x_M)
//! ```
//!
//! with `norm: post`; with `pre`, each norm is on what goes in. Vaswani et al., [Attention Is
//! All You Need](https://arxiv.org/abs/1706.03762), 2017.
//!
//! Parameters, by their names in weight files:
//!
//! | name | |
//! |---|---|
//! | `source_embedding.weight` | `[source_vocabulary, d_model]`; with `tying: all`, the target's |
//! | `source_positions.table` | `[longest, d_model]`, where they are learned |
//! | `target_embedding.weight` | `[target_vocabulary, d_model]` |
//! | `target_positions.table` | `[longest, d_model]`, where they are learned |
//! | `encoder.layers.N.…`, `decoder.layers.N.…` | see [`blocks`](crate::blocks) |
//! | `encoder.norm.{gamma,beta}`, `decoder.norm.{gamma,beta}` | with `final_norm` |
//! | `head.{weight,bias}` | `[d_model, target_vocabulary]`, with `tying: none` |

mod config;
mod generate;
mod look;

use burn::module::{DisplaySettings, Module, ModuleDisplay};
use burn::nn::{Dropout, Embedding, LayerNorm, Linear};
use burn::tensor::{Int, Tensor};
use zoo_attention::NoEntropy;
use zoo_attention::Pattern;
use zoo_kernels::{dropout, layer_norm};

pub use self::config::TransformerConfig;
pub use self::generate::TransformerState;
pub use self::look::TransformerLook;
use crate::blocks::{AddedPositions, DecoderLayer, EncoderLayer, Entropies, Sight, logits};
use crate::tokens::shown;
use crate::{Limits, Summary, Tokens};

/// A model that makes one sequence of another. Made by a [`TransformerConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Transformer {
    /// What tokens of the source are; none where the target's say it.
    pub source_embedding: Option<Embedding>,
    /// Where they are.
    pub source_positions: AddedPositions,
    /// What tokens of the target are.
    pub target_embedding: Embedding,
    /// Where they are.
    pub target_positions: AddedPositions,
    /// Numbers of embedded tokens that are forgotten while training.
    pub dropout: Dropout,
    /// The source's half.
    pub encoder: Encoder,
    /// The target's half.
    pub decoder: Decoder,
    /// What predicts tokens; none where the target's embedding does.
    pub head: Option<Linear>,
    #[module(skip)]
    config: TransformerConfig,
}

/// The source's half.
#[derive(Module, Debug)]
pub struct Encoder {
    /// The layers, in the order they are gone through.
    pub layers: Vec<EncoderLayer>,
    /// After the last, if there is one.
    pub norm: Option<LayerNorm>,
}

/// The target's half.
#[derive(Module, Debug)]
pub struct Decoder {
    /// The layers, in the order they are gone through.
    pub layers: Vec<DecoderLayer>,
    /// After the last, if there is one.
    pub norm: Option<LayerNorm>,
}

/// A source that was read.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// `[batch, seq, d_model]`
    pub places: Tensor<3>,
    /// How long each row is; what is behind has no meaning.
    pub lengths: Vec<usize>,
}

impl Encoded {
    /// Hides what is padding from everybody.
    pub fn pattern(&self) -> Pattern {
        let [_, seq, _] = self.places.dims();
        shown(&self.lengths, seq)
    }
}

impl ModuleDisplay for Transformer {
    fn format(&self, _: DisplaySettings) -> String {
        self.summary().to_string()
    }
}

impl Transformer {
    /// What it was made by.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// What follows each token of the target, given those before it and the source: to learn
    /// from, with all tokens known. What is said behind the end of a row has no meaning.
    ///
    /// # Shapes
    ///
    /// - source: `[batch, seq_k]`
    /// - target: `[batch, seq_q]`
    /// - result: `[batch, seq_q, target_vocabulary]`, logits
    ///
    /// # Panics
    ///
    /// If the batches differ, or there are more places than were learned.
    pub fn forward(&self, source: &Tokens, target: &Tokens) -> Tensor<3> {
        self.decode(target, &self.encode(source))
    }

    /// [`forward`](Self::forward), and the mean entropy of the weights of all attentions, `[1]`, to
    /// be added to a loss.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] for a mechanism whose weights do not sum to one.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn forward_with_entropy(
        &self,
        source: &Tokens,
        target: &Tokens,
    ) -> Result<(Tensor<3>, Tensor<1>), NoEntropy> {
        let entropies = Entropies::default();
        let encoded = self.encode_noting(source, Some(&entropies));
        let logits = self.decode_noting(target, &encoded, Some(&entropies));
        Ok((logits, entropies.mean()?))
    }

    /// Reads a source.
    ///
    /// # Shapes
    ///
    /// - source: `[batch, seq]`
    ///
    /// # Panics
    ///
    /// If there are more places than were learned.
    pub fn encode(&self, source: &Tokens) -> Encoded {
        self.encode_noting(source, None)
    }

    fn encode_noting(&self, source: &Tokens, entropies: Option<&Entropies>) -> Encoded {
        let sight = Sight {
            lengths: source.lengths(),
            is_causal: false,
            entropies,
        };
        let layers = self.encoder.layers.iter();
        let places = layers.fold(self.embedded_source(source), |places, layer| {
            layer.forward(places, sight)
        });
        Encoded {
            places: self.normed(places, &self.encoder.norm),
            lengths: source.lengths().to_vec(),
        }
    }

    /// What follows each token of the target, given a source that was read.
    ///
    /// # Shapes
    ///
    /// - target: `[batch, seq]`
    /// - result: `[batch, seq, target_vocabulary]`, logits
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn decode(&self, target: &Tokens, source: &Encoded) -> Tensor<3> {
        self.decode_noting(target, source, None)
    }

    fn decode_noting(
        &self,
        target: &Tokens,
        source: &Encoded,
        entropies: Option<&Entropies>,
    ) -> Tensor<3> {
        let [batch, ..] = source.places.dims();
        assert!(
            target.dims()[0] == batch,
            "Transformer: a target must be [batch = {batch}, seq] as the source is, got {:?}",
            target.dims()
        );
        let sight = Sight {
            lengths: target.lengths(),
            is_causal: true,
            entropies,
        };
        let vectors = &self.target_embedding;
        let mut places = self.embedded(vectors, &self.target_positions, target.ids(), 0);
        for layer in &self.decoder.layers {
            places = layer.forward(places, sight, &source.places, source.pattern());
        }
        self.predicted(places)
    }

    /// What it takes as a source.
    pub fn source_limits(&self) -> Limits {
        Limits {
            vocabulary: self.config.source_vocabulary,
            longest: self.config.spec.positions.longest(),
        }
    }

    /// What it takes as a target.
    pub fn target_limits(&self) -> Limits {
        Limits {
            vocabulary: self.config.target_vocabulary,
            longest: self.config.spec.positions.longest(),
        }
    }

    /// How many numbers it has learned, those that are shared once.
    pub fn parameters(&self) -> usize {
        self.summary().parameters()
    }

    /// Floating-point operations of the matmuls of one forward pass over `batch` pairs of
    /// `source` and `target` tokens.
    ///
    /// # Panics
    ///
    /// If there are no tokens.
    pub fn flops(&self, batch: usize, source: usize, target: usize) -> f64 {
        let encoder = self.encoder.layers.iter();
        let encoder: f64 = encoder.map(|layer| layer.flops(source, false)).sum();
        let decoder = self.decoder.layers.iter();
        let decoder: f64 = decoder.map(|layer| layer.flops(target, source)).sum();
        let head = target * self.config.spec.d_model * self.config.target_vocabulary;
        batch as f64 * (encoder + decoder + 2.0 * head as f64)
    }

    /// What it is made of.
    pub fn summary(&self) -> Summary {
        let config = &self.config;
        let spec = &config.spec;
        let d_model = spec.d_model;
        let [encoder_layers, decoder_layers] = spec.encoder_and_decoder_layers();
        let plan = config.plan();
        let table = |vocabulary: usize| format!("{vocabulary} x {d_model}");
        let word = |mechanism: &zoo_attention::MechanismConfig| mechanism.mechanism().word();
        let of_source = match &self.source_embedding {
            Some(_) => table(config.source_vocabulary),
            None => "the target's".to_owned(),
        };
        let head = match &self.head {
            Some(_) => format!("{d_model} x {}", config.target_vocabulary),
            None => "the target embedding's".to_owned(),
        };
        let positions = config.spec.positions.word();
        let encoder = self.encoder.layers.iter().map(EncoderLayer::parameters);
        let decoder = self.decoder.layers.iter().map(DecoderLayer::parameters);
        let across = format!(
            "{}, across {}",
            word(&spec.decoder_attention),
            word(&spec.cross_attention)
        );
        Summary::new(format!(
            "Transformer of {} + {} layers",
            encoder_layers, decoder_layers
        ))
        .with(
            "source embedding",
            of_source,
            self.source_embedding.num_params(),
        )
        .with(
            "source positions",
            positions,
            self.source_positions.num_params(),
        )
        .with(
            "encoder",
            plan.sizes(encoder_layers, word(&spec.encoder_attention)),
            encoder.sum::<usize>() + self.encoder.norm.num_params(),
        )
        .with(
            "target embedding",
            table(config.target_vocabulary),
            self.target_embedding.num_params(),
        )
        .with(
            "target positions",
            positions,
            self.target_positions.num_params(),
        )
        .with(
            "decoder",
            plan.sizes(decoder_layers, &across),
            decoder.sum::<usize>() + self.decoder.norm.num_params(),
        )
        .with("head", head, self.head.num_params())
    }

    /// Tokens of a source with their places: `[batch, seq, d_model]`.
    fn embedded_source(&self, source: &Tokens) -> Tensor<3> {
        let vectors = match &self.source_embedding {
            Some(own) => own,
            None => &self.target_embedding,
        };
        self.embedded(vectors, &self.source_positions, source.ids(), 0)
    }

    /// Tokens with their places, the first of them at `first`: `[batch, seq, d_model]`.
    fn embedded(
        &self,
        vectors: &Embedding,
        positions: &AddedPositions,
        tokens: Tensor<2, Int>,
        first: usize,
    ) -> Tensor<3> {
        let tokens = vectors.forward(tokens);
        let tokens = match self.config.spec.scale_embeddings {
            true => tokens.mul_scalar((self.config.spec.d_model as f64).sqrt()),
            false => tokens,
        };
        dropout(&self.dropout, positions.forward(tokens, first))
    }

    /// What the places of the last layer say, `[batch, seq, target_vocabulary]`.
    fn predicted(&self, places: Tensor<3>) -> Tensor<3> {
        let places = self.normed(places, &self.decoder.norm);
        logits(places, self.head.as_ref(), &self.target_embedding)
    }

    fn normed(&self, places: Tensor<3>, norm: &Option<LayerNorm>) -> Tensor<3> {
        match norm {
            Some(norm) => layer_norm(norm, self.config.spec.epsilon, places),
            None => places,
        }
    }
}
