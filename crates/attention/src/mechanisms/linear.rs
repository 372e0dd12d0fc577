//! Attention in time and memory that grow with the length alone. The weight of a key is
//! a product of features instead of an exponential, and products can be reordered:
//!
//! ```text
//! context_i = φ(q_i) · S / (φ(q_i) · z)       S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j)
//! ```
//!
//! over the keys that query `i` sees: all of them, or those up to its own place. There
//! are no `seq_q x seq_k` weights, forward or backward.
//!
//! Katharopoulos et al., [Transformers are RNNs](https://arxiv.org/abs/2006.16236), 2020.

use burn::tensor::Tensor;
use zoo_spec::Linear;

use super::{Attention, Inputs, Output, Params};
use crate::analysis::weighing::Weighing;
use crate::precision::{narrow, widen};
use crate::scan::{
    FeatureMap, LinearState, Sight, causal, heads, mean, read_out, refuse_scores, with_ones,
};
use crate::{AttentionOptions, AttentionShape};

impl Attention for Linear {
    fn forward(&self, inputs: Inputs, _: &Params, options: &AttentionOptions) -> Output {
        let Inputs { query, key, value } = inputs;
        linear(query, key, value, self.features.into(), options).into()
    }

    fn default_scale(&self, _: usize) -> f64 {
        1.0
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn weighing(&self, _: &Params, _: &Tensor<4>, _: &AttentionShape) -> Weighing {
        Weighing::Features(self.features.into())
    }

    fn features(&self) -> Option<FeatureMap> {
        Some(self.features.into())
    }

    fn state(&self, _: usize) -> Option<LinearState> {
        Some(LinearState::of_features(self.features.into()))
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        crate::scan::flops(shape, shape.d_head)
    }
}

/// Attends by a product of features.
///
/// Half-precision tensors are computed in `f32` and rounded once, at the end. A query
/// whose features meet those of no key, so that all its products sum to less than 1e-30,
/// gets zeros, like one that sees nothing. Random features are taken as shares of the
/// largest of all keys of a head: before that one, keys that are far smaller count as none.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - value: `[batch, kv_heads, seq_k, d_value]`
/// - result: `[batch, heads, seq_q, d_value]`
///
/// # Panics
///
/// If the tensors do not fit together or are not of one number type of up to 32 bits; if
/// the pattern is more than full or causal, key lengths and key padding; if something is
/// to be done to scores, of which there are none.
pub fn linear(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    features: FeatureMap,
    options: &AttentionOptions,
) -> Tensor<4> {
    let op = "linear attention";
    let shape = options.check_call(op, [&query, &key, &value]);
    refuse_scores(op, options);
    let features = features.ready(op, &query);
    let sight = Sight::of(op, &options.pattern, &shape, &query.device());

    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let scale = features.scale(options.scale, &shape);
    let attend = |[query, key, value]: [Tensor<4>; 3], sight: &Sight, shape: &AttentionShape| {
        let query = features.of_queries(query, scale);
        let (key, value, poison) = sight.finite(key, value, shape, options.assume_finite);
        let key = features.of_keys(key, scale, sight); // [batch, kv_heads, seq_k, features]
        let value = with_ones(value); // [batch, kv_heads, seq_k, d_value + 1]
        let sums = if sight.is_causal {
            causal(query, key, value, shape, None)
        } else {
            read_out(query, key.swap_dims(2, 3).matmul(value))
        }; // [batch, heads, seq_q, d_value + 1]
        let context = mean(sums, shape.d_value);
        match poison {
            Some(poison) => context + poison,
            None => context,
        }
    };
    let context = heads::some_at_a_time([query, key, value], &sight, &shape, attend);
    narrow(context, stored)
}
