//! Causal sums of products in linear time, by matmuls.
//!
//! ```text
//! result_i = Σ_(j ≤ i) γ^(i - j) (q_i · k_j) v_j
//! ```
//!
//! The sequence is cut into chunks. Within a chunk, the products are written out and
//! masked; what came before it has been added up to one matrix, its state. The states of
//! all chunks are sums over the chunks before, computed by groups of groups.
//!
//! Hua et al., [Transformer Quality in Linear Time](https://arxiv.org/abs/2202.10447), 2022;
//! Sun et al., [Retentive Network](https://arxiv.org/abs/2307.08621), 2023.

use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::AttentionShape;

/// Places in a chunk: enough for its matmuls to be worth their calls, few enough that
/// what is written out (`CHUNK` numbers for each query) stays small.
const CHUNK: usize = 128;
/// States that are added up by one matmul.
const GROUP: usize = 16;

/// Sums as above; the last query is level with the last key, and queries before the first
/// key get zeros. `decays` has a `γ` for each key and value head; none is 1.
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

    // Both as long as the longer one, zeros before the first; and whole chunks, zeros
    // after the last, which nobody sees and which see for nobody.
    let length = seq_q.max(seq_k);
    let chunk = CHUNK.min(length);
    let chunks = length.div_ceil(chunk);
    let after = chunks * chunk - length;
    let query = padded(query, length - seq_q, after);
    let [key, value] = [key, value].map(|tensor| padded(tensor, length - seq_k, after));

    // Heads that share a key and value head lie beside each other in each chunk.
    let query = query
        .reshape([batch, kv_heads, group, chunks, chunk, features])
        .swap_dims(2, 3)
        .reshape([batch, kv_heads, chunks, group * chunk, features]);
    let key = key.reshape([batch, kv_heads, chunks, chunk, features]);
    let value = value.reshape([batch, kv_heads, chunks, chunk, width]);

    let device = &query.device();
    let options = (device, query.dtype());
    let seen = table(decays, [group * chunk, chunk], options, |decay, i, j| {
        let i = i % chunk;
        if j <= i { power(decay, i - j) } else { 0.0 }
    });
    let products = query.clone().matmul(key.clone().swap_dims(3, 4)) * seen; // [batch, kv_heads, chunks, group * chunk, chunk]
    let mut sums = products.matmul(value.clone()); // [batch, kv_heads, chunks, group * chunk, width]

    if chunks > 1 {
        let forgets = decays.iter().any(|&decay| decay != 1.0);
        let (query, key) = if forgets {
            let on_entry = table(decays, [group * chunk, 1], options, |decay, i, _| {
                power(decay, i % chunk + 1)
            });
            let on_exit = table(decays, [chunk, 1], options, |decay, j, _| {
                power(decay, chunk - 1 - j)
            });
            (query * on_entry, key * on_exit)
        } else {
            (query, key)
        };
        let states = key.swap_dims(3, 4).matmul(value); // [batch, kv_heads, chunks, features, width]
        let states = states.reshape([batch, kv_heads, chunks, features * width]);
        let decays: Vec<f64> = decays.iter().map(|&decay| power(decay, chunk)).collect();
        let before = sums_before(states, &decays);
        let before = before.reshape([batch, kv_heads, chunks, features, width]);
        sums = sums + query.matmul(before);
    }

    sums.reshape([batch, kv_heads, chunks, group, chunk, width])
        .swap_dims(2, 3)
        .reshape([batch, heads, chunks * chunk, width])
        .slice_dim(2, length - seq_q..length)
}

/// For each of the `states`, `[batch, kv_heads, count, numbers]`, the sum of those before
/// it, those further away forgotten by `decays`.
fn sums_before(states: Tensor<4>, decays: &[f64]) -> Tensor<4> {
    let [batch, kv_heads, count, numbers] = states.dims();
    let device = &states.device();
    let options = (device, states.dtype());
    let size = GROUP.min(count);
    let groups = count.div_ceil(size);
    let states = padded(states, 0, groups * size - count);
    let states = states.reshape([batch, kv_heads, groups, size, numbers]);
    let within = table(decays, [size, size], options, |decay, i, j| {
        if j < i { power(decay, i - 1 - j) } else { 0.0 }
    });
    let mut sums = within.matmul(states.clone()); // [batch, kv_heads, groups, size, numbers]
    if groups > 1 {
        let last = table(decays, [1, size], options, |decay, _, j| {
            power(decay, size - 1 - j)
        });
        let totals = last.matmul(states);
        let totals = totals.reshape([batch, kv_heads, groups, numbers]);
        let far: Vec<f64> = decays.iter().map(|&decay| power(decay, size)).collect();
        let before = sums_before(totals, &far).reshape([batch, kv_heads, groups, 1, numbers]);
        let fading = table(decays, [size, 1], options, |decay, i, _| power(decay, i));
        sums = sums + before * fading;
    }
    sums.reshape([batch, kv_heads, groups * size, numbers])
        .slice_dim(2, 0..count)
}

/// `[1, heads, 1, rows, columns]`: a number for each place, by its head's decay.
fn table(
    decays: &[f64],
    [rows, columns]: [usize; 2],
    options: (&Device, DType),
    number: impl Fn(f64, usize, usize) -> f64,
) -> Tensor<5> {
    let mut numbers = Vec::with_capacity(decays.len() * rows * columns);
    for &decay in decays {
        for row in 0..rows {
            numbers.extend((0..columns).map(|column| number(decay, row, column) as f32));
        }
    }
    let dims = [1, decays.len(), 1, rows, columns];
    Tensor::from_data(TensorData::new(numbers, dims), options)
}

fn power(decay: f64, exponent: usize) -> f64 {
    decay.powi(exponent as i32)
}

/// Zeros before and after the rows of a `[_, _, rows, _]` tensor.
fn padded(tensor: Tensor<4>, before: usize, after: usize) -> Tensor<4> {
    if before + after == 0 {
        return tensor;
    }
    let [batch, heads, _, width] = tensor.dims();
    let device = &tensor.device();
    let options = (device, tensor.dtype());
    let zeros =
        |rows: usize| (rows > 0).then(|| Tensor::zeros([batch, heads, rows, width], options));
    let parts = [zeros(before), Some(tensor), zeros(after)];
    Tensor::cat(parts.into_iter().flatten().collect(), 2)
}
