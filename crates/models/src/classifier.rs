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

use burn::module::{Module, Param};
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, LayerNorm, Linear,
};
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use zoo_attention::{MechanismConfig, NoEntropy};
use zoo_kernels::dropout;
use zoo_spec::keys::check_keys;
use zoo_spec::{ClassifierSpec, Norm, Pooling};

use crate::blocks::{
    AddedPositions, EncoderLayer, LayerPlan, Notes, Role, Sight, embedded, linear, normed,
    scaled_embeddings,
};
use crate::{ContextAttention, ContextAttentionConfig, Limits, ModelError, Summary, Tokens};

/// Configuration of a [`Classifier`].
///
/// ```
/// # use zoo_attention::Mechanism;
/// # use zoo_models::{ClassifierConfig, Pooling};
/// // Four layers of width 256 and 4 heads, for documents of 5 classes.
/// let config = ClassifierConfig::new(10_000, 5, 256, 4, 4)
///     .with_attention(Mechanism::Longformer.into())
///     .with_pooling(Pooling::Attention);
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassifierConfig {
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Classes.
    pub classes: usize,
    /// Sizes and choices, as in a config file.
    #[serde(flatten)]
    pub spec: ClassifierSpec,
}

zoo_spec::classifier_keys!(setters ClassifierConfig);

impl ClassifierConfig {
    /// A classifier for a vocabulary of this size.
    pub fn new(
        vocabulary: usize,
        classes: usize,
        d_model: usize,
        heads: usize,
        layers: usize,
    ) -> Self {
        let spec = ClassifierSpec {
            d_model,
            heads,
            layers,
            ..ClassifierSpec::default()
        };
        Self {
            vocabulary,
            classes,
            spec,
        }
    }

    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("vocabulary", 1, self.vocabulary)?;
        ModelError::at_least("classes", 1, self.classes)?;
        check_keys(&self.spec, ClassifierSpec::KEYS)?;
        self.plan()
            .check("attention", &self.spec.attention, Role::Bidirectional)
    }

    /// Makes the model, for sizes that come from a file.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn try_init(&self, device: &Device) -> Result<Classifier, ModelError> {
        self.check()?;
        let (plan, spec) = (self.plan(), &self.spec);
        let d_model = spec.d_model;
        let vectors = Initializer::Normal {
            mean: 0.0,
            std: 1.0 / (d_model as f64).sqrt(),
        };
        let layer = |_| plan.encoder_layer(&spec.attention, device);
        let is_asked_for = |pooling: Pooling| spec.pooling == pooling;
        Ok(Classifier {
            embedding: EmbeddingConfig::new(self.vocabulary, d_model)
                .with_initializer(vectors.clone())
                .init(device),
            positions: AddedPositions::new(spec.positions, d_model, &vectors, device),
            cls: is_asked_for(Pooling::Cls).then(|| vectors.init([1, d_model], device)),
            dropout: DropoutConfig::new(spec.dropout).init(),
            layers: (0..spec.layers).map(layer).collect(),
            norm: spec.final_norm.then(|| plan.layer_norm(device)),
            pooling: is_asked_for(Pooling::Attention)
                .then(|| ContextAttentionConfig::new(d_model, d_model).init(device)),
            head: linear([d_model, self.classes], true, &plan.initializer, device),
            config: self.clone(),
        })
    }

    fn plan(&self) -> LayerPlan {
        LayerPlan::new((&self.spec).into(), self.spec.norm)
    }
}

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

/// Where a [`Classifier`] looks, and what it says.
#[derive(Debug, Clone)]
pub struct ClassifierLook {
    /// `[batch, heads, places, places]` for each layer; with `pooling: cls` there is one place
    /// more, before the others.
    pub layers: Vec<Tensor<4>>,
    /// `[batch, seq]`: how much of each place is in the vector that is classified, where that is
    /// learned.
    pub pooling: Option<Tensor<2>>,
    /// `[batch, classes]`.
    pub logits: Tensor<2>,
}

model!(Classifier, ClassifierConfig, "classifier");

impl Classifier {
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
        self.predicted(self.places(tokens, &Notes::Nothing), tokens)
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
        Notes::mean_entropy(|notes| self.predicted(self.places(tokens, notes), tokens))
    }

    /// Where each token looks: the weights of every layer, whatever the mechanism, as
    /// [`explain`](zoo_attention::explain()) has them; and what
    /// [`forward`](Self::forward) says.
    ///
    /// # Shapes
    ///
    /// - tokens: `[batch, seq]`
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward); if rows differ in length, or are empty.
    pub fn look(&self, tokens: &Tokens) -> ClassifierLook {
        tokens.assert_whole("classifier");
        let (places, layers) = Notes::weights(|notes| self.places(tokens, notes));
        let pooling = self.pooling.as_ref();
        ClassifierLook {
            layers,
            pooling: pooling.map(|pooling| {
                let pooled = pooling.forward(places.clone(), tokens.pattern());
                pooled.weights
            }),
            logits: self.predicted(places, tokens),
        }
    }

    /// After the last layer, `[batch, seq, d_model]`, with one place more before them where it is
    /// what is taken in the end.
    fn places(&self, tokens: &Tokens, notes: &Notes) -> Tensor<3> {
        let spec = &self.config.spec;
        let scaled = spec.scale_embeddings;
        let places = embedded(&self.embedding, scaled, &self.positions, tokens.ids(), 0);
        let (places, lengths) = self.with_cls(places, tokens.lengths());
        let sight = Sight {
            lengths: &lengths,
            is_causal: false,
            notes,
        };
        let layers = self.layers.iter();
        let places = layers.fold(dropout(&self.dropout, places), |places, layer| {
            layer.forward(places, sight)
        });
        normed(self.norm.as_ref(), spec.epsilon, places)
    }

    fn predicted(&self, places: Tensor<3>, tokens: &Tokens) -> Tensor<2> {
        self.head.forward(self.pooled(places, tokens))
    }

    /// What it takes.
    pub fn limits(&self) -> Limits {
        Limits {
            vocabulary: self.config.vocabulary,
            longest: self.config.spec.positions.longest(),
        }
    }

    /// Floating-point operations of the matmuls of one forward pass over `batch` sequences of
    /// `seq` tokens, including pooling and the classification head.
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
        let (d_model, mechanism) = (spec.d_model, spec.attention.mechanism());
        let table = format!("{vocabulary} x {d_model}");
        let positions = spec.positions.word();
        let layers = self.config.plan().sizes(spec.layers, mechanism.word());
        let own = self.layers.iter().map(EncoderLayer::parameters);
        let of_layers = own.sum::<usize>() + self.norm.num_params();
        let of_pooling = self.pooling.num_params() + self.cls.num_params();
        let head = format!("{d_model} x {classes}");
        Summary::new(format!("classifier of {} layers, {mechanism}", spec.layers))
            .with("embedding", table, self.embedding.num_params())
            .with("positions", positions, self.positions.num_params())
            .with("layers", layers, of_layers)
            .with("pooling", spec.pooling.word(), of_pooling)
            .with("head", head, self.head.num_params())
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
        let cls = scaled_embeddings(cls, self.config.spec.scale_embeddings);
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
