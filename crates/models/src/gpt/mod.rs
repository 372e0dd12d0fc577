//! A decoder alone, which continues a text.
//!
//! ```text
//! x_0     = embedding(tokens) + positions
//! x_(l+1) = x'_l + feed_forward(norm(x'_l)),    x'_l = x_l + attention(norm(x_l))
//! logits  = head(norm(x_L))
//! ```
//!
//! Attention is causal, by any mechanism. Radford et al., [Language Models are Unsupervised
//! Multitask Learners](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf),
//! 2019.
//!
//! Parameters, by their names in weight files:
//!
//! | name | |
//! |---|---|
//! | `embedding.weight` | `[vocabulary, d_model]` |
//! | `positions.table` | `[longest, d_model]`, where they are learned |
//! | `layers.N.…` | see [`blocks`](crate::blocks) |
//! | `norm.{gamma,beta}` | after the last layer |
//! | `head.weight` | `[d_model, vocabulary]`, where it is not the embedding's |

mod generate;

use burn::module::Module;
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, LayerNorm, Linear,
};
use burn::tensor::{Device, Int, Tensor};
use serde::{Deserialize, Serialize};
use zoo_attention::{MechanismConfig, NoEntropy};
use zoo_kernels::{dropout, layer_norm};
use zoo_spec::keys::check_keys;
use zoo_spec::{GptSpec, Norm};

pub use self::generate::GptState;
use crate::blocks::{
    AddedPositions, EncoderLayer, LayerPlan, Notes, Role, Sight, embedded, linear, logits,
};
use crate::{Limits, ModelError, Summary, Tokens};

/// Configuration of a [`Gpt`]. The defaults are GPT-2's but for its sizes.
///
/// ```
/// # use zoo_attention::Mechanism;
/// # use zoo_models::{GptConfig, PositionEncoding};
/// // 12 layers of width 768, 12 query heads, 4 key and value heads, a window of keys.
/// let config = GptConfig::new(50_257, 768, 12, 12)
///     .with_kv_heads(Some(4))
///     .with_positions(PositionEncoding::rotary(1e4))
///     .with_attention(Mechanism::SlidingWindow.into());
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GptConfig {
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Sizes and choices, as in a config file.
    #[serde(flatten)]
    pub spec: GptSpec,
}

zoo_spec::gpt_keys!(setters GptConfig);

/// How GPT-2 draws everything.
const SPREAD: f64 = 0.02;

impl GptConfig {
    /// A GPT for a vocabulary of this size.
    pub fn new(vocabulary: usize, d_model: usize, heads: usize, layers: usize) -> Self {
        let spec = GptSpec {
            d_model,
            heads,
            layers,
            ..GptSpec::default()
        };
        Self { vocabulary, spec }
    }

    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("vocabulary", 1, self.vocabulary)?;
        check_keys(&self.spec, GptSpec::KEYS)?;
        self.plan()
            .check("attention", &self.spec.attention, Role::Any)
    }

    /// Makes the model, for sizes that come from a file.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn try_init(&self, device: &Device) -> Result<Gpt, ModelError> {
        self.check()?;
        let (plan, spec) = (self.plan(), &self.spec);
        let drawn = normal(SPREAD);
        let layer = |_| plan.encoder_layer(&spec.attention, device);
        Ok(Gpt {
            embedding: EmbeddingConfig::new(self.vocabulary, spec.d_model)
                .with_initializer(drawn.clone())
                .init(device),
            positions: AddedPositions::new(spec.positions, spec.d_model, &drawn, device),
            dropout: DropoutConfig::new(spec.dropout).init(),
            layers: (0..spec.layers).map(layer).collect(),
            norm: plan.layer_norm(device),
            head: (!spec.tied)
                .then(|| linear([spec.d_model, self.vocabulary], false, &drawn, device)),
            config: self.clone(),
        })
    }

    fn plan(&self) -> LayerPlan {
        // Each layer adds twice to the residual stream, whose variance should not grow with depth.
        let parts = (2 * self.spec.layers.max(1)) as f64;
        LayerPlan {
            spec: (&self.spec).into(),
            norm: Norm::Pre,
            initializer: normal(SPREAD),
            of_results: normal(SPREAD / parts.sqrt()),
        }
    }
}

fn normal(std: f64) -> Initializer {
    Initializer::Normal { mean: 0.0, std }
}

/// A model that continues a text. Made by a [`GptConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Gpt {
    /// What tokens are.
    pub embedding: Embedding,
    /// Where they are.
    pub positions: AddedPositions,
    /// Numbers of embedded tokens that are forgotten while training.
    pub dropout: Dropout,
    /// The layers, in the order they are gone through.
    pub layers: Vec<EncoderLayer>,
    /// After the last.
    pub norm: LayerNorm,
    /// What predicts tokens; none where the embedding does.
    pub head: Option<Linear>,
    #[module(skip)]
    config: GptConfig,
}

model!(Gpt, GptConfig, "GPT");

impl Gpt {
    /// What follows each token, as far as the model knows. What is said behind the end of a
    /// row has no meaning.
    ///
    /// # Shapes
    ///
    /// - tokens: `[batch, seq]`
    /// - result: `[batch, seq, vocabulary]`, logits
    ///
    /// # Panics
    ///
    /// If there are more places than were learned.
    pub fn forward(&self, tokens: &Tokens) -> Tensor<3> {
        self.predicted(self.places(tokens, &Notes::Nothing))
    }

    /// [`forward`](Self::forward), and the mean entropy of the attention weights, `[1]`, to be
    /// added to a loss.
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
        tokens: &Tokens,
    ) -> Result<(Tensor<3>, Tensor<1>), NoEntropy> {
        Notes::mean_entropy(|notes| self.predicted(self.places(tokens, notes)))
    }

    /// Where each token looks: the weights of every layer, whatever the mechanism, as
    /// [`explain`](zoo_attention::explain()) has them.
    ///
    /// # Shapes
    ///
    /// - tokens: `[batch, seq]`
    /// - result: `[batch, heads, seq, seq]` for each layer
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward); if rows differ in length, or are empty.
    pub fn look(&self, tokens: &Tokens) -> Vec<Tensor<4>> {
        tokens.assert_whole("GPT");
        Notes::weights(|notes| self.places(tokens, notes)).1
    }

    /// After the last layer, `[batch, seq, d_model]`.
    fn places(&self, tokens: &Tokens, notes: &Notes) -> Tensor<3> {
        let sight = Sight {
            lengths: tokens.lengths(),
            is_causal: true,
            notes,
        };
        let layers = self.layers.iter();
        layers.fold(self.embedded(tokens.ids(), 0), |places, layer| {
            layer.forward(places, sight)
        })
    }

    /// What it takes.
    pub fn limits(&self) -> Limits {
        Limits {
            vocabulary: self.config.vocabulary,
            longest: self.config.spec.positions.longest(),
        }
    }

    /// Floating-point operations of the matmuls of one forward pass over `batch` sequences of
    /// `seq` tokens.
    ///
    /// # Panics
    ///
    /// If there are no tokens.
    pub fn flops(&self, batch: usize, seq: usize) -> f64 {
        let layers: f64 = self.layers.iter().map(|layer| layer.flops(seq, true)).sum();
        let head = 2.0 * (seq * self.config.spec.d_model * self.config.vocabulary) as f64;
        batch as f64 * (layers + head)
    }

    /// What it is made of.
    pub fn summary(&self) -> Summary {
        let GptConfig { vocabulary, spec } = &self.config;
        let (d_model, mechanism) = (spec.d_model, spec.attention.mechanism());
        let table = format!("{vocabulary} x {d_model}");
        let positions = spec.positions.word();
        let layers = self.config.plan().sizes(spec.layers, mechanism.word());
        let own = self.layers.iter().map(EncoderLayer::parameters).sum();
        let head = match &self.head {
            Some(_) => format!("{d_model} x {vocabulary}"),
            None => "the embedding's".to_owned(),
        };
        Summary::new(format!("GPT of {} layers, {mechanism}", spec.layers))
            .with("embedding", table, self.embedding.num_params())
            .with("positions", positions, self.positions.num_params())
            .with("layers", layers, own)
            .with("norm", format!("{d_model}"), self.norm.num_params())
            .with("head", head, self.head.num_params())
    }

    fn embedded(&self, tokens: Tensor<2, Int>, first: usize) -> Tensor<3> {
        let places = embedded(&self.embedding, false, &self.positions, tokens, first);
        dropout(&self.dropout, places)
    }

    fn predicted(&self, places: Tensor<3>) -> Tensor<3> {
        let places = layer_norm(&self.norm, self.config.spec.epsilon, places);
        logits(places, self.head.as_ref(), &self.embedding)
    }
}
