//! Linear recurrences with gates that depend on the input, in chunks:
//!
//! ```text
//! S_t = a_t S_(t-1) + b_t k_t v_tᵀ                          `Update::Add`
//! S_t = (I - b_t k_t k_tᵀ) a_t S_(t-1) + b_t k_t v_tᵀ       `Update::Delta`
//! context_t = scale · q_t · S_t
//! ```
//!
//! The decay `a_t` is a number, or one for each row of the state; the strength `b_t` is a number.
//!
//! Yang et al., [Gated Linear Attention](https://arxiv.org/abs/2312.06635), 2023; Dao and Gu,
//! [Mamba-2](https://arxiv.org/abs/2405.21060), 2024; Yang et al., [DeltaNet](https://arxiv.org/abs/2406.06484),
//! 2024.
//!
//! Tensors in host memory have kernels of their own. Elsewhere, chunks are composed of matmuls, and on CubeCL
//! backends a kernel computes the recurrence over chunks.

mod chunks;
#[cfg_attr(
    not(any(feature = "flex", feature = "ndarray", feature = "tch")),
    allow(dead_code)
)]
mod cpu;
#[cfg(feature = "cube")]
mod cube;
#[allow(deprecated)] // Burn 0.22 is the last to include NdArray and LibTorch, which we support.
#[cfg_attr(
    not(any(feature = "flex", feature = "ndarray", feature = "tch")),
    allow(dead_code, unused_imports, unused_macros)
)]
mod host;
mod inverse;
#[allow(deprecated)] // as above
mod ops;
mod state;

use std::cmp::Ordering;

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};
use zoo_kernels::hosts::location::is_on_host;

use self::chunks::{Sequence, scan};
use self::ops::{GatedInputs, GatedScan, GatedSettings};
pub(crate) use self::state::GatedState;
use super::{KeyMask, ScanKernel, reject_score_options};
use crate::mechanisms::Gates;
use crate::precision::{narrow, widen};
use crate::shape::{pad_rows, select_indices};
use crate::{AttentionOptions, AttentionShape};

/// What a position does to the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Update {
    /// Adds its value.
    Add,
    /// Replaces what the state returns for its key. Queries and keys are normalised.
    Delta,
}

/// A gated recurrence over the keys that the pattern of the options allows. A masked position decays
/// the state, but changes nothing else.
///
/// Gates are `[batch, kv_heads, seq_k, 1]` or, for decays, `d_head` instead of 1.
pub(crate) fn gated(
    op: &str,
    [query, key, value]: [Tensor<4>; 3],
    gates: &Gates,
    update: Update,
    scale: f64,
    options: &AttentionOptions,
) -> Tensor<4> {
    let shape = options.check_call(op, [&query, &key, &value]);
    reject_score_options(op, options);
    gates.check(op, &shape);
    let key_mask = KeyMask::from_pattern(op, &options.pattern, &shape, &query.device());
    key_mask.check_causal(op, &options.pattern);
    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let query = align_queries(query, &shape);
    let gates = gates.map(widen);
    let context = match gated_kernel(&query, &shape) {
        ScanKernel::Cpu => {
            let [key, value] = [key, value].map(|tensor| key_mask.clear(tensor));
            let context = fused([query, key, value], gates, update, scale, shape);
            align_context(context, &shape)
        }
        ScanKernel::Cube | ScanKernel::Composite => {
            let (key, value, poison) = key_mask.finite(key, value, &shape, options.assume_finite);
            let (query, key) = match update {
                Update::Add => (query, key),
                Update::Delta => (normalize(query), normalize(key)),
            };
            let sequence = Sequence {
                query: Some(query.mul_scalar(scale)),
                key,
                value,
                gates,
                update,
            };
            let context = scan(sequence, None).0.expect("queries were given");
            let context = align_context(context, &shape);
            match poison {
                Some(poison) => context + poison,
                None => context,
            }
        }
    };
    narrow(context, stored)
}

/// The kernel of a call with these queries.
pub(crate) fn gated_kernel(query: &Tensor<4>, shape: &AttentionShape) -> ScanKernel {
    if is_on_host(query) {
        return ScanKernel::Cpu;
    }
    #[cfg(feature = "cube")]
    if cube::supports(query, shape) {
        return ScanKernel::Cube;
    }
    #[cfg(not(feature = "cube"))]
    let _ = shape;
    ScanKernel::Composite
}

/// The recurrence as one op, of tensors in host memory.
fn fused(
    [query, key, value]: [Tensor<4>; 3],
    gates: Gates,
    update: Update,
    scale: f64,
    shape: AttentionShape,
) -> Tensor<4> {
    let like = value.clone().slice_dim(3, 0..1);
    let log_decay = gates.log_decay.unwrap_or_else(|| like.zeros_like());
    let strength = gates.strength.unwrap_or_else(|| like.ones_like());
    let inputs = GatedInputs::<Dispatch> {
        query: query.into_dispatch(),
        key: key.into_dispatch(),
        value: value.into_dispatch(),
        log_decay: log_decay.into_dispatch(),
        strength: strength.into_dispatch(),
    };
    let settings = GatedSettings {
        shape: AttentionShape {
            seq_q: shape.seq_k,
            ..shape
        },
        update,
        scale,
    };
    Tensor::from_dispatch(<Dispatch as GatedScan>::gated_scan(inputs, settings))
}

/// The weights of the queries `rows`, `[batch, heads, rows, seq_k]`: the context with one-hot values.
pub(crate) fn gated_weights(
    op: &str,
    [query, key]: [Tensor<4>; 2],
    gates: &Gates,
    update: Update,
    scale: f64,
    options: &AttentionOptions,
    rows: &[usize],
) -> Tensor<4> {
    let [batch, kv_heads, seq_k, _] = key.dims();
    let stored = query.dtype();
    let one_hot = Tensor::<2>::eye(seq_k, &key.device());
    let one_hot = widen(one_hot).reshape([1, 1, seq_k, seq_k]);
    let one_hot = one_hot.expand([batch, kv_heads, seq_k, seq_k]);
    let tensors = [widen(query), widen(key), one_hot];
    let weights = gated(op, tensors, gates, update, scale, options);
    narrow(select_indices(weights, 2, rows), stored)
}

/// Rows divided by their Euclidean norm.
pub(crate) fn normalize(rows: Tensor<4>) -> Tensor<4> {
    let squares = rows.clone().square().sum_dim(3);
    rows / squares.add_scalar(1e-6).sqrt()
}

/// As many queries as keys: aligned at the end, with zeros for missing ones.
fn align_queries(query: Tensor<4>, shape: &AttentionShape) -> Tensor<4> {
    let (seq_q, seq_k) = (shape.seq_q, shape.seq_k);
    if seq_q <= seq_k {
        pad_rows(query, [seq_k - seq_q, 0], 0.0)
    } else {
        query.slice_dim(2, seq_q - seq_k..seq_q)
    }
}

/// The rows of the queries; zeros for those before the first key.
fn align_context(context: Tensor<4>, shape: &AttentionShape) -> Tensor<4> {
    let (seq_q, seq_k) = (shape.seq_q, shape.seq_k);
    match seq_q.cmp(&seq_k) {
        Ordering::Less => context.slice_dim(2, seq_k - seq_q..seq_k),
        Ordering::Equal => context,
        Ordering::Greater => pad_rows(context, [seq_q - seq_k, 0], 0.0),
    }
}

/// A state of zeros, `[batch, kv_heads, d_head, d_value]`.
fn zeros(dims: [usize; 4], device: &Device) -> Tensor<4> {
    Tensor::zeros(dims, (device, burn::tensor::DType::F32))
}
