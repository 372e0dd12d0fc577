//! A class for each sequence: an encoder, one vector of all its places, and a head.
//!
//! ```text
//! x      = encoder(embedding(tokens) + positions)
//! pooled = what became of a vector put first | mean(x) | Σ α_j x_j
//! logits = head(pooled)
//! ```
//!
//! Devlin et al., [BERT](https://arxiv.org/abs/1810.04805), 2018, for the vector put first;
//! Yang et al., [Hierarchical Attention Networks](https://aclanthology.org/N16-1174), 2016,
//! for the weights `α`.
//!
//! A sequence without tokens has a vector of zeros, or what becomes of the one put first: its
//! class is what the model says of nothing.
//!
//! Parameters, by their names in weight files:
//!
//! | name | |
//! |---|---|
//! | `embedding.weight` | `[vocabulary, d_model]` |
//! | `positions.table` | `[longest, d_model]`, where they are learned |
//! | `cls` | `[1, d_model]`, with `pooling: cls` |
//! | `layers.N.…` | see [`blocks`](crate::blocks) |
//! | `norm.{gamma,beta}` | with `final_norm` |
//! | `pooling.projection.{weight,bias}`, `pooling.context` | with `pooling: attention` |
//! | `head.{weight,bias}` | `[d_model, classes]` |

mod config;
mod look;

use burn::module::{DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::{Dropout, Embedding, LayerNorm, Linear};
use burn::tensor::{Tensor, TensorData};
use zoo_attention::NoEntropy;
use zoo_kernels::{dropout, layer_norm};
use zoo_spec::ClassifierSpec;

pub use self::config::ClassifierConfig;
pub use self::look::ClassifierLook;
use crate::blocks::{AddedPositions, EncoderLayer, Entropies, Sight};
use crate::{ContextAttention, Limits, Summary, Tokens};

/// A model that says what class a sequence is of. Made by a [`ClassifierConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Classifier {
    /// What tokens are.
    pub embedding: Embedding,
    /// Where they are.
    pub positions: AddedPositions,
    /// What is put before them, if anything is.
    pub cls: Option<Param<Tensor<2>>>,
    /// Numbers of embedded tokens that are forgotten while training.
    pub dropout: Dropout,
    /// The layers, in the order they are gone through.
    pub layers: Vec<EncoderLayer>,
    /// After the last, if there is one.
    pub norm: Option<LayerNorm>,
    /// What weighs places, if they are weighed.
    pub pooling: Option<ContextAttention>,
    /// What predicts classes.
    pub head: Linear,
    #[module(skip)]
    config: ClassifierConfig,
}

impl ModuleDisplay for Classifier {
    fn format(&self, _: DisplaySettings) -> String {
        self.summary().to_string()
    }
}

impl Classifier {
    /// What it was made by.
    pub fn config(&self) -> &ClassifierConfig {
        &self.config
    }

    /// What each class has for it.
    ///
    /// # Shapes
    ///
    /// - tokens: `[batch, seq]`
    /// - result: `[batch, classes]`, logits
    ///
    /// # Panics
    ///
    /// If there are more places than were learned.
    pub fn forward(&self, tokens: &Tokens) -> Tensor<2> {
        self.forward_noting(tokens, None)
    }

    /// The logits, and the mean entropy of the attention weights: see
    /// [`Gpt::forward_with_entropy`](crate::Gpt::forward_with_entropy).
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] for a mechanism whose weights do not sum to one.
    pub fn forward_with_entropy(
        &self,
        tokens: &Tokens,
    ) -> Result<(Tensor<2>, Tensor<1>), NoEntropy> {
        let entropies = Entropies::default();
        let logits = self.forward_noting(tokens, Some(&entropies));
        Ok((logits, entropies.mean()?))
    }

    fn forward_noting(&self, tokens: &Tokens, entropies: Option<&Entropies>) -> Tensor<2> {
        let (mut places, lengths) = self.embedded(tokens);
        let sight = Sight {
            lengths: &lengths,
            is_causal: false,
            entropies,
        };
        for layer in &self.layers {
            places = layer.forward(places, sight);
        }
        self.head.forward(self.pooled(self.normed(places), tokens))
    }

    /// What it takes.
    pub fn limits(&self) -> Limits {
        Limits {
            vocabulary: self.config.vocabulary,
            longest: self.config.spec.positions.longest(),
        }
    }

    /// How many numbers it has learned.
    pub fn parameters(&self) -> usize {
        self.summary().parameters()
    }

    /// Floating-point operations of the matmuls of one forward pass over `batch` sequences of
    /// `seq` tokens.
    ///
    /// # Panics
    ///
    /// If there are no tokens.
    pub fn flops(&self, batch: usize, seq: usize) -> f64 {
        let (d_model, classes) = (self.config.spec.d_model, self.config.classes);
        let places = seq + usize::from(self.cls.is_some());
        let layers = self.layers.iter().map(|layer| layer.flops(places, false));
        let pooling = match &self.pooling {
            Some(pooling) => pooling.flops(seq),
            None => 0.0,
        };
        let head = 2.0 * (d_model * classes) as f64;
        batch as f64 * (layers.sum::<f64>() + pooling + head)
    }

    /// What it is made of.
    pub fn summary(&self) -> Summary {
        let ClassifierConfig {
            vocabulary,
            classes,
            spec,
        } = &self.config;
        let ClassifierSpec {
            d_model,
            layers,
            positions,
            pooling,
            ..
        } = spec;
        let mechanism = spec.attention.mechanism();
        let own = self.layers.iter().map(EncoderLayer::parameters);
        let of_pooling = self.pooling.num_params() + self.cls.num_params();
        Summary::new(format!("classifier of {layers} layers, {mechanism}"))
            .with(
                "embedding",
                format!("{vocabulary} x {d_model}"),
                self.embedding.num_params(),
            )
            .with("positions", positions.word(), self.positions.num_params())
            .with(
                "layers",
                self.config.plan().sizes(*layers, mechanism.word()),
                own.sum::<usize>() + self.norm.num_params(),
            )
            .with("pooling", pooling.word(), of_pooling)
            .with(
                "head",
                format!("{d_model} x {classes}"),
                self.head.num_params(),
            )
    }

    /// Tokens with their places, and what is put before them; and how many there are.
    fn embedded(&self, tokens: &Tokens) -> (Tensor<3>, Vec<usize>) {
        let places = self.embedding.forward(tokens.ids()); // [batch, seq, d_model]
        let places = match self.config.spec.scale_embeddings {
            true => places.mul_scalar((self.config.spec.d_model as f64).sqrt()),
            false => places,
        };
        let places = self.positions.forward(places, 0);
        let (places, lengths) = self.with_cls(places, tokens.lengths());
        (dropout(&self.dropout, places), lengths)
    }

    /// After the last layer.
    fn normed(&self, places: Tensor<3>) -> Tensor<3> {
        match &self.norm {
            Some(norm) => layer_norm(norm, self.config.spec.epsilon, places),
            None => places,
        }
    }

    /// The places, one more before them where it is what is taken in the end; and how many
    /// there are.
    fn with_cls(&self, places: Tensor<3>, lengths: &[usize]) -> (Tensor<3>, Vec<usize>) {
        let Some(cls) = &self.cls else {
            return (places, lengths.to_vec());
        };
        let [batch, _, d_model] = places.dims();
        let cls = cls.val().reshape([1, 1, d_model]);
        let cls = cls.expand([batch, 1, d_model]);
        let cls = match self.config.spec.scale_embeddings {
            true => cls.mul_scalar((d_model as f64).sqrt()),
            false => cls,
        };
        let lengths = lengths.iter().map(|length| length + 1).collect();
        (Tensor::cat(vec![cls, places], 1), lengths)
    }

    /// A sequence as one vector: `[batch, d_model]`.
    fn pooled(&self, places: Tensor<3>, tokens: &Tokens) -> Tensor<2> {
        let [batch, _, d_model] = places.dims();
        if self.cls.is_some() {
            return places.slice_dim(1, 0..1).reshape([batch, d_model]);
        }
        if let Some(pooling) = &self.pooling {
            return pooling.forward(places, tokens.pattern()).vector;
        }
        let [_, seq] = tokens.dims();
        let shares = tokens.lengths().iter().flat_map(|length| {
            let share = 1.0 / (*length).max(1) as f32;
            (0..seq).map(move |place| if place < *length { share } else { 0.0 })
        });
        let shares = TensorData::new(shares.collect::<Vec<f32>>(), [batch, 1, seq]);
        let shares = Tensor::<3>::from_data(shares, (&places.device(), places.dtype()));
        shares.matmul(places).reshape([batch, d_model]) // [batch, 1, d_model] before
    }
}
