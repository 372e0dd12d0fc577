//! The forward pass of some chunks of a head.

use std::mem::MaybeUninit;

use zoo_kernels::cpu::matmul::Accumulate;

use super::CHUNK;
use super::call::{Call, Chunk, Decays, Head, Output, Widths};
use super::load::{Shift, load_keys, map_queries};
use super::matmul::{Factor, lower_products, lower_times, multiply, transpose};
use super::rows;
use super::state::State;
use zoo_kernels::cpu::scratch::Scratch;

/// Where the results of the forward pass go.
pub(super) struct Outputs<'a> {
    /// `[batch, heads, seq_q, d_value]`
    pub(super) context: Output<'a>,
    /// `[batch, heads, seq_q]`; empty if contexts are not normalised.
    pub(super) denominators: Output<'a>,
    /// `[batch, kv_heads, chunks]`; empty without random features.
    pub(super) shifts: Output<'a>,
}

/// The number of elements of the state: `S: [features, wide_value]`, then `z: [wide_features]`.
pub(super) fn state_len(widths: &Widths) -> usize {
    widths.features * widths.wide_value + widths.wide_features
}

/// Adds the keys of the chunks to the state and, if there are `outputs`, computes their queries.
/// `first` is the index of the first chunk, counted over all heads.
pub(super) fn forward(
    call: &Call<'_>,
    head: Head,
    chunks: &[Chunk],
    first: usize,
    state: &mut State,
    outputs: Option<&Outputs<'_>>,
) {
    let (set, widths) = (call.set, call.widths());
    let decays = call.decay(head).map(Decays::new);
    let is_random = call.elementwise().is_none();
    let Widths {
        features,
        wide_features,
        wide_value,
        wide_sums,
        ..
    } = widths;
    let mut scratch = Scratch::take();
    let [
        key_features,
        key_columns,
        values,
        query_features,
        scores,
        sums,
    ] = scratch.split([
        CHUNK * wide_features,
        wide_features * CHUNK,
        CHUNK * wide_sums,
        CHUNK * wide_features,
        CHUNK * CHUNK,
        CHUNK * wide_value,
    ]);
    for (index, chunk) in chunks.iter().enumerate() {
        let count = chunk.keys.len();
        if count > 0 {
            let mut shift = state.shift;
            let raised = Shift::Raised(&mut shift);
            let bad = load_keys(call, head, &chunk.keys, raised, key_features, values);
            state.shift_to(shift);
            state.bad = state.bad.or(bad.map(|bad| chunk.keys.start + bad));
            let columns = (&mut *key_columns, CHUNK);
            transpose(
                set,
                [count, wide_features],
                (key_features, wide_features),
                columns,
            );
        }
        if let Some(outputs) = outputs {
            if is_random {
                let chunk = first + index;
                // SAFETY: this chunk is computed by one task.
                let shift = unsafe { outputs.shifts.rows(chunk..chunk + 1, 1) };
                shift[0].write(state.shift);
            }
            for query_head in head.query_heads(&call.shape) {
                let buffers = Buffers {
                    features: query_features,
                    scores,
                    sums,
                };
                let keys = (&*key_columns, &*values);
                attend(
                    call,
                    head,
                    query_head,
                    chunk,
                    state,
                    keys,
                    decays.as_ref(),
                    buffers,
                    outputs,
                );
            }
        }
        if count > 0 {
            let (matrix, totals) = state.sums.split_at_mut(features * wide_value);
            let mut accumulate = Accumulate::Add;
            if let Some(decays) = &decays {
                accumulate = Accumulate::Scale(decays.ascending[chunk.len() - 1]);
                rows::scale_rows(decays.to_end(count), values, wide_sums);
            }
            multiply(
                set,
                [features, count, wide_value],
                Factor::rows(key_columns, CHUNK),
                (values, wide_sums),
                (matrix, wide_value),
                accumulate,
            );
            if call.is_normalised() {
                rows::add_rows(&key_features[..count * wide_features], totals);
            }
            state.is_empty = false;
        }
    }
}

struct Buffers<'a> {
    features: &'a mut [f32],
    scores: &'a mut [f32],
    sums: &'a mut [f32],
}

/// The queries of one head of a chunk. `keys` are the columns of features, and the values.
#[allow(clippy::too_many_arguments)]
fn attend(
    call: &Call<'_>,
    head: Head,
    query_head: usize,
    chunk: &Chunk,
    state: &State,
    (key_columns, values): (&[f32], &[f32]),
    decays: Option<&Decays>,
    buffers: Buffers<'_>,
    outputs: &Outputs<'_>,
) {
    let Chunk { keys, queries } = chunk;
    let (set, widths, count) = (call.set, call.widths(), queries.len());
    if count == 0 {
        return;
    }
    let Widths {
        features,
        wide_features,
        d_value,
        wide_value,
        wide_sums,
        ..
    } = widths;
    let rows = head.query_rows(&call.shape, query_head, queries);
    // SAFETY: these queries are computed by one task.
    let context = unsafe { outputs.context.rows(rows.clone(), d_value) };
    let Buffers {
        features: query_features,
        scores,
        sums,
    } = buffers;
    if state.is_empty && keys.is_empty() {
        // Queries before the first key.
        context.fill(MaybeUninit::new(0.0));
        return;
    }
    map_queries(call, [head.example, query_head], queries, query_features);
    let (matrix, totals) = state.sums.split_at(features * wide_value);
    if state.is_empty {
        sums[..count * wide_value].fill(0.0);
    } else {
        multiply(
            set,
            [count, features, wide_value],
            Factor::rows(query_features, wide_features),
            (matrix, wide_value),
            (sums, wide_value),
            Accumulate::Overwrite,
        );
        if let Some(decays) = decays {
            rows::scale_rows(&decays.ascending[..count], sums, wide_value);
        }
    }
    if chunk.has_pairs() {
        let query_rows = (&*query_features, wide_features);
        lower_products::<CHUNK>(set, [count, features], query_rows, key_columns, scores);
        rows::finish_scores(
            count,
            decays.map_or(&[], |decays| &decays.descending),
            scores,
        );
        let (values, sums) = ((values, wide_sums), (&mut *sums, wide_value));
        lower_times::<CHUNK>(set, [count, wide_value], scores, values, sums);
    }
    let mut factors = [1.0; CHUNK];
    let factors = &mut factors[..count];
    if call.is_normalised() {
        // SAFETY: these queries are computed by one task.
        let denominators = unsafe { outputs.denominators.rows(rows, 1) };
        let scores = if chunk.has_pairs() { &*scores } else { &[] };
        rows::denominators(scores, query_features, totals, factors);
        for (factor, denominator) in factors.iter_mut().zip(denominators) {
            denominator.write(*factor);
            *factor = rows::reciprocal(*factor);
        }
    }
    rows::scale_into(factors, sums, wide_value, context, d_value);
    // Queries that attend to a non-finite key.
    if let Some(bad) = state.bad
        && chunk.has_pairs()
    {
        let first = bad.saturating_sub(keys.start).min(count);
        context[first * d_value..].fill(MaybeUninit::new(f32::NAN));
    }
}
