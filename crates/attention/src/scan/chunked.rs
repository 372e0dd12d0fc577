//! Causal linear attention in chunks: linear time, by matmuls.
//!
//! ```text
//! result_i = Σ_(j ≤ i) γ^(i - j) (q_i · k_j) v_j
//! ```
//!
//! Within a chunk, scores are materialised and masked; everything before the chunk is summed into
//! one matrix, its state. The states of all chunks are prefix sums, computed hierarchically.
//!
//! Hua et al., [Transformer Quality in Linear Time](https://arxiv.org/abs/2202.10447), 2022;
//! Sun et al., [Retentive Network](https://arxiv.org/abs/2307.08621), 2023.

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::grouped_matmul;
use crate::AttentionShape;
use crate::matmul::matmul;
use crate::shape::pad_rows;

/// Positions in a chunk: large enough for efficient matmuls, small enough that the materialised
/// scores (`CHUNK` for each query) stay small.
const CHUNK: usize = 128;
/// Number of states that one matmul sums.
const GROUP: usize = 16;

/// Computes the sums above. Queries and keys are aligned at the end, and queries before the first
/// key get zeros. `decays` has one `γ` for each key/value head; `None` means 1.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, features]`
/// - key: `[batch, kv_heads, seq_k, features]`
/// - value: `[batch, kv_heads, seq_k, width]`
/// - result: `[batch, heads, seq_q, width]`
pub(crate) fn causal(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    shape: &AttentionShape,
    decays: Option<&[f64]>,
) -> Tensor<4> {
    let [batch, heads, seq_q, seq_k] = shape.scores();
    let (kv_heads, group) = (shape.kv_heads, shape.group());
    let [.., features] = query.dims();
    let [.., width] = value.dims();
    let decays = decays.unwrap_or(&[1.0]);
    if seq_q < seq_k {
        return after_other_keys(query, key, value, shape, decays);
    }

    // Zeros in front bring queries and keys to the same length; zeros at the end complete the last
    // chunk.
    let length = seq_q.max(seq_k);
    let chunk = CHUNK.min(length);
    let chunks = length.div_ceil(chunk);
    let after = chunks * chunk - length;
    let query = pad_rows(query, [length - seq_q, after], 0.0);
    let [key, value] = [key, value].map(|tensor| pad_rows(tensor, [length - seq_k, after], 0.0));

    // Query heads that share a key/value head are adjacent in each chunk.
    let query = query
        .reshape([batch, kv_heads, group, chunks, chunk, features])
        .swap_dims(2, 3)
        .reshape([batch, kv_heads, chunks, group * chunk, features]);
    let key = key.reshape([batch, kv_heads, chunks, chunk, features]);
    let value = value.reshape([batch, kv_heads, chunks, chunk, width]);

    let device = &query.device();
    let options = (device, query.dtype());
    let mask = table(decays, [group * chunk, chunk], options, |decay, i, j| {
        let i = i % chunk;
        if j <= i { power(decay, i - j) } else { 0.0 }
    });
    let scores = matmul(query.clone(), key.clone().swap_dims(3, 4)) * mask; // [batch, kv_heads, chunks, group * chunk, chunk]
    let mut sums = matmul(scores, value.clone()); // [batch, kv_heads, chunks, group * chunk, width]

    if chunks > 1 {
        let has_decay = decays.iter().any(|&decay| decay != 1.0);
        let (query, key) = if has_decay {
            let query_decay = table(decays, [group * chunk, 1], options, |decay, i, _| {
                power(decay, i % chunk + 1)
            });
            let key_decay = table(decays, [chunk, 1], options, |decay, j, _| {
                power(decay, chunk - 1 - j)
            });
            (query * query_decay, key * key_decay)
        } else {
            (query, key)
        };
        let states = matmul(key.swap_dims(3, 4), value); // [batch, kv_heads, chunks, features, width]
        let states = states.reshape([batch, kv_heads, chunks, features * width]);
        let decays: Vec<f64> = decays.iter().map(|&decay| power(decay, chunk)).collect();
        let before = exclusive_sums(states, &decays);
        let before = before.reshape([batch, kv_heads, chunks, features, width]);
        sums = sums + matmul(query, before);
    }

    sums.reshape([batch, kv_heads, chunks, group, chunk, width])
        .swap_dims(2, 3)
        .reshape([batch, heads, chunks * chunk, width])
        .slice_dim(2, length - seq_q..length)
}

/// [`causal`] for fewer queries than keys: the keys that every query attends to are summed into one
/// state, so that queries are not padded to the number of keys.
fn after_other_keys(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    shape: &AttentionShape,
    decays: &[f64],
) -> Tensor<4> {
    let before = shape.seq_k - shape.seq_q;
    let parts = |tensor: &Tensor<4>| {
        let part = |range| tensor.clone().slice_dim(2, range);
        [part(0..before), part(before..shape.seq_k)]
    };
    let ([mut key_before, key], [value_before, value]) = (parts(&key), parts(&value));
    let mut decayed_query = query.clone();
    if decays.iter().any(|&decay| decay != 1.0) {
        let options = (&query.device(), query.dtype());
        let of_keys = table(decays, [before, 1], options, |decay, j, _| {
            power(decay, before - 1 - j)
        });
        key_before = key_before * of_keys.squeeze_dim(2);
        let of_heads: Vec<f64> = (0..shape.heads)
            .map(|head| decays[head / shape.group() % decays.len()])
            .collect();
        let of_queries = table(&of_heads, [shape.seq_q, 1], options, |decay, i, _| {
            power(decay, i + 1)
        });
        decayed_query = decayed_query * of_queries.squeeze_dim(2);
    }
    let state = matmul(key_before.swap_dims(2, 3), value_before); // [batch, kv_heads, features, width]
    let same_length = AttentionShape {
        seq_k: shape.seq_q,
        ..*shape
    };
    let own = causal(query, key, value, &same_length, Some(decays));
    own + grouped_matmul(decayed_query, state)
}

/// Exclusive prefix sums of the `states`, `[batch, kv_heads, count, width]`, with one decay per
/// step.
fn exclusive_sums(states: Tensor<4>, decays: &[f64]) -> Tensor<4> {
    let [batch, kv_heads, count, width] = states.dims();
    let device = &states.device();
    let options = (device, states.dtype());
    let size = GROUP.min(count);
    let groups = count.div_ceil(size);
    let states = pad_rows(states, [0, groups * size - count], 0.0);
    let states = states.reshape([batch, kv_heads, groups, size, width]);
    let within = table(decays, [size, size], options, |decay, i, j| {
        if j < i { power(decay, i - 1 - j) } else { 0.0 }
    });
    let mut sums = matmul(within, states.clone()); // [batch, kv_heads, groups, size, width]
    if groups > 1 {
        let key_decay = table(decays, [1, size], options, |decay, _, j| {
            power(decay, size - 1 - j)
        });
        let totals = matmul(key_decay, states);
        let totals = totals.reshape([batch, kv_heads, groups, width]);
        let group_decays: Vec<f64> = decays.iter().map(|&decay| power(decay, size)).collect();
        let before =
            exclusive_sums(totals, &group_decays).reshape([batch, kv_heads, groups, 1, width]);
        let query_decay = table(decays, [size, 1], options, |decay, i, _| power(decay, i));
        sums = sums + before * query_decay;
    }
    sums.reshape([batch, kv_heads, groups * size, width])
        .slice_dim(2, 0..count)
}

/// `[1, heads, 1, rows, columns]`: `value(decay, row, column)` for each head.
fn table(
    decays: &[f64],
    [rows, columns]: [usize; 2],
    options: (&Device, DType),
    value: impl Fn(f64, usize, usize) -> f64,
) -> Tensor<5> {
    let mut values = Vec::with_capacity(decays.len() * rows * columns);
    for &decay in decays {
        for row in 0..rows {
            values.extend((0..columns).map(|column| value(decay, row, column) as f32));
        }
    }
    let dims = [1, decays.len(), 1, rows, columns];
    Tensor::from_data(TensorData::new(values, dims), options)
}

fn power(decay: f64, exponent: usize) -> f64 {
    decay.powi(exponent as i32)
}
