//! The module people use: projections around any mechanism, chosen by its word.
//!
//! ```text
//! q, k, v = query·W_q, key·W_k, value·W_v       cut into heads
//! result  = mechanism(q, k, v), joined again, ·W_o
//! ```
//!
//! Vaswani et al., [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017;
//! fewer key and value heads: Shazeer, [Fast Transformer
//! Decoding](https://arxiv.org/abs/1911.02150), 2019, and Ainslie et al.,
//! [GQA](https://arxiv.org/abs/2305.13245), 2023.

mod check;
mod config;
mod decode;
mod error;
mod look;
mod pytorch;

use burn::module::{Content, DisplaySettings, Module, ModuleDisplay};
use burn::nn::{Dropout as DropoutLayer, Linear, RmsNorm};
use burn::tensor::Tensor;

pub use self::config::MultiHeadAttentionConfig;
pub use self::decode::Memory;
pub use self::error::MultiHeadError;
pub use self::look::NoEntropy;
pub use self::pytorch::{PytorchWeights, PytorchWeightsError};
use crate::mechanisms::{self, Inputs, Mechanism, MechanismConfig, MechanismParams, Mode, Output};
pub use crate::positions::Positions;
use crate::positions::rotate;
use crate::seed::next_seed;
use crate::{AttentionOptions, AttentionShape, Dropout, Pattern, alibi_slopes};

/// Multi-head attention with any mechanism. Made by a [`MultiHeadAttentionConfig`].
///
/// Its four projections are called and laid out as those of burn-nn's
/// `MultiHeadAttention`; [`with_pytorch_weights`](Self::with_pytorch_weights) takes those of
/// PyTorch's.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct MultiHeadAttention {
    /// `d_model -> heads * d_head`
    pub query: Linear,
    /// `kdim -> kv_heads * d_head`; none where keys are made of the queries.
    pub key: Option<Linear>,
    /// `vdim -> kv_heads * d_head`
    pub value: Linear,
    /// `heads * d_head -> d_model`
    pub output: Linear,
    /// Normalises queries, if that was asked for.
    pub query_norm: Option<RmsNorm>,
    /// Normalises keys, likewise.
    pub key_norm: Option<RmsNorm>,
    /// Parameters of the mechanism, besides the projections.
    pub params: MechanismParams,
    /// How many weights are forgotten, and whether this layer is training.
    pub dropout: DropoutLayer,
    #[module(skip)]
    mechanism: MechanismConfig,
    #[module(skip)]
    positions: Positions,
    temperature: f64,
    #[module(skip)]
    softcap: Option<f64>,
    assume_finite: bool,
    heads: usize,
    kv_heads: usize,
    d_head: usize,
}

impl ModuleDisplay for MultiHeadAttention {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new()
            .with_new_line_after_attribute(false)
            .optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let mechanism = self.mechanism.mechanism().word().to_owned();
        content
            .add("mechanism", &mechanism)
            .add("heads", &self.heads)
            .add("kv_heads", &self.kv_heads)
            .add("d_head", &self.d_head)
            .optional()
    }
}

/// What was asked for cannot be had: the mechanism holds no weights.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "mechanism {mechanism} never holds its weights; these do, and return them: {}",
    holders()
)]
pub struct NoWeights {
    /// The mechanism.
    pub mechanism: Mechanism,
}

/// The mechanisms that hold their weights.
fn holders() -> String {
    let words: Vec<&str> = Mechanism::ALL
        .into_iter()
        .filter(|mechanism| mechanism.returns_weights())
        .map(Mechanism::word)
        .collect();
    words.join(", ")
}

impl MultiHeadAttention {
    /// The mechanism and its sizes.
    pub fn mechanism(&self) -> &MechanismConfig {
        &self.mechanism
    }

    /// Attends from `query` to `key` and `value`: for self-attention, three times the same.
    /// A mechanism that makes its keys of the queries is for that alone, and leaves `key`
    /// unread.
    ///
    /// Weights are forgotten on devices that take gradients only, and others every time.
    /// So it is with [`hard`](crate::hard()) attention: there it samples, elsewhere it takes
    /// the best. There, too, passes count until random features are drawn anew.
    /// [`Device::seed`](burn::tensor::Device::seed) decides which weights are dropped and what
    /// is sampled, or [`with_seed`](crate::with_seed) around the call.
    ///
    /// # Shapes
    ///
    /// - query: `[batch, seq_q, d_model]`
    /// - key: `[batch, seq_k, kdim]`
    /// - value: `[batch, seq_k, vdim]`; `kdim` and `vdim` are `d_model` unless given
    /// - result: `[batch, seq_q, d_model]`
    ///
    /// # Panics
    ///
    /// If the tensors or the pattern do not fit together, or the mechanism cannot see by
    /// that pattern.
    pub fn forward(
        &self,
        query: Tensor<3>,
        key: Tensor<3>,
        value: Tensor<3>,
        pattern: Pattern,
    ) -> Tensor<3> {
        let (query, key, value, options) = self.heads_of(query, key, value, pattern);
        self.joined(self.attended(query, key, value, &options).context)
    }

    /// [`forward`](Self::forward), and where each query looked:
    /// `[batch, heads, seq_q, seq_k]`.
    ///
    /// # Errors
    ///
    /// [`NoWeights`] if the mechanism does not hold them.
    ///
    /// # Panics
    ///
    /// As there.
    pub fn forward_with_weights(
        &self,
        query: Tensor<3>,
        key: Tensor<3>,
        value: Tensor<3>,
        pattern: Pattern,
    ) -> Result<(Tensor<3>, Tensor<4>), NoWeights> {
        let mechanism = self.mechanism.mechanism();
        if !mechanism.returns_weights() {
            return Err(NoWeights { mechanism });
        }
        let (query, key, value, options) = self.heads_of(query, key, value, pattern);
        let Output { context, weights } = self.attended(query, key, value, &options);
        let weights = weights.ok_or(NoWeights { mechanism })?;
        Ok((self.joined(context), weights))
    }

    /// Draws other random features if the mechanism redraws them and its interval divides
    /// `pass`, the number of the training pass that comes next; see
    /// [`RedrawnFeatures::redraw_before`](crate::RedrawnFeatures::redraw_before).
    pub fn redraw_features_before(&self, pass: u64) {
        if let Some(features) = &self.params.features {
            features.redraw_before(pass);
        }
    }

    /// Floating-point operations of the matmuls of one forward pass over one example, two
    /// for each product: the projections, and what the mechanism does over the pairs of query
    /// and key that see each other. Training takes about three times as many.
    ///
    /// # Panics
    ///
    /// If there is no query or no key.
    pub fn flops(&self, seq_q: usize, seq_k: usize, causal: bool) -> f64 {
        let width = |linear: &Linear| linear.weight.dims().iter().product::<usize>();
        let of_query = width(&self.query) + width(&self.output);
        let of_key = self.key.as_ref().map_or(0, width) + width(&self.value);
        let projections = seq_q * of_query + seq_k * of_key;
        let shape = AttentionShape {
            batch: 1,
            heads: self.heads,
            kv_heads: self.kv_heads,
            seq_q,
            seq_k,
            d_head: self.d_head,
            d_value: self.d_head,
        };
        let options = AttentionOptions::new().with_pattern(match causal {
            true => Pattern::Causal,
            false => Pattern::Full,
        });
        let of_mechanism = mechanisms::of(&self.mechanism).flops(&shape, &options);
        2.0 * projections as f64 + of_mechanism
    }

    /// By the mechanism, with its parameters.
    fn attended(
        &self,
        query: Tensor<4>,
        key: Tensor<4>,
        value: Tensor<4>,
        options: &AttentionOptions,
    ) -> Output {
        let mode = match self.is_training(&query) {
            true => Mode::Training,
            false => Mode::Inference,
        };
        let inputs = Inputs { query, key, value };
        mechanisms::of(&self.mechanism).forward(inputs, &self.params.of_call(mode), options)
    }

    /// What the mechanism is given: `[batch, heads, seq, d_head]`, and how to attend.
    fn heads_of(
        &self,
        query: Tensor<3>,
        key: Tensor<3>,
        value: Tensor<3>,
        pattern: Pattern,
    ) -> (Tensor<4>, Tensor<4>, Tensor<4>, AttentionOptions) {
        // The last query is level with the last key.
        let first = key.dims()[1] as i64 - query.dims()[1] as i64;
        let (query, key, value) = self.projected([query, key, value], [first, 0]);
        let options = self.options(&query, pattern);
        (query, key, value, options)
    }

    /// Queries, keys and values by head, queries and keys from these places on.
    fn projected(
        &self,
        [query, key, value]: [Tensor<3>; 3],
        [first_query, first_key]: [i64; 2],
    ) -> (Tensor<4>, Tensor<4>, Tensor<4>) {
        let query = self.queries(query, first_query);
        let key = match &self.key {
            Some(_) => self.keys(key, first_key),
            // Made of the queries, by the mechanism.
            None => query.clone(),
        };
        (query, key, self.values(value))
    }

    /// Queries by head, the first of them at place `first`.
    fn queries(&self, query: Tensor<3>, first: i64) -> Tensor<4> {
        let query = self.by_head(projected(&self.query, query), self.heads);
        self.placed(query, &self.query_norm, first)
    }

    /// Keys by head, likewise.
    fn keys(&self, key: Tensor<3>, first: i64) -> Tensor<4> {
        let Some(projection) = &self.key else {
            panic!(
                "multi-head attention: {} makes its keys of its queries, and has no others",
                self.mechanism.mechanism()
            );
        };
        let key = self.by_head(projected(projection, key), self.kv_heads);
        self.placed(key, &self.key_norm, first)
    }

    /// Values by head.
    fn values(&self, value: Tensor<3>) -> Tensor<4> {
        self.by_head(projected(&self.value, value), self.kv_heads)
    }

    /// `[batch, seq, heads * d_head]` as `[batch, heads, seq, d_head]`.
    fn by_head(&self, tensor: Tensor<3>, heads: usize) -> Tensor<4> {
        let [batch, seq, _] = tensor.dims();
        tensor
            .reshape([batch, seq, heads, self.d_head])
            .swap_dims(1, 2)
    }

    /// Normalised, if that was asked for, and turned by its place.
    fn placed(&self, tensor: Tensor<4>, norm: &Option<RmsNorm>, first: i64) -> Tensor<4> {
        let tensor = match norm {
            Some(norm) => norm.forward(tensor),
            None => tensor,
        };
        match self.positions {
            Positions::Rotary { theta } => rotate(tensor, first, theta),
            Positions::None | Positions::Alibi => tensor,
        }
    }

    /// Whether this is a pass to learn from.
    fn is_training(&self, query: &Tensor<4>) -> bool {
        self.dropout.training.is_enabled() && query.device().is_autodiff()
    }

    fn options(&self, query: &Tensor<4>, pattern: Pattern) -> AttentionOptions {
        AttentionOptions {
            pattern,
            // What the mechanism takes for none, unless it is to be divided.
            scale: (self.temperature != 1.0).then(|| {
                mechanisms::of(&self.mechanism).default_scale(self.d_head) / self.temperature
            }),
            softcap: self.softcap,
            alibi: (self.positions == Positions::Alibi).then(|| alibi_slopes(self.heads)),
            dropout: (self.is_training(query) && self.dropout.prob > 0.0)
                .then(|| Dropout::new(self.dropout.prob, next_seed(&query.device()))),
            assume_finite: self.assume_finite,
            ..AttentionOptions::new()
        }
    }

    /// `[batch, heads, seq, d_head]` as `[batch, seq, d_model]`.
    fn joined(&self, context: Tensor<4>) -> Tensor<3> {
        let [batch, heads, seq, d_head] = context.dims();
        let context = mechanisms::of(&self.mechanism)
            .finish(context)
            .swap_dims(1, 2)
            .reshape([batch, seq, heads * d_head]);
        projected(&self.output, context)
    }
}

/// Every place through the matrix, as one product. Burn would multiply each sequence by
/// itself, which takes longer where they are short.
///
/// # Shapes
///
/// - places: `[batch, seq, from]`
/// - result: `[batch, seq, to]`
fn projected(projection: &Linear, places: Tensor<3>) -> Tensor<3> {
    let [batch, seq, from] = places.dims();
    let places = projection.forward(places.reshape([batch * seq, from]));
    let [_, to] = places.dims();
    places.reshape([batch, seq, to])
}
