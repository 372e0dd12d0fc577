//! Sequence classifier: a Transformer encoder, pooling and a linear head.
//!
//! ```text
//! x      = encoder(embedding(tokens) + positions)
//! pooled = x at the CLS token | mean(x) | Σ α_j x_j | x at the last token
//! logits = head(pooled)
//! ```
//!
//! Devlin et al., [BERT](https://arxiv.org/abs/1810.04805), 2018, for the CLS token;
//! Yang et al., [Hierarchical Attention Networks](https://aclanthology.org/N16-1174), 2016,
//! for attention pooling.
//!
//! The pooled vector of an empty sequence is zero, or the encoded CLS token.
//!
//! With `causal`, attention is causal. Mechanisms that are only causal can then be compared with the
//! others in models of equal size.
//!
//! Parameters, by their names in weight files:
//!
//! | name | |
//! |---|---|
//! | `embedding.weight` | `[vocabulary, d_model]` |
//! | `positions.table` | `[longest, d_model]`, if learned |
//! | `cls` | `[1, d_model]`, with `pooling: cls` |
//! | `layers.N.…` | see [`blocks`](crate::blocks) |
//! | `norm.{gamma,beta}` | with `final_norm` |
//! | `pooling.projection.{weight,bias}`, `pooling.context` | with `pooling: attention` |
//! | `head.{weight,bias}` | `[d_model, classes]` |

use burn::module::{Module, Param};
use burn::nn::{Dropout, DropoutConfig, Embedding, EmbeddingConfig, LayerNorm, Linear};
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use zoo_attention::AttentionError;
use zoo_kernels::matmul::matmul;
use zoo_kernels::{Activation, dropout, linear};
use zoo_spec::keys::check_keys;
use zoo_spec::{ClassifierSpec, LayerMechanisms, Norm, Pooling};

use crate::blocks::{
    LayerPlan, Normalization, PositionEmbedding, Recorder, Role, SelfAttentionOptions,
    TransformerLayer, embed, init_linear, normal, scale_embeddings,
};
use crate::{ContextAttention, Limits, ModelError, Summary, Tokens};

/// Configuration of a [`Classifier`].
///
/// ```
/// # use zoo_attention::Mechanism;
/// # use zoo_models::{ClassifierConfig, Pooling};
/// // Four layers of width 256 and 4 heads, for documents of 5 classes.
/// let config = ClassifierConfig::new(10_000, 5, 256, 4, 4)
///     .with_attention(Mechanism::Longformer)
///     .with_pooling(Pooling::Attention);
/// assert!(config.check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassifierConfig {
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Number of classes.
    pub classes: usize,
    /// Keys of a config file.
    #[serde(flatten)]
    pub spec: ClassifierSpec,
}

zoo_spec::classifier_keys!(setters ClassifierConfig);

impl ClassifierConfig {
    /// Creates a config with defaults for everything else.
    pub fn new(
        vocabulary: usize,
        classes: usize,
        d_model: usize,
        n_heads: usize,
        layers: usize,
    ) -> Self {
        let spec = ClassifierSpec {
            d_model,
            n_heads,
            layers,
            ..ClassifierSpec::default()
        };
        Self {
            vocabulary,
            classes,
            spec,
        }
    }

    /// Checks the config without creating the model. An error names the field and allowed values.
    pub fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("vocabulary", 1, self.vocabulary)?;
        ModelError::at_least("classes", 1, self.classes)?;
        check_keys(&self.spec, ClassifierSpec::KEYS)?;
        let spec = &self.spec;
        let is_valid = !spec.causal || spec.pooling != Pooling::Cls;
        let allowed = "last, mean or attention with causal = true";
        ModelError::require(is_valid, "pooling", allowed, spec.pooling.name())?;
        let role = if spec.causal {
            Role::Causal
        } else {
            Role::Bidirectional
        };
        self.plan().check_all("attention", &spec.attention, role)
    }

    fn build(&self, device: &Device) -> Classifier {
        let (plan, spec) = (self.plan(), &self.spec);
        let d_model = spec.d_model;
        let initializer = normal(1.0 / (d_model as f64).sqrt());
        let layer = |layer| plan.layer(spec.attention.of_layer(layer), None, device);
        Classifier {
            embedding: EmbeddingConfig::new(self.vocabulary, d_model)
                .with_initializer(initializer.clone())
                .init(device),
            positions: PositionEmbedding::new(spec.positions, d_model, &initializer, device),
            cls: (spec.pooling == Pooling::Cls).then(|| initializer.init([1, d_model], device)),
            dropout: DropoutConfig::new(spec.dropout).init(),
            layers: (0..spec.layers).map(layer).collect(),
            norm: spec.final_norm.then(|| plan.layer_norm(device)),
            pooling: (spec.pooling == Pooling::Attention)
                .then(|| ContextAttention::new(d_model, d_model, device)),
            head: init_linear([d_model, self.classes], true, &plan.initializer, device),
            config: self.clone(),
        }
    }

    fn plan(&self) -> LayerPlan {
        LayerPlan::new((&self.spec).into(), self.spec.norm)
    }
}

/// Sequence classifier. Created by a [`ClassifierConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Classifier {
    /// Token embedding.
    pub embedding: Embedding,
    /// Position embedding.
    pub positions: PositionEmbedding,
    /// Embedding of the CLS token, with `pooling: cls`.
    pub cls: Option<Param<Tensor<2>>>,
    /// Dropout of the embeddings.
    pub dropout: Dropout,
    /// Layers, first to last.
    pub layers: Vec<TransformerLayer>,
    /// Final layer norm.
    pub norm: Option<LayerNorm>,
    /// Attention pooling, with `pooling: attention`.
    pub pooling: Option<ContextAttention>,
    /// Classification head.
    pub head: Linear,
    #[module(skip)]
    config: ClassifierConfig,
}

/// Attention weights and logits of a [`Classifier`].
#[derive(Debug, Clone)]
pub struct ClassifierAttention {
    /// `[batch, heads, seq, seq]` for each layer; with `pooling: cls`, `seq` includes the CLS token
    /// at position 0.
    pub layers: Vec<Tensor<4>>,
    /// Pooling weights, `[batch, seq]`, with `pooling: attention`.
    pub pooling: Option<Tensor<2>>,
    /// `[batch, classes]`.
    pub logits: Tensor<2>,
}

model!(Classifier, ClassifierConfig, "classifier");

impl Classifier {
    /// Predicts the class of each sequence.
    ///
    /// # Shapes
    ///
    /// - tokens: `[batch, seq]`
    /// - output: `[batch, classes]`, logits
    ///
    /// # Panics
    ///
    /// If a sequence is longer than the learned positions.
    pub fn forward(&self, tokens: &Tokens) -> Tensor<2> {
        self.predict(self.hidden_states(tokens, Recorder::Disabled), tokens)
    }

    /// Logits and the mean entropy of the attention weights: see
    /// [`Gpt::forward_with_entropy`](crate::Gpt::forward_with_entropy).
    pub fn forward_with_entropy(
        &self,
        tokens: &Tokens,
    ) -> Result<(Tensor<2>, Tensor<1>), AttentionError> {
        Recorder::mean_entropy(|recorder| {
            self.predict(self.hidden_states(tokens, recorder), tokens)
        })
    }

    /// Attention weights of every layer, for any mechanism, as computed by
    /// [`explain`](zoo_attention::explain()), and the logits of [`forward`](Self::forward).
    ///
    /// # Shapes
    ///
    /// - tokens: `[batch, seq]`
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward); if rows differ in length or are empty.
    pub fn attention_weights(&self, tokens: &Tokens) -> ClassifierAttention {
        let class_token = usize::from(self.cls.is_some());
        let all: Vec<usize> = (0..tokens.dims()[1] + class_token).collect();
        self.attention_weights_of(tokens, &all)
    }

    /// [`attention_weights`](Self::attention_weights) of some queries, for texts that are too long
    /// for all of them. A class token is query 0.
    ///
    /// # Panics
    ///
    /// As there; if there are no queries, or one is out of range.
    pub fn attention_weights_of(&self, tokens: &Tokens, queries: &[usize]) -> ClassifierAttention {
        tokens.assert_unpadded("classifier");
        let (hidden, layers) =
            Recorder::weights(queries, |recorder| self.hidden_states(tokens, recorder));
        let pooling = |it: &ContextAttention| it.forward(hidden.clone(), tokens.pattern());
        ClassifierAttention {
            layers,
            pooling: self.pooling.as_ref().map(|it| pooling(it).weights),
            logits: self.predict(hidden, tokens),
        }
    }

    /// Output of the last layer, `[batch, seq, d_model]`; `seq` includes the CLS token, if any.
    fn hidden_states(&self, tokens: &Tokens, recorder: Recorder<'_>) -> Tensor<3> {
        let spec = &self.config.spec;
        let is_scaled = spec.scale_embeddings;
        let hidden = embed(&self.embedding, is_scaled, &self.positions, tokens.ids(), 0);
        let (hidden, lengths) = self.prepend_cls(hidden, tokens.lengths());
        let options = SelfAttentionOptions::new(&lengths, spec.causal, recorder);
        let layers = self.layers.iter();
        let hidden = layers.fold(dropout(&self.dropout, hidden), |hidden, layer| {
            layer.forward(hidden, options, None)
        });
        Normalization::of_layers(spec).apply_final(self.norm.as_ref(), hidden)
    }

    fn predict(&self, hidden: Tensor<3>, tokens: &Tokens) -> Tensor<2> {
        linear(&self.head, Activation::Identity, self.pool(hidden, tokens))
    }

    /// Limits of the input.
    pub fn limits(&self) -> Limits {
        let max_positions = self.config.spec.positions.max_positions();
        let limits = Limits::new(self.config.vocabulary, max_positions);
        let max_length = self.config.spec.attention.max_length();
        // The CLS token is a further position.
        let cls = usize::from(self.cls.is_some());
        limits.with_max_length(max_length.map(|max_length| max_length.saturating_sub(cls)))
    }

    /// Floating-point operations of the matmuls of one forward pass over `batch` sequences of
    /// `seq` tokens, at least one, including pooling and the classification head.
    pub fn flops(&self, batch: usize, seq: usize) -> f64 {
        let (spec, classes) = (&self.config.spec, self.config.classes);
        let d_model = spec.d_model;
        let seq_with_cls = seq + usize::from(self.cls.is_some());
        let layers = self.layers.iter();
        let layers = layers.map(|layer| layer.flops(seq_with_cls, spec.causal, 0));
        let pooling = self.pooling.as_ref();
        let pooling = pooling.map_or(0.0, |pooling| pooling.flops(seq));
        let head = 2.0 * (d_model * classes) as f64;
        batch as f64 * (layers.sum::<f64>() + pooling + head)
    }

    /// Summary of the model.
    pub fn summary(&self) -> Summary {
        let config = &self.config;
        let spec = &config.spec;
        let (d_model, mechanisms) = (spec.d_model, spec.attention.names());
        let table = format!("{} x {d_model}", config.vocabulary);
        let positions = spec.positions.name();
        let layers = config.plan().sizes(spec.layers, &mechanisms);
        let layer_params = self.layers.iter().map(TransformerLayer::parameters);
        let layer_params = layer_params.sum::<usize>() + self.norm.num_params();
        let pooling_params = self.pooling.num_params() + self.cls.num_params();
        let head = format!("{d_model} x {}", config.classes);
        Summary::new(format!(
            "classifier of {} layers, {mechanisms}",
            spec.layers
        ))
        .with("embedding", table, self.embedding.num_params())
        .with("positions", positions, self.positions.num_params())
        .with("layers", layers, layer_params)
        .with("pooling", spec.pooling.name(), pooling_params)
        .with("head", head, self.head.num_params())
    }

    /// Prepends the CLS token, if any; returns the new lengths, too.
    fn prepend_cls(&self, hidden: Tensor<3>, lengths: &[usize]) -> (Tensor<3>, Vec<usize>) {
        let Some(cls) = &self.cls else {
            return (hidden, lengths.to_vec());
        };
        let [batch, _, d_model] = hidden.dims();
        let cls = cls.val().reshape([1, 1, d_model]);
        let cls = cls.expand([batch, 1, d_model]);
        let cls = scale_embeddings(cls, self.config.spec.scale_embeddings);
        let lengths = lengths.iter().map(|length| length + 1).collect();
        (Tensor::cat(vec![cls, hidden], 1), lengths)
    }

    /// Pools each sequence into one vector: `[batch, d_model]`.
    fn pool(&self, hidden: Tensor<3>, tokens: &Tokens) -> Tensor<2> {
        let [batch, _, d_model] = hidden.dims();
        if self.cls.is_some() {
            return hidden.slice_dim(1, 0..1).reshape([batch, d_model]);
        }
        if let Some(pooling) = &self.pooling {
            return pooling.forward(hidden, tokens.pattern()).vector;
        }
        let [_, seq] = tokens.dims();
        let is_last = self.config.spec.pooling == Pooling::Last;
        let weights = tokens.lengths().iter().flat_map(|length| {
            let (first, weight) = match *length {
                0 => (0, 0.0),
                length if is_last => (length - 1, 1.0),
                length => (0, 1.0 / length as f32),
            };
            let pooled = first..*length;
            (0..seq).map(move |position| {
                if pooled.contains(&position) {
                    weight
                } else {
                    0.0
                }
            })
        });
        let weights = TensorData::new(weights.collect::<Vec<f32>>(), [batch, 1, seq]);
        let weights = Tensor::<3>::from_data(weights, (&hidden.device(), hidden.dtype()));
        matmul(weights, hidden).reshape([batch, d_model]) // [batch, 1, d_model] before
    }
}
