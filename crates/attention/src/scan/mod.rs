//! Linear attention with a feature map, computed in chunks: time and memory are linear in the
//! sequence length.
//!
//! On backends with kernels, the whole computation is one op with a hand-written backward pass: SIMD
//! kernels for tensors in host memory, CubeCL kernels on wgpu, Vulkan and CUDA. Elsewhere it is
//! composed of matmuls. [`ScanKernel`] lists the implementations.

#[allow(deprecated)] // Burn 0.22 is the last to include NdArray and LibTorch, which we support.
mod call;
mod chunked;
#[cfg_attr(
    not(any(feature = "flex", feature = "ndarray", feature = "tch")),
    allow(dead_code)
)]
mod cpu;
#[cfg(feature = "cube")]
mod cube;
mod features;
mod gated;
#[allow(deprecated)] // as above
#[cfg_attr(
    not(any(feature = "flex", feature = "ndarray", feature = "tch")),
    allow(dead_code, unused_imports, unused_macros)
)]
mod host;
mod kernel_choice;
mod key_mask;
#[allow(deprecated)] // as above
mod ops;
mod recurrent;
mod resample;
mod state;
mod weights;

use burn::backend::Dispatch;
use burn::tensor::{DType, Tensor};

pub(crate) use self::call::ScanMap;
use self::call::{ScanInputs, ScanSettings};
pub(crate) use self::chunked::causal;
pub use self::features::{FeatureMap, RandomFeatures};
pub(crate) use self::features::{Features, first_positions, taylor_count};
pub(crate) use self::gated::{GatedState, Update, gated, gated_kernel, gated_weights};
pub use self::kernel_choice::ScanKernel;
pub(crate) use self::kernel_choice::kernel_for;
pub(crate) use self::key_mask::KeyMask;
use self::ops::LinearScan;
pub(crate) use self::recurrent::RecurrentState;
pub use self::resample::ResampledFeatures;
pub use self::state::LinearState;
pub(crate) use self::weights::{linear_weights, retention_weights};
use crate::flash::DenseMask;
use crate::matmul::matmul;
use crate::precision::narrow;
use crate::{AttentionOptions, AttentionShape};

/// Floating-point operations of a forward pass: keys added to the state, queries applied to it.
pub(crate) fn flops(shape: &AttentionShape, features: usize) -> f64 {
    let rows = shape.heads * shape.seq_q + shape.kv_heads * shape.seq_k;
    2.0 * (rows * features * shape.d_value) as f64
}

/// Linear attention or retention as one op, in a type that the [selected kernel](kernel_for)
/// supports. `shape.d_head` is the width of queries and keys.
pub(crate) fn fused(
    tensors: [Tensor<4>; 3],
    key_mask: &KeyMask,
    shape: AttentionShape,
    map: ScanMap,
    scale: [f64; 2],
    dtype: DType,
) -> Tensor<4> {
    let settings = ScanSettings {
        shape,
        is_causal: key_mask.is_causal,
        map,
        scale,
    };
    let [query, key, value] = tensors.map(|tensor| narrow(tensor, dtype).into_dispatch());
    let inputs = ScanInputs::<Dispatch> {
        query,
        key,
        value,
        masked: match key_mask.masked.clone() {
            Some(masked) => DenseMask::Bool(masked.into_dispatch()),
            None => DenseMask::None,
        },
    };
    let context = <Dispatch as LinearScan>::linear_scan(inputs, settings);
    Tensor::from_dispatch(context)
}

/// The first `d_value` elements of each row, divided by the last.
pub(crate) fn weighted_mean(sums: Tensor<4>, d_value: usize) -> Tensor<4> {
    let total = sums.clone().slice_dim(3, d_value..d_value + 1);
    sums.slice_dim(3, 0..d_value) * normalizer(total)
}

/// The reciprocal of a sum of feature products; zero where the sum is below 1e-30.
pub(crate) fn normalizer(total: Tensor<4>) -> Tensor<4> {
    // Divided by its own detached value first, so that the square in the gradient of the
    // reciprocal is 1 and cannot underflow. Features are non-negative, so the sum is negligible
    // only if every term is.
    let size = total.clone().detach();
    let is_negligible = size.clone().lower_elem(1e-30);
    let size = size.mask_fill(is_negligible.clone(), 1.0);
    let total = (total / size.clone()).clamp_min(0.5);
    (total.recip() / size).mask_fill(is_negligible, 0.0)
}

/// Appends a value of one, whose weighted sum is the denominator of the weighted mean.
pub(crate) fn append_ones(value: Tensor<4>) -> Tensor<4> {
    let ones = value.clone().slice_dim(3, 0..1).ones_like();
    Tensor::cat(vec![value, ones], 3)
}

/// `φ(q) · S`: queries `[batch, heads, seq_q, features]` times the state of their key/value head,
/// `[batch, kv_heads, features, width]`.
pub(crate) fn grouped_matmul(query: Tensor<4>, state: Tensor<4>) -> Tensor<4> {
    let [batch, heads, seq_q, features] = query.dims();
    let [_, kv_heads, _, width] = state.dims();
    // Query heads that share a key/value head are concatenated along the sequence.
    let query = query.reshape([batch, kv_heads, heads / kv_heads * seq_q, features]);
    matmul(query, state).reshape([batch, heads, seq_q, width])
}

/// Panics if the options change scores or weights, which linear attention does not compute.
pub(crate) fn reject_score_options(op: &str, options: &AttentionOptions) {
    reject(op, options, "it computes no scores or weights");
}

/// Panics if the options change scores or weights of pairs of a query and a key, which attention to
/// landmarks or projected keys does not compute.
pub(crate) fn reject_options_of_pairs(op: &str, options: &AttentionOptions) {
    let reason = "it computes no scores or weights of pairs of queries and keys";
    reject(op, options, reason);
}

fn reject(op: &str, options: &AttentionOptions, reason: &str) {
    let unsupported = [
        ("softcap", options.softcap.is_some()),
        ("ALiBi", options.alibi.is_some()),
        ("bias", options.has_bias()),
        ("a score function", options.score_mod.is_some()),
        ("dropout", options.dropout.is_some()),
    ];
    for (name, is_set) in unsupported {
        assert!(!is_set, "{op}: {name} is not supported, since {reason}");
    }
}
