//! The backward pass of some chunks of a head.
//!
//! Let `G = [dO / n, -(dO · O) / n]` be the gradients of the sums before the division by `n`, and
//! `V` the values with a column of ones (for retention, `dO` and the values alone). With
//! `A = φ(Q) φ(K)ᵀ` and `dA = G Vᵀ`, both zero above the diagonal:
//!
//! ```text
//! dφ(Q) = dA φ(K) + G Sᵀ         S: the sum of φ(K)ᵀ V over earlier chunks
//! dφ(K) = dAᵀ φ(Q) + V Rᵀ        R: the sum of φ(Q)ᵀ G over later chunks
//! dV = Aᵀ G + φ(K) R
//! ```
//!
//! The gradients of keys and values are computed from the last chunk to the first, then those of the
//! queries from the first to the last, so that these may overwrite the output gradients.

mod queries;

use std::mem::MaybeUninit;

use zoo_kernels::cpu::matmul::Accumulate;

use self::queries::Queries;
use super::CHUNK;
use super::activation::Elementwise;
use super::call::{Call, Chunk, Decays, Head, Heads, Output, Widths};
use super::load::{Mapped, Shift, fill_rows, load_keys, write_grads};
use super::matmul::{
    Factor, lower_products, lower_times, lower_transposed_times, multiply, transpose,
};
use super::rows::{self, Strided};
use super::state::State;
use zoo_kernels::cpu::scratch::Scratch;

/// Results of the forward pass and output gradients.
#[derive(Clone, Copy)]
pub(super) struct Saved<'a> {
    /// `[batch, heads, seq_q, d_value]`; empty if contexts are not normalised.
    pub(super) context: &'a [f32],
    /// `[batch, heads, seq_q]`; likewise.
    pub(super) denominators: &'a [f32],
    /// `[batch, kv_heads, chunks]`; empty without random features.
    pub(super) shifts: &'a [f32],
    /// For each key/value head, the first non-finite key that is visible.
    pub(super) first_bad: &'a [Option<usize>],
    /// `[batch, heads, seq_q, d_value]`
    pub(super) d_context: Heads<'a>,
}

impl Saved<'_> {
    /// The shift of a chunk, counted over all heads.
    fn shift(&self, chunk: usize) -> f32 {
        self.shifts.get(chunk).copied().unwrap_or(0.0)
    }
}

/// The number of elements of either state: `Sᵀ` or `Rᵀ`, `[sums, wide_features]`.
pub(super) fn state_len(widths: &Widths) -> usize {
    widths.sums * widths.wide_features
}

/// Chunks of a head. `first` is the index of the first, counted over all heads.
#[derive(Clone, Copy)]
pub(super) struct Segment<'a> {
    pub(super) head: Head,
    pub(super) chunks: &'a [Chunk],
    pub(super) first: usize,
}

/// Where the gradients of keys and values go.
pub(super) struct KeyOutputs<'a> {
    pub(super) d_key: &'a Output<'a>,
    pub(super) d_value: &'a Output<'a>,
    /// For each chunk of the segment and each query head, the bits of [`Queries::load`].
    pub(super) bad_queries: &'a mut [u64],
}

/// Where the gradients of queries go.
pub(super) struct QueryOutputs<'a> {
    pub(super) d_query: &'a Output<'a>,
    /// From [`KeyOutputs`].
    pub(super) bad_queries: &'a [u64],
}

/// The gradients of keys and values, from the last chunk to the first. `state` is `Rᵀ`. Without
/// outputs, only the state is computed.
pub(super) fn backward_keys(
    call: &Call<'_>,
    saved: &Saved<'_>,
    segment: Segment<'_>,
    state: &mut State,
    mut outputs: Option<KeyOutputs<'_>>,
) {
    let (set, head, widths) = (call.set, segment.head, call.widths());
    let decays = call.decay(head).map(Decays::new);
    let Widths {
        features,
        wide_features,
        wide_value,
        sums,
        wide_sums,
        ..
    } = widths;
    let is_random = call.elementwise().is_none();
    let group = call.shape.group();
    let mut scratch = Scratch::take();
    let [
        key_features,
        key_columns,
        values,
        value_columns,
        query_features,
        grads,
        scores,
        d_scores,
        d_features,
        d_values,
        state_columns,
        directions,
    ] = scratch.split([
        CHUNK * wide_features,
        wide_features * CHUNK,
        CHUNK * wide_sums,
        wide_sums * CHUNK,
        CHUNK * wide_features,
        CHUNK * wide_sums,
        CHUNK * CHUNK,
        CHUNK * CHUNK,
        CHUNK * wide_features,
        CHUNK * wide_value,
        wide_features * wide_value,
        if is_random {
            CHUNK * widths.wide_head
        } else {
            0
        },
    ]);
    let mut queries = Queries {
        call,
        saved,
        head,
        features: query_features,
        grads,
    };
    for (index, chunk) in segment.chunks.iter().enumerate().rev() {
        let shift = saved.shift(segment.first + index);
        if is_random {
            state.shift_to(-shift);
        }
        let key_count = chunk.keys.len();
        if key_count > 0 && outputs.is_some() {
            let keys = &chunk.keys;
            load_keys(call, head, keys, Shift::Saved(shift), key_features, values);
            let from = (&*key_features, wide_features);
            transpose(set, [key_count, features], from, (key_columns, CHUNK));
            transpose(
                set,
                [key_count, sums],
                (values, wide_sums),
                (value_columns, CHUNK),
            );
            let d_features = &mut d_features[..key_count * wide_features];
            let d_values = &mut d_values[..key_count * wide_value];
            if state.is_empty {
                d_features.fill(0.0);
                d_values.fill(0.0);
            } else {
                let rows = (&*state.sums, wide_features);
                transpose(
                    set,
                    [widths.d_value, features],
                    rows,
                    (state_columns, wide_value),
                );
                multiply(
                    set,
                    [key_count, sums, wide_features],
                    Factor::rows(values, wide_sums),
                    (&state.sums, wide_features),
                    (d_features, wide_features),
                    Accumulate::Overwrite,
                );
                multiply(
                    set,
                    [key_count, features, wide_value],
                    Factor::rows(key_features, wide_features),
                    (state_columns, wide_value),
                    (d_values, wide_value),
                    Accumulate::Overwrite,
                );
                if let Some(decays) = &decays {
                    let to_end = decays.to_end(key_count);
                    rows::scale_rows(to_end, d_features, wide_features);
                    rows::scale_rows(to_end, d_values, wide_value);
                }
            }
        }
        let mut accumulate = match &decays {
            Some(decays) => Accumulate::Scale(decays.ascending[chunk.len() - 1]),
            None => Accumulate::Add,
        };
        let count = chunk.queries.len();
        if count == 0
            && let Accumulate::Scale(decay) = accumulate
        {
            rows::scale(decay, &mut state.sums);
        }
        if count > 0 {
            for (i, query_head) in head.query_heads(&call.shape).enumerate() {
                let bad = queries.load(query_head, chunk);
                if let Some(outputs) = &mut outputs {
                    outputs.bad_queries[index * group + i] = bad;
                }
                if bad != 0 && chunk.has_pairs() {
                    let last = chunk.keys.start + bad.ilog2() as usize;
                    state.bad = state.bad.max(Some(last));
                }
                if chunk.has_pairs() && outputs.is_some() {
                    let factors = decays.as_ref().map_or(&[][..], |d| &d.descending);
                    let query_rows = (&*queries.features, wide_features);
                    lower_products::<CHUNK>(
                        set,
                        [count, features],
                        query_rows,
                        key_columns,
                        scores,
                    );
                    rows::finish_scores(count, factors, scores);
                    let grad_rows = (&*queries.grads, wide_sums);
                    lower_products::<CHUNK>(set, [count, sums], grad_rows, value_columns, d_scores);
                    rows::finish_scores(count, factors, d_scores);
                    let d_features = (&mut *d_features, wide_features);
                    let size = [count, wide_features];
                    lower_transposed_times::<CHUNK>(set, size, d_scores, query_rows, d_features);
                    let d_values = (&mut *d_values, wide_value);
                    let size = [count, wide_value];
                    lower_transposed_times::<CHUNK>(set, size, scores, grad_rows, d_values);
                }
                if let Some(decays) = &decays {
                    let ascending = &decays.ascending[..count];
                    rows::scale_rows(ascending, queries.grads, wide_sums);
                }
                multiply(
                    set,
                    [sums, count, wide_features],
                    Factor::columns(queries.grads, wide_sums),
                    (queries.features, wide_features),
                    (&mut state.sums, wide_features),
                    std::mem::replace(&mut accumulate, Accumulate::Add),
                );
            }
            state.is_empty = false;
        }
        if let Some(KeyOutputs { d_key, d_value, .. }) = &outputs
            && key_count > 0
        {
            let rows = head.key_rows(&call.shape, &chunk.keys);
            // SAFETY: these keys are computed by one task.
            let (d_key, d_value) = unsafe {
                (
                    d_key.rows(rows.clone(), widths.d_head),
                    d_value.rows(rows, widths.d_value),
                )
            };
            let mapped = Mapped {
                rows: Strided {
                    rows: call.key.rows([head.example, head.kv_head], &chunk.keys),
                    stride: call.key.stride(),
                },
                scale: call.scale[1],
                features: key_features,
                is_scale_free: false,
            };
            write_grads(call, &mapped, d_features, directions, d_key);
            rows::scale_into(&[1.0; CHUNK], d_values, wide_value, d_value, widths.d_value);
            finish_key_grads(call, head, chunk, state.bad, [d_key, d_value]);
        }
    }
}

/// Sets the gradients of masked keys to zero, and those of keys that non-finite queries attend to
/// to NaN.
fn finish_key_grads(
    call: &Call<'_>,
    head: Head,
    chunk: &Chunk,
    bad: Option<usize>,
    grads: [&mut [MaybeUninit<f32>]; 2],
) {
    if bad.is_none() && call.masked.is_none() {
        return;
    }
    let Widths {
        d_head, d_value, ..
    } = call.widths();
    let (mut masked, mut poisoned) = (0, 0);
    for (i, key) in chunk.keys.clone().enumerate() {
        if call.is_masked(head, key) {
            masked |= 1 << i;
        } else if bad.is_some_and(|bad| key <= bad) {
            poisoned |= 1 << i;
        }
    }
    for (grads, width) in grads.into_iter().zip([d_head, d_value]) {
        fill_rows(grads, width, masked, MaybeUninit::new(0.0));
        fill_rows(grads, width, poisoned, MaybeUninit::new(f32::NAN));
    }
}

/// The gradients of queries, from the first chunk to the last. `state` is `Sᵀ`. Without an output,
/// only the state is computed.
pub(super) fn backward_queries(
    call: &Call<'_>,
    saved: &Saved<'_>,
    segment: Segment<'_>,
    state: &mut State,
    outputs: Option<QueryOutputs<'_>>,
) {
    let (set, head, widths) = (call.set, segment.head, call.widths());
    let decays = call.decay(head).map(Decays::new);
    let Widths {
        wide_features,
        sums,
        wide_sums,
        ..
    } = widths;
    let is_random = call.elementwise().is_none();
    let is_identity = matches!(call.elementwise(), Some(Elementwise::Identity));
    let group = call.shape.group();
    let mut scratch = Scratch::take();
    let [
        key_features,
        values,
        value_columns,
        query_features,
        grads,
        d_scores,
        d_features,
        directions,
    ] = scratch.split([
        CHUNK * wide_features,
        CHUNK * wide_sums,
        wide_sums * CHUNK,
        CHUNK * wide_features,
        CHUNK * wide_sums,
        CHUNK * CHUNK,
        CHUNK * wide_features,
        if is_random {
            CHUNK * widths.wide_head
        } else {
            0
        },
    ]);
    let mut queries = Queries {
        call,
        saved,
        head,
        features: query_features,
        grads,
    };
    for (index, chunk) in segment.chunks.iter().enumerate() {
        let shift = saved.shift(segment.first + index);
        if is_random {
            state.shift_to(shift);
        }
        let key_count = chunk.keys.len();
        if key_count > 0 {
            let keys = &chunk.keys;
            load_keys(call, head, keys, Shift::Saved(shift), key_features, values);
            transpose(
                set,
                [key_count, sums],
                (values, wide_sums),
                (value_columns, CHUNK),
            );
        }
        let count = chunk.queries.len();
        if let Some(QueryOutputs {
            d_query,
            bad_queries,
        }) = &outputs
            && count > 0
        {
            for (i, query_head) in head.query_heads(&call.shape).enumerate() {
                let rows = head.query_rows(&call.shape, query_head, &chunk.queries);
                if state.is_empty && !chunk.has_pairs() {
                    // Queries before the first key.
                    // SAFETY: these queries are computed by one task.
                    unsafe { d_query.rows(rows, widths.d_head) }.fill(MaybeUninit::new(0.0));
                    continue;
                }
                let bad = bad_queries[index * group + i];
                if is_identity {
                    // Their features have no effect on their gradients.
                    queries.load_grads(query_head, chunk);
                    fill_rows(queries.grads, wide_sums, bad, 0.0);
                } else {
                    queries.load(query_head, chunk);
                }
                let d_features = &mut d_features[..count * wide_features];
                if state.is_empty {
                    d_features.fill(0.0);
                } else {
                    multiply(
                        set,
                        [count, sums, wide_features],
                        Factor::rows(queries.grads, wide_sums),
                        (&state.sums, wide_features),
                        (d_features, wide_features),
                        Accumulate::Overwrite,
                    );
                    if let Some(decays) = &decays {
                        rows::scale_rows(&decays.ascending[..count], d_features, wide_features);
                    }
                }
                if chunk.has_pairs() {
                    let grad_rows = (&*queries.grads, wide_sums);
                    lower_products::<CHUNK>(set, [count, sums], grad_rows, value_columns, d_scores);
                    let factors = decays.as_ref().map_or(&[][..], |d| &d.descending);
                    rows::finish_scores(count, factors, d_scores);
                    let (keys, to) = (
                        (&*key_features, wide_features),
                        (&mut *d_features, wide_features),
                    );
                    lower_times::<CHUNK>(set, [count, wide_features], d_scores, keys, to);
                }
                let mapped = Mapped {
                    rows: Strided {
                        rows: call.query.rows([head.example, query_head], &chunk.queries),
                        stride: call.query.stride(),
                    },
                    scale: call.scale[0],
                    features: queries.features,
                    is_scale_free: true,
                };
                // SAFETY: these queries are computed by one task. If the memory is that of the
                // output gradients, they were read above and are not needed again.
                let d_query = unsafe { d_query.rows(rows, widths.d_head) };
                write_grads(call, &mapped, d_features, directions, d_query);
                fill_rows(d_query, widths.d_head, bad, MaybeUninit::new(f32::NAN));
            }
        }
        if key_count > 0 {
            let mut accumulate = Accumulate::Add;
            if let Some(decays) = &decays {
                accumulate = Accumulate::Scale(decays.ascending[chunk.len() - 1]);
                rows::scale_rows(decays.to_end(key_count), key_features, wide_features);
            }
            multiply(
                set,
                [sums, key_count, wide_features],
                Factor::columns(values, wide_sums),
                (key_features, wide_features),
                (&mut state.sums, wide_features),
                accumulate,
            );
            state.is_empty = false;
        }
    }
}
