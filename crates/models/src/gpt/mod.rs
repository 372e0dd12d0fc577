//! Decoder-only language model.
//!
//! ```text
//! x_0     = embedding(tokens) + positions
//! x_(l+1) = x'_l + feed_forward(norm(x'_l)),    x'_l = x_l + attention(norm(x_l))
//! logits  = head(norm(x_L))
//! ```
//!
//! Attention is causal, with any mechanism. Radford et al., [Language Models are Unsupervised
//! Multitask Learners](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf),
//! 2019.
//!
//! Parameters, by their names in weight files:
//!
//! | name | |
//! |---|---|
//! | `embedding.weight` | `[vocabulary, d_model]` |
//! | `positions.table` | `[longest, d_model]`, if learned |
//! | `layers.N.…` | see [`blocks`](crate::blocks) |
//! | `norm.{gamma,beta}` | final layer norm |
//! | `head.weight` | `[d_model, vocabulary]`, unless tied to the embedding |

mod generate;

use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Embedding, EmbeddingConfig, LayerNorm, Linear};
use burn::tensor::{Device, Int, Tensor};
use serde::{Deserialize, Serialize};
use zoo_attention::AttentionError;
use zoo_kernels::dropout;
use zoo_spec::keys::check_keys;
use zoo_spec::{GptSpec, LayerMechanisms, Norm};

pub use self::generate::GptState;
use crate::blocks::{
    LayerPlan, Normalization, PositionEmbedding, Recorder, Role, SelfAttentionOptions,
    TransformerLayer, embed, init_linear, logits, normal,
};
use crate::summary::matrix_or_tied;
use crate::{Limits, ModelError, Summary, Tokens};

/// Configuration of a [`Gpt`]. The defaults are GPT-2's, except for the sizes.
///
/// ```
/// # use zoo_attention::Mechanism;
/// # use zoo_models::{GptConfig, PositionEncoding};
/// // 12 layers of width 768, 12 query heads, 4 key and value heads, a window of keys.
/// let config = GptConfig::new(50_257, 768, 12, 12)
///     .with_n_heads_kv(Some(4))
///     .with_positions(PositionEncoding::rotary(1e4))
///     .with_attention(Mechanism::SlidingWindow);
/// assert!(config.check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GptConfig {
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Keys of a config file.
    #[serde(flatten)]
    pub spec: GptSpec,
}

zoo_spec::gpt_keys!(setters GptConfig);

/// Standard deviation of GPT-2's initializer.
const INIT_STD: f64 = 0.02;

impl GptConfig {
    /// Creates a config with defaults for everything else.
    pub fn new(vocabulary: usize, d_model: usize, n_heads: usize, layers: usize) -> Self {
        let spec = GptSpec {
            d_model,
            n_heads,
            layers,
            ..GptSpec::default()
        };
        Self { vocabulary, spec }
    }

    /// Checks the config without creating the model. An error names the field and allowed values.
    pub fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("vocabulary", 1, self.vocabulary)?;
        check_keys(&self.spec, GptSpec::KEYS)?;
        self.plan()
            .check_all("attention", &self.spec.attention, Role::Causal)
    }

    fn build(&self, device: &Device) -> Gpt {
        let (plan, spec) = (self.plan(), &self.spec);
        let initializer = normal(INIT_STD);
        let layer = |layer| plan.layer(spec.attention.of_layer(layer), None, device);
        Gpt {
            embedding: EmbeddingConfig::new(self.vocabulary, spec.d_model)
                .with_initializer(initializer.clone())
                .init(device),
            positions: PositionEmbedding::new(spec.positions, spec.d_model, &initializer, device),
            dropout: DropoutConfig::new(spec.dropout).init(),
            layers: (0..spec.layers).map(layer).collect(),
            norm: plan.layer_norm(device),
            head: (!spec.tie_embeddings).then(|| {
                let sizes = [spec.d_model, self.vocabulary];
                init_linear(sizes, false, &initializer, device)
            }),
            config: self.clone(),
        }
    }

    fn plan(&self) -> LayerPlan {
        // Each layer adds twice to the residual stream, whose variance should not grow with depth.
        let sublayers = (2 * self.spec.layers.max(1)) as f64;
        LayerPlan {
            spec: (&self.spec).into(),
            norm: Norm::Pre,
            initializer: normal(INIT_STD),
            residual_initializer: normal(INIT_STD / sublayers.sqrt()),
        }
    }
}

/// Decoder-only language model. Created by a [`GptConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Gpt {
    /// Token embedding.
    pub embedding: Embedding,
    /// Position embedding.
    pub positions: PositionEmbedding,
    /// Dropout of the embeddings.
    pub dropout: Dropout,
    /// Layers, first to last.
    pub layers: Vec<TransformerLayer>,
    /// Final layer norm.
    pub norm: LayerNorm,
    /// Output projection; `None` if tied to the embedding.
    pub head: Option<Linear>,
    #[module(skip)]
    config: GptConfig,
}

model!(Gpt, GptConfig, "GPT");

impl Gpt {
    /// Predicts the token after each token. Logits at padding are undefined.
    ///
    /// # Shapes
    ///
    /// - tokens: `[batch, seq]`
    /// - output: `[batch, seq, vocabulary]`, logits
    ///
    /// # Panics
    ///
    /// If a sequence is longer than the learned positions.
    pub fn forward(&self, tokens: &Tokens) -> Tensor<3> {
        self.predict(self.hidden_states(tokens, Recorder::Disabled))
    }

    /// [`forward`](Self::forward), and the mean entropy of the attention weights, `[1]`, for an
    /// entropy penalty; an error for a mechanism whose weights do not sum to one.
    pub fn forward_with_entropy(
        &self,
        tokens: &Tokens,
    ) -> Result<(Tensor<3>, Tensor<1>), AttentionError> {
        Recorder::mean_entropy(|recorder| self.predict(self.hidden_states(tokens, recorder)))
    }

    /// Attention weights of every layer, for any mechanism, as computed by
    /// [`explain`](zoo_attention::explain()).
    ///
    /// # Shapes
    ///
    /// - tokens: `[batch, seq]`
    /// - output: `[batch, heads, seq, seq]` for each layer
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward); if rows differ in length or are empty.
    pub fn attention_weights(&self, tokens: &Tokens) -> Vec<Tensor<4>> {
        let all: Vec<usize> = (0..tokens.dims()[1]).collect();
        self.attention_weights_of(tokens, &all)
    }

    /// [`attention_weights`](Self::attention_weights) of some queries, `[batch, heads, queries, seq]`
    /// for each layer, for texts that are too long for all of them.
    ///
    /// # Panics
    ///
    /// As there; if there are no queries, or one is out of range.
    pub fn attention_weights_of(&self, tokens: &Tokens, queries: &[usize]) -> Vec<Tensor<4>> {
        tokens.assert_unpadded("GPT");
        Recorder::weights(queries, |recorder| self.hidden_states(tokens, recorder)).1
    }

    /// Output of the last layer, `[batch, seq, d_model]`.
    fn hidden_states(&self, tokens: &Tokens, recorder: Recorder<'_>) -> Tensor<3> {
        let options = SelfAttentionOptions::new(tokens.lengths(), true, recorder);
        let layers = self.layers.iter();
        layers.fold(self.embed(tokens.ids(), 0), |hidden, layer| {
            layer.forward(hidden, options, None)
        })
    }

    /// Limits of the input.
    pub fn limits(&self) -> Limits {
        let max_positions = self.config.spec.positions.max_positions();
        let limits = Limits::new(self.config.vocabulary, max_positions);
        limits.with_max_length(self.config.spec.attention.max_length())
    }

    /// Floating-point operations of the matmuls of one forward pass over `batch` sequences of
    /// `seq` tokens, at least one.
    pub fn flops(&self, batch: usize, seq: usize) -> f64 {
        let layers: f64 = self
            .layers
            .iter()
            .map(|layer| layer.flops(seq, true, 0))
            .sum();
        let head = 2.0 * (seq * self.config.spec.d_model * self.config.vocabulary) as f64;
        batch as f64 * (layers + head)
    }

    /// Summary of the model.
    pub fn summary(&self) -> Summary {
        let GptConfig { vocabulary, spec } = &self.config;
        let (d_model, mechanisms) = (spec.d_model, spec.attention.names());
        let table = format!("{vocabulary} x {d_model}");
        let positions = spec.positions.name();
        let layers = self.config.plan().sizes(spec.layers, &mechanisms);
        let layer_params = self.layers.iter().map(TransformerLayer::parameters).sum();
        let head = matrix_or_tied(self.head.as_ref(), [d_model, *vocabulary], "embedding");
        Summary::new(format!("GPT of {} layers, {mechanisms}", spec.layers))
            .with("embedding", table, self.embedding.num_params())
            .with("positions", positions, self.positions.num_params())
            .with("layers", layers, layer_params)
            .with("norm", format!("{d_model}"), self.norm.num_params())
            .with("output", head, self.head.num_params())
    }

    fn embed(&self, tokens: Tensor<2, Int>, first: usize) -> Tensor<3> {
        let hidden = embed(&self.embedding, false, &self.positions, tokens, first);
        dropout(&self.dropout, hidden)
    }

    fn predict(&self, hidden: Tensor<3>) -> Tensor<3> {
        let hidden = Normalization::of_layers(&self.config.spec).apply(&self.norm, hidden);
        logits(hidden, self.head.as_ref(), &self.embedding)
    }
}
