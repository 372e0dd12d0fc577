//! Linear attention and retention on the CPU, on slices of `f32`, in one pass over chunks.
//!
//! Only the state of a head and the buffers of one chunk are stored; the backward pass recomputes the
//! states. A task computes one key/value head with the query heads that share it. If there are few
//! heads, a task computes a segment of the chunks: then the states of all segments are computed
//! first, each from an empty state, and summed.

mod activation;
mod backward;
mod call;
mod forward;
mod load;
mod matmul;
mod rows;
mod state;

use std::mem::MaybeUninit;

use zoo_kernels::cpu::parallel::{for_each, map, threads};

use self::backward::{KeyOutputs, QueryOutputs, Saved, Segment};
use self::call::Chunk;
pub(super) use self::call::{Call, Head, Heads, Output, initialised};
use self::forward::Outputs;
pub(super) use self::matmul::{
    Factor, STRIP, lower_products, lower_times, lower_transposed_times, multiply, strip_width,
    transpose,
};
pub(super) use self::rows::{dot, has_non_finite, scale as multiply_by, scale_rows};
use self::state::{State, decay_over, segments};
use super::call::ScanMap;
use crate::AttentionShape;

/// Positions in a chunk. More would compute more scores per query, fewer would update the state
/// more often. The buffers of 32 positions and 64 features have 8 KB each, the state 16 KB.
const CHUNK: usize = 32;

/// The minimum number of chunks in a segment: the state of a segment costs about a third of its
/// forward pass.
const MIN_SEGMENT: usize = 8;

/// What the forward pass saves besides the context.
#[derive(Debug)]
pub(crate) struct Stats {
    /// `[batch, heads, seq_q]`: sums of weights; empty for retention.
    denominators: Vec<f32>,
    /// `[batch, kv_heads, chunks]`: the maximum exponent of the keys up to each chunk, in base 2;
    /// empty without random features.
    shifts: Vec<f32>,
    /// For each example and key/value head, the first key that is visible and not finite.
    first_bad: Vec<Option<usize>>,
}

/// The number of segments for enough tasks to balance the load of the threads.
pub(super) fn default_segments(shape: &AttentionShape) -> usize {
    let chunks = shape.seq_q.max(shape.seq_k).div_ceil(CHUNK);
    match threads() {
        1 => 1,
        threads => (2 * threads)
            .div_ceil(shape.batch * shape.kv_heads)
            .clamp(1, (chunks / MIN_SEGMENT).max(1)),
    }
}

/// A segment of a head, with the states it begins with.
struct Task<'a, States> {
    segment: Segment<'a>,
    states: States,
}

/// Tasks for all segments of all heads, in order.
fn tasks<'a>(call: &Call<'_>, chunks: &'a [Chunk]) -> Vec<Segment<'a>> {
    let heads = call.shape.batch * call.shape.kv_heads;
    let mut tasks = Vec::new();
    for head in 0..heads {
        let mut first = head * chunks.len();
        for segment in segments(chunks, call.segments) {
            tasks.push(Segment {
                head: Head::new(head, &call.shape),
                chunks: segment,
                first,
            });
            first += segment.len();
        }
    }
    tasks
}

/// The states before each of the segments of a head, from the states of the segments alone, in the
/// order of the recurrence.
fn exclusive_sums<'a>(
    call: &Call<'_>,
    len: usize,
    segments: impl Iterator<Item = (Segment<'a>, State)>,
) -> Vec<State> {
    let mut state = State::empty(call, len);
    let mut before = Vec::new();
    for (segment, local) in segments {
        let decay = decay_over(call, segment.head, segment.chunks);
        let after = state.followed_by(&local, decay);
        before.push(std::mem::replace(&mut state, after));
    }
    before
}

/// Writes every element of the context, `[batch, heads, seq_q, d_value]`.
pub(super) fn forward(call: &Call<'_>, context: &mut [MaybeUninit<f32>]) -> Stats {
    let shape = &call.shape;
    let chunks = call.chunks();
    let heads = shape.batch * shape.kv_heads;
    let is_random = matches!(call.map, ScanMap::Exponential(_));
    let len_if = |is_needed: bool, len: usize| if is_needed { len } else { 0 };
    let mut stats = Stats {
        denominators: vec![
            0.0;
            len_if(
                call.is_normalised(),
                shape.batch * shape.heads * shape.seq_q
            )
        ],
        shifts: vec![0.0; len_if(is_random, heads * chunks.len())],
        first_bad: vec![None; heads],
    };
    let outputs = Outputs {
        context: Output::new(context),
        denominators: Output::new(initialised(&mut stats.denominators)),
        shifts: Output::new(initialised(&mut stats.shifts)),
    };
    let len = forward::state_len(&call.widths());
    let run = |segment: Segment<'_>, state: &mut State, outputs: Option<&Outputs<'_>>| {
        let Segment {
            head,
            chunks,
            first,
        } = segment;
        forward::forward(call, head, chunks, first, state, outputs);
    };
    let segments = tasks(call, &chunks);
    let per_head = segments.len() / heads;
    let states = if per_head == 1 {
        segments.iter().map(|_| State::empty(call, len)).collect()
    } else {
        let is_last = |index: usize| (index + 1).is_multiple_of(per_head);
        let locals = map(segments.iter().enumerate().collect(), |(index, segment)| {
            let mut state = State::empty(call, len);
            if !is_last(index) {
                run(*segment, &mut state, None);
            }
            state
        });
        let mut locals = segments.iter().copied().zip(locals);
        let mut states = Vec::with_capacity(segments.len());
        for _ in 0..heads {
            states.extend(exclusive_sums(call, len, locals.by_ref().take(per_head)));
        }
        states
    };
    let tasks = segments.into_iter().zip(states).collect();
    let bad = map(tasks, |(segment, mut state)| {
        run(segment, &mut state, Some(&outputs));
        state.bad
    });
    for (first_bad, bad) in stats.first_bad.iter_mut().zip(bad.chunks(per_head)) {
        *first_bad = bad.last().copied().flatten();
    }
    stats
}

/// Output gradients.
pub(super) enum OutputGrads<'a> {
    /// `[batch, heads, seq_q, d_value]`
    Separate(Heads<'a>),
    /// In the memory of the query gradients, which is initialised and has the width of the values.
    InPlace,
}

/// The slices that gradients are written to.
pub(super) struct InputGrads<'a> {
    pub(super) d_query: &'a mut [MaybeUninit<f32>],
    pub(super) d_key: &'a mut [MaybeUninit<f32>],
    pub(super) d_value: &'a mut [MaybeUninit<f32>],
}

/// Writes every element of the gradients of query, key and value. `context` is empty for retention.
pub(super) fn backward(
    call: &Call<'_>,
    context: &[f32],
    stats: &Stats,
    output_grads: OutputGrads<'_>,
    grads: InputGrads<'_>,
) {
    let shape = &call.shape;
    let chunks = call.chunks();
    let heads = shape.batch * shape.kv_heads;
    let d_query = Output::new(grads.d_query);
    let (d_key, d_value) = (Output::new(grads.d_key), Output::new(grads.d_value));
    let saved = Saved {
        context,
        denominators: &stats.denominators,
        shifts: &stats.shifts,
        first_bad: &stats.first_bad,
        d_context: match output_grads {
            OutputGrads::Separate(heads) => heads,
            // SAFETY: the gradients of a segment's queries are written after its output gradients
            // were read for the last time.
            OutputGrads::InPlace => unsafe {
                d_query.as_heads([shape.heads, shape.seq_q, shape.d_value])
            },
        },
    };
    let len = backward::state_len(&call.widths());
    let empty = || State::empty(call, len);
    let segments = tasks(call, &chunks);
    let per_head = segments.len() / heads;
    let states: Vec<[State; 2]> = if per_head == 1 {
        segments.iter().map(|_| [empty(), empty()]).collect()
    } else {
        // The states of keys, forward, and of queries, backward.
        let locals = map(segments.iter().enumerate().collect(), |(index, segment)| {
            let (mut keys, mut queries) = (empty(), empty());
            if !(index + 1).is_multiple_of(per_head) {
                backward::backward_queries(call, &saved, *segment, &mut keys, None);
            }
            if !index.is_multiple_of(per_head) {
                backward::backward_keys(call, &saved, *segment, &mut queries, None);
            }
            [keys, queries]
        });
        let mut states = Vec::with_capacity(segments.len());
        for (segments, locals) in segments.chunks(per_head).zip(locals.chunks(per_head)) {
            let locals = segments.iter().copied().zip(locals);
            let keys = locals
                .clone()
                .map(|(segment, [keys, _])| (segment, keys.clone()));
            let queries = locals.map(|(segment, [_, queries])| (segment, queries.clone()));
            let keys = exclusive_sums(call, len, keys);
            let mut queries = exclusive_sums(call, len, queries.rev());
            queries.reverse();
            states.extend(keys.into_iter().zip(queries).map(|(k, q)| [k, q]));
        }
        states
    };
    let tasks: Vec<_> = segments
        .into_iter()
        .zip(states)
        .map(|(segment, states)| Task { segment, states })
        .collect();
    for_each(tasks, |Task { segment, states }| {
        let [mut keys, mut queries] = states;
        let bad_queries = &mut vec![0; segment.chunks.len() * shape.group()];
        let outputs = KeyOutputs {
            d_key: &d_key,
            d_value: &d_value,
            bad_queries,
        };
        backward::backward_keys(call, &saved, segment, &mut queries, Some(outputs));
        let outputs = QueryOutputs {
            d_query: &d_query,
            bad_queries,
        };
        backward::backward_queries(call, &saved, segment, &mut keys, Some(outputs));
    });
}

#[cfg(test)]
mod tests;
