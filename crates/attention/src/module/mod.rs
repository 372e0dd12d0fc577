//! Multi-head attention with any mechanism.
//!
//! ```text
//! q, k, v = query·W_q, key·W_k, value·W_v       split into heads
//! output  = mechanism(q, k, v), concatenated, ·W_o
//! ```
//!
//! With an output gate, the concatenated context is multiplied by `sigmoid(query·W_g)` first: Qiu et
//! al., [Gated Attention](https://arxiv.org/abs/2505.06708), 2025.
//!
//! Vaswani et al., [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017;
//! fewer key and value heads: Shazeer, [Fast Transformer
//! Decoding](https://arxiv.org/abs/1911.02150), 2019, and Ainslie et al.,
//! [GQA](https://arxiv.org/abs/2305.13245), 2023.

mod analysis;
mod check;
mod config;
mod decode;
mod io;
mod latent;
mod pytorch;

use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::{Dropout as DropoutLayer, Linear, RmsNorm};
use burn::tensor::{Tensor, activation};
use zoo_kernels::{Activation, causal_convolution, linear, rms_norm};

pub use self::config::MultiHeadAttentionConfig;
pub use self::decode::ProjectedMemory;
pub use self::io::AttentionInput;
pub use self::latent::LatentProjections;
pub use self::pytorch::PytorchWeights;
use crate::mechanisms::{
    self, Call, Gates, HeadSizes, Inputs, MechanismConfig, MechanismParams, Mode, Params,
    ShortConvolution,
};
pub use crate::positions::Positions;
use crate::rotary::rotate;
use crate::seed::next_seed;
use crate::shape::split_heads;
use crate::{AttentionOptions, AttentionOutput, AttentionShape, Dropout, Pattern, alibi_slopes};

/// Multi-head attention with any mechanism, initialized by a [`MultiHeadAttentionConfig`].
///
/// The projections have the names and the layout of burn-nn's `MultiHeadAttention`, so that its
/// records load; [`with_pytorch_weights`](Self::with_pytorch_weights) loads those of PyTorch.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct MultiHeadAttention {
    /// `d_model -> n_heads * d_head`, for `mla` with `d_head + rope` instead of `d_head`.
    pub query: Linear,
    /// `d_context -> n_heads_kv * d_head`, for `mla` `d_context -> latent + rope`; `None` if the
    /// mechanism computes its keys from its queries.
    pub key: Option<Linear>,
    /// `d_context -> n_heads_kv * d_head`, for `mla` `latent -> n_heads * d_head`.
    pub value: Linear,
    /// `n_heads * d_head -> d_model`
    pub output: Linear,
    /// `d_model -> n_heads * d_head`: the logits of an output gate.
    pub gate: Option<Linear>,
    /// QK-norm of the queries.
    pub query_norm: Option<RmsNorm>,
    /// QK-norm of the keys.
    pub key_norm: Option<RmsNorm>,
    /// Further projections of `mla`.
    pub latent: Option<LatentProjections>,
    /// Parameters of the mechanism, besides the projections.
    pub params: MechanismParams,
    /// Dropout of the attention weights, and whether this layer is training.
    pub dropout: DropoutLayer,
    #[module(skip)]
    mechanism: MechanismConfig,
    #[module(skip)]
    positions: Positions,
    temperature: f64,
    #[module(skip)]
    softcap: Option<f64>,
    assume_finite: bool,
    n_heads: usize,
    n_heads_kv: usize,
    d_head: usize,
    /// Elements of queries and keys besides those of `d_head`.
    rope: usize,
}

impl ModuleDisplay for MultiHeadAttention {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new()
            .with_new_line_after_attribute(false)
            .optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let mechanism = self.mechanism.mechanism().name().to_owned();
        content
            .add("mechanism", &mechanism)
            .add("n_heads", &self.n_heads)
            .add("n_heads_kv", &self.n_heads_kv)
            .add("d_head", &self.d_head)
            .optional()
    }
}

impl MultiHeadAttention {
    /// The mechanism, with its sizes.
    pub fn mechanism(&self) -> &MechanismConfig {
        &self.mechanism
    }

    /// Attends from the query to the key and value.
    ///
    /// The output has attention weights, `[batch, n_heads, seq_q, seq_k]`, if the mechanism
    /// computes them as a matrix: see [`Capabilities`](zoo_spec::Capabilities). For the others,
    /// [`explain`](Self::explain) computes the weights of chosen queries. A mechanism that computes
    /// its keys from its queries (`lsh`) ignores the key input, and one that computes its values from
    /// its keys (`mla`) ignores the value input.
    ///
    /// On devices with autodiff, weights are dropped and [`hard`](crate::mechanisms::hard::hard()) attention samples;
    /// on others, nothing is dropped and `hard` takes the key with the largest score.
    /// [`Device::seed`](burn::tensor::Device::seed) determines what is dropped and sampled, or
    /// [`with_seed`](crate::with_seed) around the call.
    ///
    /// # Shapes
    ///
    /// - query: `[batch, seq_q, d_model]`
    /// - key, value: `[batch, seq_k, d_context]`; `d_context` is `d_model` unless configured
    /// - context: `[batch, seq_q, d_model]`
    ///
    /// # Panics
    ///
    /// If the shapes do not match, or the mechanism does not support the pattern.
    pub fn forward(&self, input: AttentionInput) -> AttentionOutput<3> {
        // The last query is aligned with the last key.
        let first = input.key.dims()[1] as i64 - input.query.dims()[1] as i64;
        let x = input.query.clone();
        let inputs = self.project([input.query, input.key, input.value], [first, 0]);
        let options = self.options(&inputs.query, input.pattern);
        let output = self.attend(inputs, &options);
        AttentionOutput {
            context: self.project_output(output.context, x),
            weights: output.weights,
        }
    }

    /// Resamples the random features if the mechanism resamples them and its interval divides
    /// `step`, the number of the training step that comes next; see
    /// [`ResampledFeatures::resample_before`](crate::scan::ResampledFeatures::resample_before).
    pub fn resample_features_before(&self, step: u64) {
        if let Some(features) = &self.params.features {
            features.resample_before(step);
        }
    }

    /// Floating-point operations of the matmuls of one forward pass over one sequence, two per
    /// multiply-add: the projections, and the mechanism over the visible pairs of query and key.
    /// A training pass takes about three times as many.
    ///
    /// # Panics
    ///
    /// If `seq_q` or `seq_k` is 0.
    pub fn flops(&self, seq_q: usize, seq_k: usize, causal: bool) -> f64 {
        let elements = |linear: &Linear| linear.weight.dims().iter().product::<usize>();
        let gate = self.gate.as_ref().map_or(0, elements);
        let per_query = elements(&self.query) + elements(&self.output) + gate;
        let latent = self
            .latent
            .as_ref()
            .map_or(0, |latent| elements(&latent.key));
        let per_key = self.key.as_ref().map_or(0, elements) + elements(&self.value) + latent;
        let projections = seq_q * per_query + seq_k * per_key;
        let shape = AttentionShape {
            batch: 1,
            heads: self.n_heads,
            kv_heads: self.n_heads_kv,
            seq_q,
            seq_k,
            d_head: self.d_head + self.rope,
            d_value: self.d_head,
        };
        let pattern = if causal {
            Pattern::Causal
        } else {
            Pattern::Full
        };
        let options = AttentionOptions::new().with_pattern(pattern);
        2.0 * projections as f64
            + mechanisms::implementation(&self.mechanism).flops(&shape, &options)
    }

    /// The mechanism with its parameters.
    fn attend(&self, inputs: Inputs, options: &AttentionOptions) -> AttentionOutput {
        let params = &self.call_params(&inputs.query);
        mechanisms::implementation(&self.mechanism).forward(inputs, Call { params, options })
    }

    fn call_params(&self, query: &Tensor<4>) -> Params {
        self.params.for_mode(if self.is_training(query) {
            Mode::Training
        } else {
            Mode::Inference
        })
    }

    /// The gates of the positions of a key input, if the mechanism has them.
    fn gates(&self, key: &Tensor<3>) -> Option<Gates> {
        let [.., d_input] = key.dims();
        let sizes = HeadSizes {
            heads: self.n_heads,
            kv_heads: self.n_heads_kv,
            d_head: self.d_head,
            d_input,
        };
        mechanisms::implementation(&self.mechanism).gates(&self.params, sizes, key.clone())
    }

    /// Queries, keys and values by head; queries and keys start at the given positions.
    fn project(&self, [query, key, value]: [Tensor<3>; 3], first: [i64; 2]) -> Inputs {
        if let Some(latent) = &self.latent {
            let rows = self.latent_rows(latent, key, first[1]);
            return self.latent_inputs(latent, query, first[0], rows);
        }
        let gates = self.gates(&key);
        let [query, key] = self.query_and_key([query, key], first);
        let value = self.values(value);
        Inputs {
            gates,
            ..Inputs::new([query, key, value])
        }
    }

    /// Projected and convolved queries, keys and values by head.
    fn by_head(&self, [query, key, value]: [Tensor<3>; 3], first: i64) -> [Tensor<4>; 3] {
        let query = split_heads(query, self.n_heads);
        let key = split_heads(key, self.n_heads_kv);
        [
            self.encode_positions(query, &self.query_norm, first),
            self.encode_positions(key, &self.key_norm, first),
            split_heads(value, self.n_heads_kv),
        ]
    }

    /// The short convolution of a projection, if the layer has one.
    fn convolve(
        &self,
        weight: fn(&ShortConvolution) -> &Param<Tensor<2>>,
        projected: Tensor<3>,
    ) -> Tensor<3> {
        match &self.params.short_conv {
            Some(convolution) => causal_convolution(projected, weight(convolution).val()),
            None => projected,
        }
    }

    fn query_and_key(
        &self,
        [query, key]: [Tensor<3>; 2],
        [first_query, first_key]: [i64; 2],
    ) -> [Tensor<4>; 2] {
        let query = self.queries(query, first_query);
        let key = match &self.key {
            Some(_) => self.keys(key, first_key),
            None => query.clone(),
        };
        [query, key]
    }

    fn queries(&self, query: Tensor<3>, first: i64) -> Tensor<4> {
        let query = self.convolve(|of| &of.query, project(&self.query, query));
        let query = split_heads(query, self.n_heads);
        self.encode_positions(query, &self.query_norm, first)
    }

    fn keys(&self, key: Tensor<3>, first: i64) -> Tensor<4> {
        if let Some(latent) = &self.latent {
            return self.keys_of_latent(latent, self.latent_rows(latent, key, first));
        }
        let key = self.convolve(|of| &of.key, project(self.key_projection(), key));
        let key = split_heads(key, self.n_heads_kv);
        self.encode_positions(key, &self.key_norm, first)
    }

    /// Panics if there is none.
    fn key_projection(&self) -> &Linear {
        let Some(projection) = &self.key else {
            panic!(
                "multi-head attention: {} computes its keys from its queries, so it cannot attend \
                 to another sequence",
                self.mechanism.mechanism()
            );
        };
        projection
    }

    fn values(&self, value: Tensor<3>) -> Tensor<4> {
        let value = self.convolve(|of| &of.value, project(&self.value, value));
        split_heads(value, self.n_heads_kv)
    }

    /// QK-norm and rotary position embedding.
    fn encode_positions(&self, tensor: Tensor<4>, norm: &Option<RmsNorm>, first: i64) -> Tensor<4> {
        let tensor = match norm {
            Some(norm) => rms_norm(norm.gamma.val(), norm.epsilon, tensor),
            None => tensor,
        };
        if self.latent.is_none() {
            return self.rotate(tensor, first);
        }
        let [.., width] = tensor.dims();
        let others = tensor.clone().slice_dim(3, 0..self.d_head);
        let rotary = self.rotate(tensor.slice_dim(3, self.d_head..width), first);
        Tensor::cat(vec![others, rotary], 3)
    }

    fn rotate(&self, tensor: Tensor<4>, first: i64) -> Tensor<4> {
        match self.positions {
            Positions::Rotary(rotary) => rotate(tensor, first, &rotary),
            Positions::None | Positions::Alibi => tensor,
        }
    }

    fn default_scale(&self) -> f64 {
        mechanisms::implementation(&self.mechanism).default_scale(self.d_head + self.rope)
    }

    fn is_training(&self, query: &Tensor<4>) -> bool {
        self.dropout.training.is_enabled() && query.device().is_autodiff()
    }

    fn options(&self, query: &Tensor<4>, pattern: Pattern) -> AttentionOptions {
        AttentionOptions {
            pattern,
            // `None` is the mechanism's default.
            scale: (self.temperature != 1.0).then(|| self.default_scale() / self.temperature),
            softcap: self.softcap,
            alibi: (self.positions == Positions::Alibi).then(|| alibi_slopes(self.n_heads)),
            dropout: (self.is_training(query) && self.dropout.prob > 0.0)
                .then(|| Dropout::new(self.dropout.prob, next_seed(&query.device()))),
            assume_finite: self.assume_finite,
            ..AttentionOptions::new()
        }
    }

    /// `[batch, heads, seq, d_head]` to `[batch, seq, d_model]`, for queries computed from `x`.
    fn project_output(&self, context: Tensor<4>, x: Tensor<3>) -> Tensor<3> {
        let [batch, heads, seq, d_head] = context.dims();
        let context = mechanisms::implementation(&self.mechanism)
            .finish(&self.params, context)
            .swap_dims(1, 2)
            .reshape([batch, seq, heads * d_head]);
        let context = match &self.gate {
            Some(gate) => context * activation::sigmoid(project(gate, x)),
            None => context,
        };
        project(&self.output, context)
    }
}

/// `[batch, seq, d_in]` to `[batch, seq, d_out]`.
fn project(projection: &Linear, x: Tensor<3>) -> Tensor<3> {
    linear(projection, Activation::Identity, x)
}
