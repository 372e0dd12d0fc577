//! The chunked form of a gated recurrence. Let `g_i` be the product of the decays of a chunk up to
//! position `i`, and `S` the state before the chunk:
//!
//! ```text
//! A_ij = q_i · (g_i / g_j) k_j            for j <= i
//! U    = b v                              `Update::Add`
//! U    = T b (v - (g k) S)                `Update::Delta`
//! context = A U + (g q) S
//! S'      = g_C S + (g_C / g · k)ᵀ U
//! ```
//!
//! `T` is the inverse of `I + B`, with `B_ij = b_i k_i · (g_i / g_j) k_j` for `j < i`. All quotients of
//! decays are at most 1 and computed from differences of logarithms, so that none overflows.

use burn::tensor::Tensor;

use super::inverse::inverse;
use super::{Update, zeros};
use crate::matmul::matmul;
use crate::mechanisms::Gates;
use crate::shape::pad_rows;

/// Positions in a chunk if a decay is one number.
pub(super) const CHUNK: usize = 64;
/// Positions in a chunk if each row of the state decays at its own rate: products of queries and
/// keys are computed element by element.
pub(super) const CHUNK_OF_ROWS: usize = 16;

/// A sequence with as many queries as keys, in `f32`, without masks.
pub(super) struct Sequence {
    /// `[batch, heads, seq, d_head]`; `None` if only the state is needed.
    pub(super) query: Option<Tensor<4>>,
    /// `[batch, kv_heads, seq, d_head]`
    pub(super) key: Tensor<4>,
    /// `[batch, kv_heads, seq, d_value]`
    pub(super) value: Tensor<4>,
    pub(super) gates: Gates,
    pub(super) update: Update,
}

/// The context, `[batch, heads, seq, d_value]`, and the state after the sequence,
/// `[batch, kv_heads, d_head, d_value]`, which begins with another or with zeros.
pub(super) fn scan(
    sequence: Sequence,
    before: Option<Tensor<4>>,
) -> (Option<Tensor<4>>, Tensor<4>) {
    let [batch, kv_heads, seq, d_head] = sequence.key.dims();
    let [.., d_value] = sequence.value.dims();
    let device = sequence.key.device();
    let chunks = Chunks::new(sequence);
    let count = chunks.count;
    let (states, updates, state) = match chunks.scan_by_kernel(before.as_ref()) {
        Some(scanned) => scanned,
        None => {
            let zeros = || zeros([batch, kv_heads, d_head, d_value], &device);
            chunks.scan(before.unwrap_or_else(zeros))
        }
    };
    let context = chunks.query.as_ref().map(|query| {
        let [.., heads_in_chunk, _] = query.from_start.dims();
        let group = heads_in_chunk / chunks.size;
        let context =
            matmul(query.products.clone(), updates) + matmul(query.from_start.clone(), states);
        context
            .reshape([batch, kv_heads, count, group, chunks.size, d_value])
            .swap_dims(2, 3)
            .reshape([batch, kv_heads * group, count * chunks.size, d_value])
            .slice_dim(2, 0..seq)
    });
    (context, state)
}

/// Everything that does not depend on the state. Tensors are `[batch, kv_heads, count, size, _]`.
struct Chunks {
    count: usize,
    size: usize,
    query: Option<Queries>,
    /// Keys times the decay from their position to the end of the chunk.
    key_to_end: Tensor<5>,
    /// `U` for a state of zeros.
    value: Tensor<5>,
    /// What `U` is reduced by, times the state: `T b (g k)`.
    erased: Option<Tensor<5>>,
    /// The decay of a whole chunk, `[batch, kv_heads, count, 1, 1 or d_head]`; `None` is 1.
    decay: Option<Tensor<5>>,
}

/// The query heads of a key/value head follow each other: `[batch, kv_heads, count, group * size, _]`.
struct Queries {
    /// `A`
    products: Tensor<5>,
    /// Queries times the decay from the start of the chunk.
    from_start: Tensor<5>,
}

impl Chunks {
    fn new(sequence: Sequence) -> Self {
        let Sequence {
            query,
            key,
            value,
            gates,
            update,
        } = sequence;
        let [batch, kv_heads, seq, d_head] = key.dims();
        let width = gates.log_decay.as_ref().map_or(1, |gate| gate.dims()[3]);
        let size = match width {
            1 => CHUNK,
            _ => CHUNK_OF_ROWS,
        };
        let size = size.min(seq);
        let count = seq.div_ceil(size);
        // Zeros change nothing: a logarithm of 0 is a decay of 1.
        let split = |tensor: Tensor<4>| -> Tensor<5> {
            let [batch, heads, _, width] = tensor.dims();
            let padded = pad_rows(tensor, [0, count * size - seq], 0.0);
            padded.reshape([batch, heads, count, size, width])
        };
        let (key, mut value) = (split(key), split(value));
        let strength = gates.strength.map(split);
        let decay = gates.log_decay.map(|log| Decays::new(split(log)));
        let decay = decay.as_ref();
        let from_start = |rows: Tensor<5>| match decay {
            Some(decay) => rows * decay.since_start(),
            None => rows,
        };
        if let Some(strength) = &strength {
            value = value * strength.clone();
        }
        let mut key_to_end = key.clone();
        if let Some(decay) = decay {
            key_to_end = key_to_end * decay.to_end();
        }
        let query = query.map(|query| {
            let [_, heads, ..] = query.dims();
            let group = heads / kv_heads;
            let query = split(query)
                .reshape([batch, kv_heads, group, count, size, d_head])
                .swap_dims(2, 3); // [batch, kv_heads, count, group, size, d_head]
            let products = decayed_products(query.clone(), &key, decay).tril(0);
            let flat = [batch, kv_heads, count, group * size];
            let decayed = match decay {
                Some(decay) => query * decay.since_start().unsqueeze_dim::<6>(3),
                None => query,
            };
            Queries {
                products: products.reshape([flat[0], flat[1], flat[2], flat[3], size]),
                from_start: decayed.reshape([flat[0], flat[1], flat[2], flat[3], d_head]),
            }
        });
        let mut erased = None;
        match update {
            // The strength is part of the value.
            Update::Add => {}
            Update::Delta => {
                let products = decayed_products(key.clone().unsqueeze_dim::<6>(3), &key, decay);
                let mut products = products.squeeze_dim::<5>(3).tril(-1);
                let mut reduced = from_start(key);
                if let Some(strength) = strength {
                    products = products * strength.clone();
                    reduced = reduced * strength;
                }
                let inverse = inverse(products);
                value = matmul(inverse.clone(), value);
                erased = Some(matmul(inverse, reduced));
            }
        }
        Self {
            count,
            size,
            query,
            key_to_end,
            value,
            erased,
            decay: decay.map(Decays::total),
        }
    }

    /// The states before each chunk, `[batch, kv_heads, count, d_head, d_value]`, `U` of each chunk,
    /// `[batch, kv_heads, count, size, d_value]`, and the last state.
    fn scan(&self, mut state: Tensor<4>) -> (Tensor<5>, Tensor<5>, Tensor<4>) {
        let mut states = Vec::with_capacity(self.count);
        let mut updates = Vec::with_capacity(self.count);
        let decay = self.decay.clone().map(|decay| decay.swap_dims(3, 4));
        for index in 0..self.count {
            states.push(state.clone());
            let update = self.update(index, &state);
            let at = |tensor: &Tensor<5>| chunk_at(tensor, index);
            let added = matmul(at(&self.key_to_end).swap_dims(2, 3), update.clone());
            state = match &decay {
                Some(decay) => at(decay) * state + added,
                None => state + added,
            };
            updates.push(update);
        }
        (Tensor::stack(states, 2), Tensor::stack(updates, 2), state)
    }

    /// [`scan`](Self::scan) by a kernel, if there is one for the device.
    #[cfg(feature = "cube")]
    fn scan_by_kernel(
        &self,
        initial: Option<&Tensor<4>>,
    ) -> Option<(Tensor<5>, Tensor<5>, Tensor<4>)> {
        super::cube::scan(&super::cube::ChunkTensors {
            key: &self.key_to_end,
            value: &self.value,
            erased: self.erased.as_ref(),
            decay: self.decay.as_ref(),
            initial,
        })
    }

    #[cfg(not(feature = "cube"))]
    fn scan_by_kernel(&self, _: Option<&Tensor<4>>) -> Option<(Tensor<5>, Tensor<5>, Tensor<4>)> {
        None
    }

    /// `U` of a chunk, `[batch, kv_heads, size, d_value]`.
    fn update(&self, index: usize, state: &Tensor<4>) -> Tensor<4> {
        let value = chunk_at(&self.value, index);
        match &self.erased {
            Some(erased) => value - matmul(chunk_at(erased, index), state.clone()),
            None => value,
        }
    }
}

fn chunk_at(tensor: &Tensor<5>, index: usize) -> Tensor<4> {
    let chunk = tensor.clone().slice_dim(2, index..index + 1);
    chunk.squeeze_dim(2)
}

/// Logarithms of the decays from the start of each chunk, `[batch, kv_heads, count, size, width]`.
struct Decays(Tensor<5>);

impl Decays {
    fn new(log_decay: Tensor<5>) -> Self {
        Self(log_decay.cumsum(3))
    }

    fn last(&self) -> Tensor<5> {
        let [_, _, _, size, _] = self.0.dims();
        self.0.clone().slice_dim(3, size - 1..size)
    }

    /// From the start of the chunk to each position.
    fn since_start(&self) -> Tensor<5> {
        self.0.clone().exp()
    }

    /// From each position to the end of the chunk.
    fn to_end(&self) -> Tensor<5> {
        (self.last() - self.0.clone()).exp()
    }

    /// Of the whole chunk, `[batch, kv_heads, count, 1, width]`.
    fn total(&self) -> Tensor<5> {
        self.last().exp()
    }
}

/// `q_i · (g_i / g_j) k_j` for `j <= i`, undefined above the diagonal:
/// `[batch, kv_heads, count, group, size, size]` for queries `[.., group, size, d_head]`.
fn decayed_products(query: Tensor<6>, key: &Tensor<5>, decay: Option<&Decays>) -> Tensor<6> {
    let [batch, kv_heads, count, group, size, d_head] = query.dims();
    let Some(Decays(log)) = decay else {
        return matmul(query, key.clone().unsqueeze_dim::<6>(3).swap_dims(4, 5));
    };
    let [.., width] = log.dims();
    if width == 1 {
        let products = matmul(query, key.clone().unsqueeze_dim::<6>(3).swap_dims(4, 5));
        // Above the diagonal the difference is positive, and its exponential might overflow.
        let difference = log.clone() - log.clone().swap_dims(3, 4);
        return products * difference.tril(0).exp().unsqueeze_dim::<6>(3);
    }
    // For each position a matrix of decayed keys, [batch * kv_heads * count, size, size, d_head].
    let rows = batch * kv_heads * count;
    let log = log.clone().reshape([rows, size, d_head]);
    let difference = log.clone().unsqueeze_dim::<4>(2) - log.unsqueeze_dim::<4>(1);
    let difference = difference.permute([0, 3, 1, 2]).tril(0); // [rows, d_head, i, j]
    let key = key.clone().reshape([rows, 1, size, d_head]);
    let decayed = difference.exp() * key.permute([0, 3, 1, 2]);
    let decayed = decayed.permute([0, 2, 1, 3]); // [rows, i, d_head, j]
    let query = query.reshape([rows, group, size, d_head]).swap_dims(1, 2); // [rows, i, group, d_head]
    matmul(query, decayed) // [rows, i, group, j]
        .swap_dims(1, 2)
        .reshape([batch, kv_heads, count, group, size, size])
}
