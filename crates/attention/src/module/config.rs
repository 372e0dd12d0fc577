//! How a multi-head attention is made.

use burn::config::Config;
use burn::nn::{DropoutConfig, Initializer, LinearConfig, RmsNormConfig};
use burn::tensor::Device;
use zoo_spec::KvHeads;

use super::{MultiHeadAttention, MultiHeadError};
use crate::mechanisms::{self, HeadSizes, Mechanism, MechanismConfig};
use crate::positions::Positions;

/// Configuration of a [`MultiHeadAttention`]; `init` makes one.
///
/// ```
/// # use zoo_attention::{Mechanism, MultiHeadAttentionConfig};
/// // 8 query heads over 2 key and value heads, each query seeing its neighbours.
/// let config = MultiHeadAttentionConfig::new(512, 8)
///     .with_kv_heads(Some(2))
///     .with_mechanism(Mechanism::SlidingWindow.into());
/// ```
#[derive(Config, Debug)]
pub struct MultiHeadAttentionConfig {
    /// Numbers that go in and come out for each place.
    pub d_model: usize,
    /// Query heads.
    pub heads: usize,
    /// The mechanism and its sizes. Default: flash.
    #[config(default = "Mechanism::Flash.into()")]
    pub mechanism: MechanismConfig,
    /// Key and value heads, shared by as many query heads each; `None` is as many as the
    /// mechanism says, else one for each.
    pub kv_heads: Option<usize>,
    /// Numbers in a head; `None` is `d_model / heads`.
    pub d_head: Option<usize>,
    /// Numbers of each place that keys are made of; `None` is `d_model`.
    pub kdim: Option<usize>,
    /// Numbers of each place that values are made of; `None` is `d_model`.
    pub vdim: Option<usize>,
    /// How heads learn about places. Default: not at all.
    #[config(default = "Positions::None")]
    pub positions: Positions,
    /// Whether queries and keys are normalised, each head for itself. Default: no.
    #[config(default = false)]
    pub qk_norm: bool,
    /// What scores are divided by besides: above 1 spreads attention out, below 1 sharpens
    /// it. Default: 1.
    #[config(default = 1.0)]
    pub temperature: f64,
    /// Cap of the scores, `softcap · tanh(score / softcap)`; `None` is no cap.
    pub softcap: Option<f64>,
    /// The share of weights forgotten while training. Default: none.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether masked keys and values may be assumed to be finite:
    /// [`AttentionOptions::assume_finite`](crate::AttentionOptions::assume_finite). Default: no.
    #[config(default = false)]
    pub assume_finite: bool,
    /// Whether queries have a bias. Default: yes.
    #[config(default = true)]
    pub query_bias: bool,
    /// Whether keys have a bias, where they are not made of the queries. Default: yes.
    #[config(default = true)]
    pub key_bias: bool,
    /// Whether values have a bias. Default: yes.
    #[config(default = true)]
    pub value_bias: bool,
    /// Whether the result has a bias. Default: yes.
    #[config(default = true)]
    pub output_bias: bool,
    /// How the matrices are drawn. Default: burn-nn's.
    #[config(
        default = "Initializer::KaimingUniform{gain: 1.0 / 3f64.sqrt(), fan_out_only: false}"
    )]
    pub initializer: Initializer,
}

impl MultiHeadAttentionConfig {
    /// Makes the module.
    ///
    /// # Panics
    ///
    /// If that cannot be: see [`try_init`](Self::try_init).
    pub fn init(&self, device: &Device) -> MultiHeadAttention {
        self.try_init(device)
            .unwrap_or_else(|error| panic!("multi-head attention: {error}"))
    }

    /// Makes the module, for sizes that come from a file.
    ///
    /// # Errors
    ///
    /// [`MultiHeadError`] if sizes do not divide, or options exclude each other.
    pub fn try_init(&self, device: &Device) -> Result<MultiHeadAttention, MultiHeadError> {
        let (kv_heads, d_head) = self.check()?;
        let heads = self.heads;
        let [kdim, vdim] = [self.kdim, self.vdim].map(|size| size.unwrap_or(self.d_model));
        let linear = |from: usize, to: usize, bias: bool| {
            LinearConfig::new(from, to)
                .with_bias(bias)
                .with_initializer(self.initializer.clone())
                .init(device)
        };
        let norm = || {
            self.qk_norm
                .then(|| RmsNormConfig::new(d_head).init(device))
        };
        let params =
            mechanisms::of(&self.mechanism).init_params(HeadSizes { heads, d_head }, device);
        let has_keys = !self.makes_keys_of_queries();
        Ok(MultiHeadAttention {
            query: linear(self.d_model, heads * d_head, self.query_bias),
            key: has_keys.then(|| linear(kdim, kv_heads * d_head, self.key_bias)),
            value: linear(vdim, kv_heads * d_head, self.value_bias),
            output: linear(heads * d_head, self.d_model, self.output_bias),
            query_norm: norm(),
            key_norm: norm().filter(|_| has_keys),
            params,
            dropout: DropoutConfig::new(self.dropout).init(),
            mechanism: self.mechanism,
            positions: self.positions,
            temperature: self.temperature,
            softcap: self.softcap,
            assume_finite: self.assume_finite,
            heads,
            kv_heads,
            d_head,
        })
    }

    /// Whether the module can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// As [`try_init`](Self::try_init).
    pub fn validate(&self) -> Result<(), MultiHeadError> {
        self.check().map(|_| ())
    }

    /// Whether its keys are not projected but made of its queries.
    pub(super) fn makes_keys_of_queries(&self) -> bool {
        self.mechanism.capabilities().kv_heads == KvHeads::FromQueries
    }
}
