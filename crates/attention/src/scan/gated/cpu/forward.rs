//! The forward pass of a head.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::chunk::Chunk;
use super::products::Side;
use super::rows;
use super::{CHUNK, Call, Update, Widths};
use crate::scan::cpu::{Factor, Head, Output, lower_times, multiply, scale_rows};
use zoo_kernels::cpu::matmul::Accumulate;
use zoo_kernels::cpu::scratch::Scratch;

/// Computes the contexts of the head with this index and, unless `states` is empty, writes the state
/// before each chunk.
pub(super) fn forward(
    call: &Call<'_>,
    index: usize,
    head: Head,
    context: &Output<'_>,
    states: &Output<'_>,
) {
    let widths = call.widths();
    let Widths {
        d_head,
        d_value,
        wide_head,
        wide_value,
        ..
    } = widths;
    let set = call.set;
    let (mut chunk_scratch, mut scratch) = (Scratch::take(), Scratch::take());
    let mut chunk = Chunk::new(call, &mut chunk_scratch);
    let [state, query, decayed, factors, scores, sums] = scratch.split([
        widths.state_len(),
        CHUNK * wide_head,
        CHUNK * wide_head,
        CHUNK,
        CHUNK * CHUNK,
        CHUNK * wide_value,
    ]);
    state.fill(0.0);
    // The first position whose key or value is not finite.
    let mut bad = None;
    for (i, at) in call.chunk_ranges().enumerate() {
        if !states.is_empty() {
            let row = index * call.chunks() + i;
            // SAFETY: one task computes a head.
            let saved = unsafe { states.rows(row..row + 1, state.len()) };
            rows::store(1.0, state, wide_value, wide_value, saved);
        }
        // The state before the first chunk is zero.
        let before = if i == 0 { &[] } else { &*state };
        let bad_row = chunk.load(call, head, &at, before);
        bad = bad.or(bad_row.map(|row| at.start + row));
        let count = chunk.keys.count;
        let update = &chunk.update[..count * wide_value];
        for query_head in head.query_heads(&call.shape) {
            let query = &mut query[..count * wide_head];
            let sums = &mut sums[..count * wide_value];
            call.load_queries(head, query_head, &at, query, factors);
            if i == 0 {
                sums.fill(0.0);
            } else {
                let from_start = &chunk.from_start[..count * widths.wide_decays];
                let decayed = &mut decayed[..count * wide_head];
                rows::scale(from_start, query, wide_head, decayed);
                multiply(
                    set,
                    [count, d_head, wide_value],
                    Factor::rows(decayed, wide_head),
                    (&*state, wide_value),
                    (&mut *sums, wide_value),
                    Accumulate::Overwrite,
                );
            }
            chunk
                .keys
                .products(Side::Queries, query, scores, chunk.workspace);
            let size = [count, wide_value];
            lower_times::<CHUNK>(
                set,
                size,
                scores,
                (update, wide_value),
                (&mut *sums, wide_value),
            );
            let rows = head.query_rows(&call.shape, query_head, &at);
            // SAFETY: one task computes a head.
            let context = unsafe { context.rows(rows, d_value) };
            rows::store(call.scale, sums, wide_value, d_value, context);
            if let Some(bad) = bad {
                let first = bad.saturating_sub(at.start);
                context[first * d_value..].fill(MaybeUninit::new(f32::NAN));
            }
        }
        add_to_state(&widths, call, &chunk, state);
    }
}

/// `S' = g_C S + (g_C / g · k)ᵀ U`
fn add_to_state(widths: &Widths, call: &Call<'_>, chunk: &Chunk<'_>, state: &mut [f32]) {
    let accumulate = decay_state(widths, chunk, state);
    let wide = widths.wide_value;
    multiply(
        call.set,
        [widths.d_head, chunk.keys.count, wide],
        Factor::columns(chunk.key_to_end, widths.wide_head),
        (chunk.update, wide),
        (state, wide),
        accumulate,
    );
}

/// How a sum is added to a state that decays over a chunk. It is decayed already if each of its rows
/// has a decay of its own.
pub(super) fn decay_state(widths: &Widths, chunk: &Chunk<'_>, state: &mut [f32]) -> Accumulate {
    match &*chunk.total {
        [decay] => Accumulate::Scale(*decay),
        decays => {
            scale_rows(&decays[..widths.d_head], state, widths.wide_value);
            Accumulate::Add
        }
    }
}

impl Call<'_> {
    /// Loads queries, and normalises them for a delta rule: `factors` are one over their norms.
    pub(super) fn load_queries(
        &self,
        head: Head,
        query_head: usize,
        at: &Range<usize>,
        into: &mut [f32],
        factors: &mut [f32],
    ) {
        let Widths {
            d_head, wide_head, ..
        } = self.widths();
        let from = self.query.rows([head.example, query_head], at);
        let size = [at.len(), d_head, wide_head];
        rows::load((from, self.query.stride()), size, into);
        match self.update {
            Update::Add => {}
            Update::Delta => rows::normalize(wide_head, into, factors),
        }
    }
}
