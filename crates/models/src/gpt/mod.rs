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

mod config;
mod generate;
mod look;

use burn::module::{DisplaySettings, Module, ModuleDisplay};
use burn::nn::{Dropout, Embedding, LayerNorm, Linear};
use burn::tensor::{Int, Tensor};
use zoo_attention::NoEntropy;
use zoo_kernels::{dropout, layer_norm};
use zoo_spec::GptSpec;

pub use self::config::GptConfig;
pub use self::generate::GptState;
use crate::blocks::{AddedPositions, EncoderLayer, Entropies, Sight, logits};
use crate::{Limits, Summary, Tokens};

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

impl ModuleDisplay for Gpt {
    fn format(&self, _: DisplaySettings) -> String {
        self.summary().to_string()
    }
}

impl Gpt {
    /// What it was made by.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

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
        self.forward_noting(tokens, None)
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
        let entropies = Entropies::default();
        let logits = self.forward_noting(tokens, Some(&entropies));
        Ok((logits, entropies.mean()?))
    }

    fn forward_noting(&self, tokens: &Tokens, entropies: Option<&Entropies>) -> Tensor<3> {
        let sight = Sight {
            lengths: tokens.lengths(),
            is_causal: true,
            entropies,
        };
        let places = self.embedded(tokens.ids(), 0);
        let places = self
            .layers
            .iter()
            .fold(places, |places, layer| layer.forward(places, sight));
        self.predicted(places)
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
        let GptSpec {
            d_model,
            layers,
            attention,
            positions,
            ..
        } = spec;
        let own = self.layers.iter().map(EncoderLayer::parameters).sum();
        let head = match &self.head {
            Some(_) => format!("{d_model} x {vocabulary}"),
            None => "the embedding's".to_owned(),
        };
        let plan = self.config.plan();
        Summary::new(format!("GPT of {layers} layers, {}", attention.mechanism()))
            .with(
                "embedding",
                format!("{vocabulary} x {d_model}"),
                self.embedding.num_params(),
            )
            .with("positions", positions.word(), self.positions.num_params())
            .with(
                "layers",
                plan.sizes(*layers, attention.mechanism().word()),
                own,
            )
            .with("norm", format!("{d_model}"), self.norm.num_params())
            .with("head", head, self.head.num_params())
    }

    /// The number of its parameters.
    pub fn parameters(&self) -> usize {
        self.summary().parameters()
    }

    /// Tokens with their places, `[batch, seq, d_model]`.
    fn embedded(&self, tokens: Tensor<2, Int>, first: usize) -> Tensor<3> {
        let places = self
            .positions
            .forward(self.embedding.forward(tokens), first);
        dropout(&self.dropout, places)
    }

    /// What the places of the last layer say, `[batch, seq, vocabulary]`.
    fn predicted(&self, places: Tensor<3>) -> Tensor<3> {
        let places = layer_norm(&self.norm, self.config.spec.epsilon, places);
        logits(places, self.head.as_ref(), &self.embedding)
    }
}
