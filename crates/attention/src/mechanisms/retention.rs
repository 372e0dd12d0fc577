//! Retention: causal linear attention with an exponential decay per head.
//!
//! ```text
//! context_i = Σ_(j ≤ i) γ^(i - j) scale (q_i · k_j) v_j
//! ```
//!
//! Sun et al., [Retentive Network](https://arxiv.org/abs/2307.08621), 2023.

use burn::tensor::Tensor;
use zoo_spec::Retention;

use super::{Attention, Call, Inputs, MechanismParams, Params};
use crate::analysis::weights::WeightFunction;
use crate::precision::{narrow, widen};
use crate::scan::{
    KeyMask, LinearState, RecurrentState, ScanKernel, ScanMap, causal, fused, kernel_for,
    reject_score_options,
};
use crate::{AttentionOptions, AttentionOutput, AttentionShape};

impl Attention for Retention {
    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs {
            query, key, value, ..
        } = inputs;
        let decays = retention_decays(key.dims()[1]);
        retention(query, key, value, &decays, call.options).into()
    }

    fn weight_fn(&self, inputs: &Inputs, _: &Params) -> WeightFunction {
        WeightFunction::Retention(retention_decays(inputs.key.dims()[1]))
    }

    fn state(&self, kv_heads: usize) -> Option<RecurrentState> {
        let state = LinearState::from_decays(retention_decays(kv_heads));
        Some(RecurrentState::Linear(state))
    }

    fn finish(&self, _: &MechanismParams, context: Tensor<4>) -> Tensor<4> {
        if self.group_norm {
            group_norm(context)
        } else {
            context
        }
    }

    fn scan_kernel(&self, query: &Tensor<4>, shape: &AttentionShape) -> Option<ScanKernel> {
        Some(kernel_for(query, shape, shape.d_head).0)
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        crate::scan::flops(shape, shape.d_head)
    }
}

/// Causal linear attention with exponential decay.
///
/// The result is not normalised; [`MultiHeadAttention`](crate::MultiHeadAttention) does that if its
/// mechanism has a `group_norm`. Half-precision tensors are computed in `f32` and rounded once, at
/// the end.
///
/// Shapes are those of [`flash`](crate::flash()); there is one decay for each key/value head.
///
/// # Panics
///
/// As [`linear`](crate::mechanisms::linear::linear); if the pattern is not causal; if the number of decays does not
/// match or a decay is not between 0 and 1.
pub fn retention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    decays: &[f64],
    options: &AttentionOptions,
) -> Tensor<4> {
    decayed("retention", [query, key, value], decays, options)
}

/// Causal linear attention with constant decays, for a mechanism of this name.
pub(super) fn decayed(
    op: &str,
    [query, key, value]: [Tensor<4>; 3],
    decays: &[f64],
    options: &AttentionOptions,
) -> Tensor<4> {
    let shape = options.check_call(op, [&query, &key, &value]);
    reject_score_options(op, options);
    assert!(
        decays.len() == shape.kv_heads,
        "{op}: expected one decay for each of the {} key and value heads, got {}",
        shape.kv_heads,
        decays.len()
    );
    if let Some(decay) = decays.iter().find(|decay| !(0.0..=1.0).contains(*decay)) {
        panic!("{op}: a decay must be from 0 to 1, got {decay}");
    }
    let key_mask = KeyMask::from_pattern(op, &options.pattern, &shape, &query.device());
    key_mask.check_causal(op, &options.pattern);

    let stored = query.dtype();
    let scale = options.scale.unwrap_or(shape.default_scale());
    let (kernel, dtype) = kernel_for(&query, &shape, shape.d_head);
    log::trace!("{op}: kernel {kernel}, {shape:?}");
    match kernel {
        ScanKernel::Cpu | ScanKernel::Cube => {
            let tensors = [query, key, value];
            let map = ScanMap::Decay(decays.into());
            let context = fused(tensors, &key_mask, shape, map, [scale, 1.0], dtype);
            return narrow(context, stored);
        }
        ScanKernel::Composite => {}
    }
    let [query, key, value] = [query, key, value].map(widen);
    let query = query.mul_scalar(scale);
    let (key, value, poison) = key_mask.finite(key, value, &shape, options.assume_finite);
    let context = causal(query, key, value, &shape, Some(decays));
    let context = match poison {
        Some(poison) => context + poison,
        None => context,
    };
    narrow(context, stored)
}

/// The decays of the paper, `1 - 2^(-5 - head)`.
pub fn retention_decays(heads: usize) -> Vec<f64> {
    (0..heads)
        .map(|head| 1.0 - (-5.0 - head as f64).exp2())
        .collect()
}

/// The paper's GroupNorm, one group per head and without parameters, of a context
/// `[batch, heads, seq, d_value]`: normalised over `d_value` at every position, in `f32`.
fn group_norm(context: Tensor<4>) -> Tensor<4> {
    let stored = context.dtype();
    let context = widen(context);
    let centred = context.clone() - context.mean_dim(3);
    let variance = centred.clone().square().mean_dim(3);
    narrow(centred / variance.add_scalar(EPSILON).sqrt(), stored)
}

/// The default of PyTorch's GroupNorm.
const EPSILON: f64 = 1e-5;
