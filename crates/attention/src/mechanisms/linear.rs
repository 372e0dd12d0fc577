//! Linear attention: time and memory are linear in the sequence length. The weight of a key is a
//! dot product of features instead of an exponential, so the sums can be reordered:
//!
//! ```text
//! context_i = φ(q_i) · S / (φ(q_i) · z)       S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j)
//! ```
//!
//! over the visible keys of query `i`: all of them, or those up to its own position. The
//! `seq_q x seq_k` weights are never materialised, forward or backward.
//!
//! Katharopoulos et al., [Transformers are RNNs](https://arxiv.org/abs/2006.16236), 2020.

use burn::tensor::Tensor;
use zoo_spec::Linear;

use super::{Attention, Call, Inputs};
use crate::matmul::matmul;
use crate::precision::{narrow, widen, widened};
use crate::scan::{
    FeatureMap, Features, KeyMask, ScanKernel, ScanMap, append_ones, causal, first_positions,
    fused, grouped_matmul, kernel_for, reject_score_options, weighted_mean,
};
use crate::{AttentionOptions, AttentionOutput, AttentionShape};

impl Attention for Linear {
    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs {
            query, key, value, ..
        } = inputs;
        linear(query, key, value, self.feature_map.into(), call.options).into()
    }

    fn default_scale(&self, _: usize) -> f64 {
        1.0
    }

    fn features(&self) -> Option<FeatureMap> {
        Some(self.feature_map.into())
    }

    fn scan_kernel(&self, query: &Tensor<4>, shape: &AttentionShape) -> Option<ScanKernel> {
        Some(kernel_for(query, shape, shape.d_head).0)
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        crate::scan::flops(shape, shape.d_head)
    }
}

/// Linear attention with a feature map.
///
/// Half-precision tensors are computed in `f32` and rounded once, at the end. A query whose weights
/// sum to less than 1e-30 gets zeros, like a fully masked one. Random features are divided by the
/// largest of the keys so far, on a GPU by that of all keys of a head, so that far smaller ones may
/// underflow.
///
/// Shapes are those of [`flash`](crate::flash()).
///
/// # Panics
///
/// If the shapes do not match, or the tensors do not have the same dtype of at most 32 bits; if the
/// pattern is not built from full, causal, key lengths and key padding; if the options change
/// scores or weights.
pub fn linear(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    features: FeatureMap,
    options: &AttentionOptions,
) -> Tensor<4> {
    let op = "linear attention";
    let shape = options.check_call(op, [&query, &key, &value]);
    reject_score_options(op, options);
    let features = features.prepare(op, &query, shape.seq_q.max(shape.seq_k));
    let key_mask = KeyMask::from_pattern(op, &options.pattern, &shape, &query.device());

    let stored = query.dtype();
    let scale = features.scale(options.scale, shape.default_scale());
    let count = features.count(shape.d_head);
    let (kernel, dtype) = kernel_for(&query, &shape, count);
    log::trace!("{op}: kernel {kernel}, {shape:?}");
    let is_fused = match (kernel, &features) {
        (ScanKernel::Cpu, Features::Elu1 | Features::Relu | Features::Exponential(_))
        | (ScanKernel::Cube, Features::Elu1 | Features::Relu) => true,
        (_, Features::Cosine(_) | Features::Taylor)
        | (ScanKernel::Cube, Features::Exponential(_))
        | (ScanKernel::Composite, _) => false,
    };
    if is_fused {
        let map = features.scan_map();
        let context = fused([query, key, value], &key_mask, shape, map, scale, dtype);
        return narrow(context, stored);
    }
    let [query, key, value] = [query, key, value].map(widen);
    let [first_query, first_key] = first_positions(&shape);
    let query = features.map_queries(query, scale, first_query..);
    let (key, value, poison) = key_mask.finite(key, value, &shape, options.assume_finite);
    let key = features.map_keys(key, scale, &key_mask, first_key); // [batch, kv_heads, seq_k, features]
    let context = match kernel {
        ScanKernel::Cpu | ScanKernel::Cube => {
            let tensors = [query, key, value];
            let shape = AttentionShape {
                d_head: count,
                ..shape
            };
            let map = ScanMap::Features;
            fused(tensors, &key_mask, shape, map, [1.0, 1.0], widened(dtype))
        }
        ScanKernel::Composite => {
            let value = append_ones(value); // [batch, kv_heads, seq_k, d_value + 1]
            let sums = if key_mask.is_causal {
                causal(query, key, value, &shape, None)
            } else {
                grouped_matmul(query, matmul(key.swap_dims(2, 3), value))
            }; // [batch, heads, seq_q, d_value + 1]
            weighted_mean(sums, shape.d_value)
        }
    };
    let context = match poison {
        Some(poison) => context + poison,
        None => context,
    };
    narrow(context, stored)
}
