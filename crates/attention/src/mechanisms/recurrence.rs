//! Mechanisms that are a gated recurrence: what a layer computes gates from, and the rest of their
//! implementation.

use std::f64::consts::LN_10;

use burn::module::Param;
use burn::nn::{Linear, LinearConfig, RmsNormConfig};
use burn::tensor::{Device, Distribution, Tensor, activation};
use zoo_kernels::{Activation, linear};

use super::gates::{initial_log_decays, initial_strengths};
use super::{Attention, Call, Gates, HeadSizes, Inputs, MechanismParams, Params, ShortConvolution};
use crate::analysis::weights::{GatedWeights, WeightFunction};
use crate::precision::widen;
use crate::scan::{GatedState, RecurrentState, ScanKernel, Update, flops, gated, gated_kernel};
use crate::shape::split_heads;
use crate::{AttentionOptions, AttentionOutput, AttentionShape};

/// The decay of a state at a position with input `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decay {
    /// 1.
    None,
    /// `sigmoid(x·W)^(1/16)` for each row of the state.
    RootOfSigmoid,
    /// `exp(-rate · softplus(x·w))` for each head.
    Rate,
    /// The same for each row of the state.
    RatePerRow,
}

impl Decay {
    /// The number of decays of a head at a position, if there are any.
    fn width(self, d_head: usize) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Rate => Some(1),
            Self::RootOfSigmoid | Self::RatePerRow => Some(d_head),
        }
    }
}

/// The strength with which a position changes the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strength {
    /// 1.
    None,
    /// The `softplus` of the decay.
    StepSize,
    /// `sigmoid(x·w)`
    Sigmoid,
}

/// A mechanism that is a gated recurrence.
pub(crate) trait Recurrence {
    /// Name in error messages.
    const OP: &'static str;
    const UPDATE: Update;
    const DECAY: Decay;
    const STRENGTH: Strength;
    /// Whether the default scale is 1 instead of `1/sqrt(d_head)`.
    const IS_UNSCALED: bool = false;

    /// Whether a layer normalises the output of each head.
    fn head_norm(&self) -> bool;

    /// Positions of the convolution of queries, keys and values of a layer, if there is one.
    fn short_conv(&self) -> Option<usize>;
}

impl<T: Recurrence> Attention for T {
    fn default_scale(&self, d_head: usize) -> f64 {
        if T::IS_UNSCALED {
            1.0
        } else {
            1.0 / (d_head as f64).sqrt()
        }
    }

    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        let HeadSizes {
            kv_heads,
            d_head,
            d_input,
            ..
        } = sizes;
        let linear = |from: usize, to: usize| LinearConfig::new(from, to).init(device);
        // A product of two narrow matrices has far fewer parameters than the keys.
        let narrow = |rank: usize| {
            let input = LinearConfig::new(d_input, rank).with_bias(false);
            (
                Some(input.init(device)),
                Some(linear(rank, kv_heads * d_head)),
            )
        };
        let (decay_input, decay) = match T::DECAY {
            Decay::None => (None, None),
            Decay::RootOfSigmoid => narrow(16),
            Decay::Rate => (None, Some(linear(d_input, kv_heads))),
            Decay::RatePerRow => narrow(d_head),
        };
        let has_rate = matches!(T::DECAY, Decay::Rate | Decay::RatePerRow);
        let has_strength = T::STRENGTH == Strength::Sigmoid;
        let norm = RmsNormConfig::new(d_head).with_epsilon(1e-5);
        MechanismParams {
            decay_input,
            decay: decay.map(|decay| match has_rate {
                true => with_step_sizes(decay, device),
                false => decay,
            }),
            log_rate: has_rate.then(|| {
                let rates = Distribution::Uniform(1.0, 16.0);
                Param::from_tensor(Tensor::random([kv_heads], rates, device).log())
            }),
            strength: has_strength.then(|| linear(d_input, kv_heads)),
            head_norm: self.head_norm().then(|| norm.init(device)),
            short_conv: self
                .short_conv()
                .map(|size| ShortConvolution::init(size, sizes, device)),
            ..MechanismParams::default()
        }
    }

    fn gates(&self, params: &MechanismParams, sizes: HeadSizes, x: Tensor<3>) -> Option<Gates> {
        let decay = params.decay.as_ref().map(|projection| {
            let x = match &params.decay_input {
                Some(input) => linear(input, Activation::Identity, x.clone()),
                None => x.clone(),
            };
            widen(linear(projection, Activation::Identity, x)) // [batch, seq, kv_heads * width]
        });
        let strength = params.strength.as_ref().map(|projection| {
            let logits = widen(linear(projection, Activation::Identity, x.clone()));
            split_heads(activation::sigmoid(logits), sizes.kv_heads)
        });
        let Some(logits) = decay else {
            return Some(Gates {
                strength,
                ..Gates::default()
            });
        };
        let kv_heads = sizes.kv_heads;
        let logits = split_heads(logits, kv_heads);
        Some(match &params.log_rate {
            None => Gates {
                log_decay: Some(activation::log_sigmoid(logits).div_scalar(16.0)),
                strength,
                branches: None,
            },
            Some(log_rate) => {
                let steps = activation::softplus(logits, 1.0);
                let rates = widen(log_rate.val()).exp().reshape([1, kv_heads, 1, 1]);
                Gates {
                    log_decay: Some((steps.clone() * rates).neg()),
                    strength: match T::STRENGTH {
                        Strength::StepSize => Some(steps),
                        Strength::None | Strength::Sigmoid => strength,
                    },
                    branches: None,
                }
            }
        })
    }

    fn initial_gates(&self, key: &Tensor<4>, seq: usize) -> Option<Gates> {
        let [batch, kv_heads, _, d_head] = key.dims();
        let width = T::DECAY.width(d_head);
        let has_strength = T::STRENGTH != Strength::None;
        Some(Gates {
            log_decay: width.map(|width| initial_log_decays([batch, kv_heads, seq, width], key)),
            strength: has_strength.then(|| initial_strengths([batch, kv_heads, seq, 1], key)),
            branches: None,
        })
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let [_, _, seq_k, d_head] = inputs.key.dims();
        let gates = inputs
            .gates
            .or_else(|| self.initial_gates(&inputs.key, seq_k));
        let scale = call.options.scale.unwrap_or(self.default_scale(d_head));
        let tensors = [inputs.query, inputs.key, inputs.value];
        let gates = &gates.unwrap_or_default();
        gated(T::OP, tensors, gates, T::UPDATE, scale, call.options).into()
    }

    fn weight_fn(&self, inputs: &Inputs, _: &Params) -> WeightFunction {
        let [_, _, seq_k, _] = inputs.key.dims();
        let gates = inputs.gates.clone();
        let gates = gates.or_else(|| self.initial_gates(&inputs.key, seq_k));
        WeightFunction::Gated(Box::new(GatedWeights {
            op: T::OP,
            gates: gates.unwrap_or_default(),
            update: T::UPDATE,
        }))
    }

    fn state(&self, _: usize) -> Option<RecurrentState> {
        Some(RecurrentState::Gated(GatedState::new(T::UPDATE)))
    }

    fn scan_kernel(&self, query: &Tensor<4>, shape: &AttentionShape) -> Option<ScanKernel> {
        Some(gated_kernel(query, shape))
    }

    fn finish(&self, params: &MechanismParams, context: Tensor<4>) -> Tensor<4> {
        params.normalize_heads(context)
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        let erased = match T::UPDATE {
            Update::Add => 0.0,
            // The value that the state returns for each key.
            Update::Delta => {
                2.0 * (shape.kv_heads * shape.seq_k * shape.d_head * shape.d_value) as f64
            }
        };
        flops(shape, shape.d_head) + erased
    }
}

/// A projection whose biases are the inverse `softplus` of step sizes from 0.001 to 0.1, as Mamba has
/// them.
fn with_step_sizes(projection: Linear, device: &Device) -> Linear {
    let [_, count] = projection.weight.dims();
    let logarithms = Distribution::Uniform(-3.0 * LN_10, -LN_10);
    let steps = Tensor::<1>::random([count], logarithms, device).exp();
    let bias = steps.clone() + (steps.neg().exp().neg().add_scalar(1.0)).log();
    Linear {
        bias: Some(Param::from_tensor(bias)),
        ..projection
    }
}
