//! Gated recurrences on the CPU, on slices of `f32`.
//!
//! A task computes one key/value head with the query heads that share it, chunk by chunk, in the
//! buffers of one chunk. The forward pass saves the state before each chunk if a backward pass
//! follows; everything else is recomputed. With the names of [`chunks`](super::chunks) and `U = b W`:
//!
//! ```text
//! W = v - (g k) S - M U          M_ij = k_i · (g_i / g_j) k_j for j < i, by forward substitution
//! ```
//!
//! Let `dS'` be the gradient of the state after a chunk. The backward pass, from the last chunk to the
//! first, computes
//!
//! ```text
//! dU = Aᵀ dO + (g_C / g · k) dS'
//! D = b (dU - Mᵀ D)              by back substitution; the gradient of the values
//! db = W · (dU - Mᵀ D)
//! dA = dO Uᵀ     dM = -D Uᵀ
//! d(g q) = dO Sᵀ     d(g k) = -D Sᵀ     d(g_C / g · k) = U dS'ᵀ
//! dS = g_C dS' + (g q)ᵀ dO - (g k)ᵀ D
//! ```
//!
//! With the update `Add`, `W = v` and `M = 0`. The logarithm of `g_i` has the gradient `q_i dq_i`, plus
//! `k_i dk_i` of the key as it reads the state, minus that of the key as it is written; `g_C` has the
//! gradient `S' dS'`.

mod backward;
mod chunk;
mod forward;
mod products;
mod rows;
mod solve;

use std::mem::MaybeUninit;
use std::ops::Range;

use zoo_kernels::cpu::InstructionSet;
use zoo_kernels::cpu::parallel::for_each;

use super::Update;
use crate::AttentionShape;
use crate::scan::call::padded;
use crate::scan::cpu::{Head, Heads, Output, initialised};

/// Positions in a chunk.
const CHUNK: usize = 64;

/// A call of the forward or the backward pass, with as many queries as keys.
pub(super) struct Call<'a> {
    pub(super) shape: AttentionShape,
    pub(super) update: Update,
    /// The factor of queries.
    pub(super) scale: f32,
    /// 1, or `d_head` if each row of the state has a decay of its own.
    pub(super) decays: usize,
    /// `[batch, heads, seq, d_head]`
    pub(super) query: Heads<'a>,
    /// `[batch, kv_heads, seq, d_head]`
    pub(super) key: Heads<'a>,
    /// `[batch, kv_heads, seq, d_value]`
    pub(super) value: Heads<'a>,
    /// `[batch, kv_heads, seq, decays]`
    pub(super) log_decay: Heads<'a>,
    /// `[batch, kv_heads, seq, 1]`
    pub(super) strength: Heads<'a>,
    /// An instruction set of the processor.
    pub(super) set: InstructionSet,
}

impl Call<'_> {
    /// Number of chunks in a head.
    pub(super) fn chunks(&self) -> usize {
        self.shape.seq_k.div_ceil(CHUNK)
    }

    /// The positions of each chunk.
    fn chunk_ranges(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + ExactSizeIterator {
        let seq = self.shape.seq_k;
        (0..self.chunks()).map(move |i| i * CHUNK..seq.min((i + 1) * CHUNK))
    }

    fn num_heads(&self) -> usize {
        self.shape.batch * self.shape.kv_heads
    }

    fn widths(&self) -> Widths {
        let AttentionShape {
            d_head, d_value, ..
        } = self.shape;
        Widths {
            d_head,
            d_value,
            wide_head: padded(d_head),
            wide_value: padded(d_value),
            wide_decays: match self.decays {
                1 => 1,
                width => padded(width),
            },
        }
    }

    /// The number of elements of the states before all chunks.
    pub(super) fn states_len(&self) -> usize {
        self.num_heads() * self.chunks() * self.widths().state_len()
    }

    fn heads(&self) -> impl Iterator<Item = (usize, Head)> {
        (0..self.num_heads()).map(|index| (index, Head::new(index, &self.shape)))
    }
}

/// Widths of rows. `wide_*` are rounded up to whole registers.
#[derive(Debug, Clone, Copy)]
struct Widths {
    d_head: usize,
    d_value: usize,
    wide_head: usize,
    wide_value: usize,
    /// 1 if a position has one decay.
    wide_decays: usize,
}

impl Widths {
    /// A state is `[d_head, wide_value]`.
    fn state_len(&self) -> usize {
        self.d_head * self.wide_value
    }
}

/// Writes every element of the context, `[batch, heads, seq, d_value]`, and the state before each
/// chunk to `states` unless it is empty.
pub(super) fn forward(call: &Call<'_>, context: &mut [MaybeUninit<f32>], states: &mut [f32]) {
    assert!(states.is_empty() || states.len() == call.states_len());
    let context = Output::new(context);
    let states = Output::new(initialised(states));
    for_each(call.heads().collect(), |(index, head)| {
        forward::forward(call, index, head, &context, &states);
    });
}

/// The slices that gradients are written to.
pub(super) struct InputGrads<'a> {
    pub(super) query: &'a mut [MaybeUninit<f32>],
    pub(super) key: &'a mut [MaybeUninit<f32>],
    pub(super) value: &'a mut [MaybeUninit<f32>],
    pub(super) log_decay: &'a mut [MaybeUninit<f32>],
    pub(super) strength: &'a mut [MaybeUninit<f32>],
}

/// Writes every element of the gradients of the inputs. `states` are those of the forward pass.
pub(super) fn backward(
    call: &Call<'_>,
    states: &[f32],
    d_context: Heads<'_>,
    grads: InputGrads<'_>,
) {
    assert!(states.len() == call.states_len());
    let outputs = backward::Outputs {
        query: Output::new(grads.query),
        key: Output::new(grads.key),
        value: Output::new(grads.value),
        log_decay: Output::new(grads.log_decay),
        strength: Output::new(grads.strength),
    };
    for_each(call.heads().collect(), |(index, head)| {
        let len = call.chunks() * call.widths().state_len();
        let states = &states[index * len..][..len];
        backward::backward(call, head, states, d_context, &outputs);
    });
}

#[cfg(all(test, feature = "flex"))]
mod tests;
