//! Configuration of [`MultiHeadAttention`].

use burn::config::Config;
use burn::nn::{DropoutConfig, Initializer, LinearConfig, RmsNormConfig};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use zoo_spec::{KvHeads, Mechanism};

use super::MultiHeadAttention;
use super::latent::{LatentProjections, LatentSizes, up_projection};
use crate::AttentionError;
use crate::mechanisms::{self, HeadSizes, MechanismConfig};
use crate::positions::Positions;

zoo_spec::builder! {
    /// Configuration of a [`MultiHeadAttention`].
    ///
    /// ```
    /// # use zoo_attention::mechanisms::SlidingWindow;
    /// # use zoo_attention::MultiHeadAttentionConfig;
    /// // 8 query heads that share 2 key and value heads, each query attending to 128 keys on
    /// // either side.
    /// let config = MultiHeadAttentionConfig::new(512, 8)
    ///     .with_n_heads_kv(2)
    ///     .with_mechanism(SlidingWindow { window: 128 });
    /// ```
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct MultiHeadAttentionConfig {
        /// Model dimension: elements of each position of the query and the output.
        d_model: usize,
        /// Query heads.
        n_heads: usize,
        ;
        /// The mechanism, with its sizes. Default: flash.
        mechanism: MechanismConfig = Mechanism::Flash.into(),
        /// Key and value heads, each shared by `n_heads / n_heads_kv` query heads. Default: what
        /// the mechanism determines, otherwise `n_heads`.
        n_heads_kv: Option<usize> = None,
        /// Head dimension. Default: `d_model / n_heads`.
        d_head: Option<usize> = None,
        /// Dimension of the key and value inputs. Default: `d_model`.
        d_context: Option<usize> = None,
        /// Dimension of the value input where it differs from that of the key input (PyTorch's
        /// `vdim`). Default: `d_context`.
        d_value_input: Option<usize> = None,
        /// Position encoding of queries and keys. Default: none.
        positions: Positions = Positions::None,
        /// Whether queries and keys are RMS-normalised per head (QK-norm); with `mla` the queries only,
        /// since the latent vectors of the keys always are. Default: no.
        qk_norm: bool = false,
        /// Epsilon of QK-norm. Default: 1e-5.
        norm_epsilon: f64 = 1e-5,
        /// Whether the context is multiplied by a sigmoid gate, computed from the query input, before
        /// the output projection. Default: no.
        output_gate: bool = false,
        /// Divides the scores: above 1 flattens the weights, below 1 sharpens them. Default: 1.
        temperature: f64 = 1.0,
        /// Cap of the scores, `softcap · tanh(score / softcap)`. Default: no cap.
        softcap: Option<f64> = None,
        /// Dropout probability of the attention weights. Default: 0.
        dropout: f64 = 0.0,
        /// Whether masked keys and values may be assumed to be finite:
        /// [`AttentionOptions::assume_finite`](crate::AttentionOptions::assume_finite). Default: no.
        assume_finite: bool = false,
        /// Whether the query projection has a bias. Default: yes.
        query_bias: bool = true,
        /// Whether the key projection has a bias. Default: yes.
        key_bias: bool = true,
        /// Whether the value projection has a bias, which that of `mla` never has. Default: yes.
        value_bias: bool = true,
        /// Whether the output projection and the gate have a bias. Default: yes.
        output_bias: bool = true,
        /// Initializer of the projections. Default: that of burn-nn's layer.
        initializer: Initializer = Initializer::KaimingUniform {
            gain: 1.0 / 3f64.sqrt(),
            fan_out_only: false,
        },
    }
}

impl Config for MultiHeadAttentionConfig {}

impl MultiHeadAttentionConfig {
    /// Initializes the module.
    ///
    /// # Panics
    ///
    /// If the configuration is invalid: see [`try_init`](Self::try_init).
    pub fn init(&self, device: &Device) -> MultiHeadAttention {
        self.try_init(device)
            .unwrap_or_else(|error| panic!("multi-head attention: {error}"))
    }

    /// Initializes the module, for sizes that a user provides.
    ///
    /// # Errors
    ///
    /// [`AttentionError`] if sizes do not divide, a value is out of range, or the mechanism does
    /// not support an option.
    pub fn try_init(&self, device: &Device) -> Result<MultiHeadAttention, AttentionError> {
        let (n_heads_kv, d_head) = self.check()?;
        let n_heads = self.n_heads;
        let [d_key, d_value] = self.input_dims();
        let linear = |from: usize, to: usize, bias: bool| {
            LinearConfig::new(from, to)
                .with_bias(bias)
                .with_initializer(self.initializer.clone())
                .init(device)
        };
        let norm = |width: usize| {
            let config = RmsNormConfig::new(width).with_epsilon(self.norm_epsilon);
            self.qk_norm.then(|| config.init(device))
        };
        let sizes = HeadSizes {
            heads: n_heads,
            kv_heads: n_heads_kv,
            d_head,
            d_input: d_key,
        };
        let params = mechanisms::implementation(&self.mechanism).init_params(sizes, device);
        let has_keys = !self.computes_keys_from_queries();
        let sizes = self.latent_sizes(d_head);
        let rope = sizes.map_or(0, |sizes| sizes.rope);
        let d_keys = sizes.map_or(n_heads_kv * d_head, |sizes| sizes.latent + sizes.rope);
        Ok(MultiHeadAttention {
            query: linear(self.d_model, n_heads * (d_head + rope), self.query_bias),
            key: has_keys.then(|| linear(d_key, d_keys, self.key_bias)),
            value: match sizes {
                Some(sizes) => up_projection(sizes, &self.initializer, device),
                None => linear(d_value, n_heads_kv * d_head, self.value_bias),
            },
            latent: sizes.map(|sizes| LatentProjections::init(sizes, &self.initializer, device)),
            output: linear(n_heads * d_head, self.d_model, self.output_bias),
            gate: self
                .output_gate
                .then(|| linear(self.d_model, n_heads * d_head, self.output_bias)),
            query_norm: norm(d_head + rope),
            // Latent vectors always have a norm.
            key_norm: norm(d_head).filter(|_| has_keys && sizes.is_none()),
            params,
            dropout: DropoutConfig::new(self.dropout).init(),
            mechanism: self.mechanism,
            positions: self.positions,
            temperature: self.temperature,
            softcap: self.softcap,
            assume_finite: self.assume_finite,
            n_heads,
            n_heads_kv,
            d_head,
            rope,
        })
    }

    /// Checks the configuration without a device. Errors are those of [`try_init`](Self::try_init).
    pub fn validate(&self) -> Result<(), AttentionError> {
        self.check().map(|_| ())
    }

    /// Dimensions of the key and the value input.
    pub(super) fn input_dims(&self) -> [usize; 2] {
        let d_key = self.d_context.unwrap_or(self.d_model);
        [d_key, self.d_value_input.unwrap_or(d_key)]
    }

    /// Sizes of the projections of `mla`, `None` for the others.
    pub(super) fn latent_sizes(&self, d_head: usize) -> Option<LatentSizes> {
        match self.mechanism {
            MechanismConfig::Mla(mla) => Some(LatentSizes::new(mla, self.n_heads, d_head)),
            _ => None,
        }
    }

    pub(super) fn computes_keys_from_queries(&self) -> bool {
        self.mechanism.capabilities().kv_heads == KvHeads::FromQueries
    }
}
