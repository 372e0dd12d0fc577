//! Tiled attention on a CPU, on plain slices of `f32`.
//!
//! Forward: each task takes one tile of queries through all tiles of keys it may
//! see. Backward: each task takes one head's keys and values (or, where there are
//! fewer heads than threads, a part of its queries), so that no two tasks add to
//! the same gradient.

mod kernel;
mod simd;

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use self::kernel::{Into, KEYS, QUERIES, Scalars, hide, matmul, online_softmax, softmax_backward};
use self::simd::{Portable, Simd};
use super::sight::{Sight, Sights};
use crate::AttentionShape;

/// What one call computes with.
pub(super) struct Call<'a> {
    /// The sizes.
    pub(super) shape: AttentionShape,
    /// What scores are multiplied by.
    pub(super) scale: f32,
    /// Who sees whom.
    pub(super) sights: &'a Sights<'a>,
    /// `[batch, heads, seq_q, d_head]`
    pub(super) query: &'a [f32],
    /// `[batch, kv_heads, seq_k, d_head]`
    pub(super) key: &'a [f32],
    /// `[batch, kv_heads, seq_k, d_value]`
    pub(super) value: &'a [f32],
}

/// What the backward pass knows besides the call.
pub(super) struct Upstream<'a> {
    /// `[batch, heads, seq_q, d_value]`
    pub(super) context: &'a [f32],
    /// `[batch, heads, seq_q]`
    pub(super) log_sum_exp: &'a [f32],
    /// `[batch, heads, seq_q, d_value]`: the gradient that arrives at the context.
    pub(super) d_context: &'a [f32],
    /// `[batch, heads, seq_q]`: the gradient that arrives at the log-sum-exp, if any.
    pub(super) d_log_sum_exp: Option<&'a [f32]>,
}

/// The gradients by query, key and value, shaped like these.
pub(super) struct Gradients {
    pub(super) query: Vec<f32>,
    pub(super) key: Vec<f32>,
    pub(super) value: Vec<f32>,
}

/// Context `[batch, heads, seq_q, d_value]` and log-sum-exp `[batch, heads, seq_q]`.
pub(super) fn forward(call: &Call<'_>) -> (Vec<f32>, Vec<f32>) {
    let shape = call.shape;
    let heads = shape.batch * shape.heads;
    let mut context = vec![0.0; heads * shape.seq_q * shape.d_value];
    let mut log_sum_exp = vec![0.0; heads * shape.seq_q];
    let run = Kind::here().forward();
    context
        .par_chunks_mut(shape.seq_q * shape.d_value)
        .zip(log_sum_exp.par_chunks_mut(shape.seq_q))
        .enumerate()
        .for_each(|(head, (context, log_sum_exp))| {
            context
                .par_chunks_mut(QUERIES * shape.d_value)
                .zip(log_sum_exp.par_chunks_mut(QUERIES))
                .enumerate()
                .for_each(|(tile, (context, log_sum_exp))| {
                    let first = tile * QUERIES;
                    let queries = first..first + log_sum_exp.len();
                    // SAFETY: `run` was chosen for this processor.
                    unsafe { run(call, head, queries, context, log_sum_exp) };
                });
        });
    (context, log_sum_exp)
}

/// The gradients of a call.
pub(super) fn backward(call: &Call<'_>, upstream: &Upstream<'_>) -> Gradients {
    let shape = call.shape;
    let mut d_query = vec![0.0; call.query.len()];
    let mut d_key = vec![0.0; call.key.len()];
    let mut d_value = vec![0.0; call.value.len()];
    let run = Kind::here().backward();

    // Queries of all heads that share a key and value head lie side by side.
    let of_kv_head = shape.group() * shape.seq_q;
    let parts = parts(&shape);
    d_query
        .par_chunks_mut(of_kv_head * shape.d_head)
        .zip(d_key.par_chunks_mut(shape.seq_k * shape.d_head))
        .zip(d_value.par_chunks_mut(shape.seq_k * shape.d_value))
        .enumerate()
        .for_each(|(kv_head, ((d_query, d_key), d_value))| {
            let rows = part_of_queries(&shape, parts);
            let part =
                |(part, d_query): (usize, &mut [f32]), d_key: &mut [f32], d_value: &mut [f32]| {
                    let first = part * rows;
                    let queries = first..first + d_query.len() / shape.d_head;
                    let out = Out {
                        d_query,
                        d_key,
                        d_value,
                    };
                    // SAFETY: `run` was chosen for this processor.
                    unsafe { run(call, upstream, kv_head, queries, out) };
                };
            if parts == 1 {
                part((0, d_query), d_key, d_value);
                return;
            }
            // Each part adds into its own copy; copies are added up at the end.
            let copies: Vec<(Vec<f32>, Vec<f32>)> = d_query
                .par_chunks_mut(rows * shape.d_head)
                .enumerate()
                .map(|numbered| {
                    let mut copy = (vec![0.0; d_key.len()], vec![0.0; d_value.len()]);
                    part(numbered, &mut copy.0, &mut copy.1);
                    copy
                })
                .collect();
            for (key, value) in copies {
                add(d_key, &key);
                add(d_value, &value);
            }
        });
    Gradients {
        query: d_query,
        key: d_key,
        value: d_value,
    }
}

/// Into how many parts the queries of a key and value head are split: none while
/// there are two heads for each thread.
fn parts(shape: &AttentionShape) -> usize {
    let heads = shape.batch * shape.kv_heads;
    let wanted = (2 * rayon::current_num_threads()).div_ceil(heads);
    let most = (shape.group() * shape.seq_q).div_ceil(4 * QUERIES);
    // One copy of a head's gradients for each: no more than threads can use.
    wanted.clamp(1, most.max(1))
}

/// Queries in each part, whole tiles of them.
fn part_of_queries(shape: &AttentionShape, parts: usize) -> usize {
    let all = shape.group() * shape.seq_q;
    all.div_ceil(parts).next_multiple_of(QUERIES)
}

fn add(into: &mut [f32], numbers: &[f32]) {
    for (into, number) in into.iter_mut().zip(numbers) {
        *into += number;
    }
}

/// Where a task of the backward pass adds its gradients.
struct Out<'a> {
    d_query: &'a mut [f32],
    d_key: &'a mut [f32],
    d_value: &'a mut [f32],
}

type Forward = unsafe fn(&Call<'_>, usize, Range<usize>, &mut [f32], &mut [f32]);
type Backward = unsafe fn(&Call<'_>, &Upstream<'_>, usize, Range<usize>, Out<'_>);

/// The instructions this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Kind {
    /// The best kind there is. The standard library asks the processor once.
    pub(super) fn here() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// How it is called.
    pub(super) fn word(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "cpu-avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "cpu-avx2",
            Self::Portable => "cpu-portable",
        }
    }

    fn forward(self) -> Forward {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => forward_avx512,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => forward_avx2,
            Self::Portable => forward_tile::<Portable>,
        }
    }

    fn backward(self) -> Backward {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => backward_avx512,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => backward_avx2,
            Self::Portable => backward_part::<Portable>,
        }
    }
}

// The same functions with the instructions of each kind enabled around them.

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn forward_avx512(
    call: &Call<'_>,
    head: usize,
    queries: Range<usize>,
    context: &mut [f32],
    log_sum_exp: &mut [f32],
) {
    unsafe { forward_tile::<simd::Avx512>(call, head, queries, context, log_sum_exp) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn forward_avx2(
    call: &Call<'_>,
    head: usize,
    queries: Range<usize>,
    context: &mut [f32],
    log_sum_exp: &mut [f32],
) {
    unsafe { forward_tile::<simd::Avx2>(call, head, queries, context, log_sum_exp) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn backward_avx512(
    call: &Call<'_>,
    upstream: &Upstream<'_>,
    kv_head: usize,
    queries: Range<usize>,
    out: Out<'_>,
) {
    unsafe { backward_part::<simd::Avx512>(call, upstream, kv_head, queries, out) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn backward_avx2(
    call: &Call<'_>,
    upstream: &Upstream<'_>,
    kv_head: usize,
    queries: Range<usize>,
    out: Out<'_>,
) {
    unsafe { backward_part::<simd::Avx2>(call, upstream, kv_head, queries, out) }
}

thread_local! {
    static KEPT: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Room for the tiles of a task, kept by its thread from one to the next.
///
/// Handed out as slices and not to a closure: a closure would be compiled without
/// the instructions of the function it stands in.
struct Scratch(Vec<f32>);

impl Scratch {
    /// Takes this thread's room. A task that is lent to the thread while another
    /// waits on it finds none, and gets its own.
    fn take() -> Self {
        Self(KEPT.take())
    }

    /// Pieces of the given lengths, each beginning on a cache line.
    fn split<const N: usize>(&mut self, lengths: [usize; N]) -> [&mut [f32]; N] {
        const LINE: usize = 16;
        let total: usize = lengths.iter().map(|l| l.next_multiple_of(LINE)).sum();
        if self.0.len() < total + LINE {
            self.0.resize(total + LINE, 0.0);
        }
        let skip = self.0.as_ptr().align_offset(64).min(LINE);
        let mut rest = &mut self.0[skip..];
        lengths.map(|length| {
            let (piece, after) =
                std::mem::take(&mut rest).split_at_mut(length.next_multiple_of(LINE));
            rest = after;
            &mut piece[..length]
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A thread at its end has no place to keep it any more.
        let _ = KEPT.try_with(|kept| kept.replace(std::mem::take(&mut self.0)));
    }
}

/// One tile of queries, forward.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn forward_tile<S: Simd>(
    call: &Call<'_>,
    head: usize,
    queries: Range<usize>,
    context: &mut [f32],
    log_sum_exp: &mut [f32],
) {
    let AttentionShape {
        heads,
        kv_heads,
        seq_q,
        seq_k,
        d_head,
        d_value,
        ..
    } = call.shape;
    let (example, own) = (head / heads, head % heads);
    let kv_head = example * kv_heads + own / call.shape.group();
    let key = &call.key[kv_head * seq_k * d_head..][..seq_k * d_head];
    let value = &call.value[kv_head * seq_k * d_value..][..seq_k * d_value];
    let query = &call.query[(head * seq_q + queries.start) * d_head..][..queries.len() * d_head];

    let sizes = [
        d_head * QUERIES,
        KEYS * QUERIES,
        d_value * QUERIES,
        QUERIES,
        QUERIES,
    ];
    let mut scratch = Scratch::take();
    let [turned, scores, sums, largest, sum] = scratch.split(sizes);
    turn(query, d_head, call.scale * std::f32::consts::LOG2_E, turned);
    sums.fill(0.0);
    // Below every score, and finite: nothing is ever infinity minus infinity.
    largest.fill(f32::MIN);
    sum.fill(0.0);

    for keys in tiles(seq_k, KEYS) {
        let sight = call
            .sights
            .tile([example, own], queries.clone(), keys.clone());
        if sight == Sight::Nothing {
            continue;
        }
        let count = keys.len();
        // SAFETY: the caller enabled the instructions; sizes are those above.
        unsafe {
            let at = key.as_ptr().add(keys.start * d_head);
            let rows = Scalars {
                start: at,
                row_stride: d_head,
                column_stride: 1,
            };
            matmul::<S>(
                [count, d_head, QUERIES],
                rows,
                (turned.as_ptr(), QUERIES),
                (scores.as_mut_ptr(), QUERIES),
                Into::Fresh,
            );
            if sight == Sight::Part {
                conceal::<S>(call.sights, [example, own], &queries, &keys, scores);
            }
            online_softmax::<S>(
                count,
                scores.as_mut_ptr(),
                largest.as_mut_ptr(),
                sum.as_mut_ptr(),
                sums.as_mut_ptr(),
                d_value,
            );
            let columns = Scalars {
                start: value.as_ptr().add(keys.start * d_value),
                row_stride: 1,
                column_stride: d_value,
            };
            matmul::<S>(
                [d_value, count, QUERIES],
                columns,
                (scores.as_ptr(), QUERIES),
                (sums.as_mut_ptr(), QUERIES),
                Into::Sum,
            );
        }
    }

    for (i, row) in context.chunks_exact_mut(d_value).enumerate() {
        // A query that saw nothing has a sum of zero, and zeros for its context.
        let share = if sum[i] == 0.0 { 0.0 } else { 1.0 / sum[i] };
        for (x, into) in row.iter_mut().enumerate() {
            *into = sums[x * QUERIES + i] * share;
        }
        log_sum_exp[i] = if sum[i] == 0.0 {
            f32::NEG_INFINITY
        } else {
            (largest[i] + sum[i].log2()) * std::f32::consts::LN_2
        };
    }
}

/// Some queries of the heads that share a key and value head, backward. `queries`
/// counts over all these heads.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn backward_part<S: Simd>(
    call: &Call<'_>,
    upstream: &Upstream<'_>,
    kv_head: usize,
    queries: Range<usize>,
    out: Out<'_>,
) {
    let AttentionShape {
        kv_heads,
        seq_q,
        seq_k,
        d_head,
        d_value,
        ..
    } = call.shape;
    let group = call.shape.group();
    let example = kv_head / kv_heads;
    let key = &call.key[kv_head * seq_k * d_head..][..seq_k * d_head];
    let value = &call.value[kv_head * seq_k * d_value..][..seq_k * d_value];
    // Rows as wide as registers: gradients are added to a copy where they are not.
    let (wide_head, wide_value) = (
        d_head.next_multiple_of(S::LANES),
        d_value.next_multiple_of(S::LANES),
    );
    let padded = [wide_head != d_head, wide_value != d_value];
    let room = |padded: bool, rows: usize, width: usize| if padded { rows * width } else { 0 };

    let sizes = [
        d_head * QUERIES,
        d_value * QUERIES,
        KEYS * QUERIES,
        KEYS * QUERIES,
        d_head * QUERIES,
        QUERIES,
        QUERIES,
        room(padded[0], QUERIES, wide_head),
        room(padded[1], QUERIES, wide_value),
        room(padded[0], seq_k, wide_head),
        room(padded[1], seq_k, wide_value),
    ];
    let mut scratch = Scratch::take();
    let [
        turned,
        d_turned,
        scores,
        d_scores,
        d_query_turned,
        lse,
        mean,
        wide_queries,
        wide_d_context,
        wide_d_key,
        wide_d_value,
    ] = scratch.split(sizes);
    wide_d_key.fill(0.0);
    wide_d_value.fill(0.0);
    let d_key = if padded[0] {
        wide_d_key.as_mut_ptr()
    } else {
        out.d_key.as_mut_ptr()
    };
    let d_value_sum = if padded[1] {
        wide_d_value.as_mut_ptr()
    } else {
        out.d_value.as_mut_ptr()
    };

    let mut first = queries.start;
    while first < queries.end {
        // A tile never reaches over from one head into the next.
        let own = kv_head % kv_heads * group + first / seq_q;
        let in_head = first % seq_q;
        let count = QUERIES.min(seq_q - in_head).min(queries.end - first);
        let tile = in_head..in_head + count;
        let row = kv_head * group * seq_q + first;

        let query = &call.query[row * d_head..][..count * d_head];
        let d_context = &upstream.d_context[row * d_value..][..count * d_value];
        let context = &upstream.context[row * d_value..][..count * d_value];
        turn(query, d_head, call.scale * std::f32::consts::LOG2_E, turned);
        turn(d_context, d_value, 1.0, d_turned);
        lse.fill(f32::INFINITY);
        mean.fill(0.0);
        for i in 0..count {
            let sum = upstream.log_sum_exp[row + i] * std::f32::consts::LOG2_E;
            // A query that sees nothing weighs nothing: 2^(s - infinity).
            lse[i] = if sum == f32::NEG_INFINITY {
                f32::INFINITY
            } else {
                sum
            };
            let range = i * d_value..(i + 1) * d_value;
            // In the order of the matmul that it is taken off from: where a query
            // sees one key alone, the difference is then zero and not a rounding.
            let products = context[range.clone()].iter().zip(&d_context[range]);
            let product = products.fold(0.0, |sum, (o, d)| S::fma_one(*o, *d, sum));
            let d_lse = upstream.d_log_sum_exp.map_or(0.0, |d_lse| d_lse[row + i]);
            mean[i] = product - d_lse;
        }
        let query_rows = widen(query, d_head, wide_queries, wide_head);
        let d_context_rows = widen(d_context, d_value, wide_d_context, wide_value);
        d_query_turned.fill(0.0);

        for keys in tiles(seq_k, KEYS) {
            let sight = call.sights.tile([example, own], tile.clone(), keys.clone());
            if sight == Sight::Nothing {
                continue;
            }
            let seen = keys.len();
            // SAFETY: the caller enabled the instructions; sizes are those above.
            unsafe {
                let key = key.as_ptr().add(keys.start * d_head);
                let value = value.as_ptr().add(keys.start * d_value);
                let by_key = |start, row_stride| Scalars {
                    start,
                    row_stride,
                    column_stride: 1,
                };
                matmul::<S>(
                    [seen, d_head, QUERIES],
                    by_key(key, d_head),
                    (turned.as_ptr(), QUERIES),
                    (scores.as_mut_ptr(), QUERIES),
                    Into::Fresh,
                );
                if sight == Sight::Part {
                    conceal::<S>(call.sights, [example, own], &tile, &keys, scores);
                }
                matmul::<S>(
                    [seen, d_value, QUERIES],
                    by_key(value, d_value),
                    (d_turned.as_ptr(), QUERIES),
                    (d_scores.as_mut_ptr(), QUERIES),
                    Into::Fresh,
                );
                softmax_backward::<S>(
                    seen,
                    scores.as_mut_ptr(),
                    d_scores.as_mut_ptr(),
                    lse.as_ptr(),
                    mean.as_ptr(),
                    call.scale,
                );
                // dV += P · dO, dK += dS · Q, over the queries of the tile.
                matmul::<S>(
                    [seen, count, wide_value],
                    by_key(scores.as_ptr(), QUERIES),
                    (d_context_rows, wide_value),
                    (d_value_sum.add(keys.start * wide_value), wide_value),
                    Into::Sum,
                );
                matmul::<S>(
                    [seen, count, wide_head],
                    by_key(d_scores.as_ptr(), QUERIES),
                    (query_rows, wide_head),
                    (d_key.add(keys.start * wide_head), wide_head),
                    Into::Sum,
                );
                // dQ += dSᵀ · K, turned like the queries.
                let columns = Scalars {
                    start: key,
                    row_stride: 1,
                    column_stride: d_head,
                };
                matmul::<S>(
                    [d_head, seen, QUERIES],
                    columns,
                    (d_scores.as_ptr(), QUERIES),
                    (d_query_turned.as_mut_ptr(), QUERIES),
                    Into::Sum,
                );
            }
        }
        let start = (first - queries.start) * d_head;
        let d_query = &mut out.d_query[start..][..count * d_head];
        for (i, row) in d_query.chunks_exact_mut(d_head).enumerate() {
            for (x, into) in row.iter_mut().enumerate() {
                *into = d_query_turned[x * QUERIES + i];
            }
        }
        first += count;
    }

    if padded[0] {
        narrow(wide_d_key, wide_head, out.d_key, d_head);
    }
    if padded[1] {
        narrow(wide_d_value, wide_value, out.d_value, d_value);
    }
}

/// `0..length` in steps of `size`, the last one shorter.
fn tiles(length: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length)
        .step_by(size)
        .map(move |start| start..length.min(start + size))
}

/// Rows become columns of [`QUERIES`] numbers, times `factor`; what is over is zero.
fn turn(rows: &[f32], width: usize, factor: f32, turned: &mut [f32]) {
    let count = rows.len() / width;
    if count < QUERIES {
        turned.fill(0.0);
    }
    for (i, row) in rows.chunks_exact(width).enumerate() {
        for (x, number) in row.iter().enumerate() {
            turned[x * QUERIES + i] = number * factor;
        }
    }
}

/// Rows as they are if there is no room to copy them to, else copied, zeros after each.
fn widen(rows: &[f32], width: usize, room: &mut [f32], wide: usize) -> *const f32 {
    if room.is_empty() {
        return rows.as_ptr();
    }
    for (row, into) in rows.chunks_exact(width).zip(room.chunks_exact_mut(wide)) {
        into[..width].copy_from_slice(row);
        into[width..].fill(0.0);
    }
    room.as_ptr()
}

/// Adds the first numbers of each wide row.
fn narrow(wide_rows: &[f32], wide: usize, rows: &mut [f32], width: usize) {
    for (from, row) in wide_rows
        .chunks_exact(wide)
        .zip(rows.chunks_exact_mut(width))
    {
        add(row, &from[..width]);
    }
}

/// Hides what a tile that is seen in part does not show.
///
/// # Safety
///
/// The instructions of `S` are enabled; `scores` has a row for each of `keys`.
#[inline(always)]
unsafe fn conceal<S: Simd>(
    sights: &Sights<'_>,
    head: [usize; 2],
    queries: &Range<usize>,
    keys: &Range<usize>,
    scores: &mut [f32],
) {
    for (at, key) in keys.clone().enumerate() {
        let seen = sights.seen(head, queries.clone(), key);
        let row = &mut scores[at * QUERIES..][..QUERIES];
        // SAFETY: the row is as long as it must be.
        unsafe { hide::<S>(row.as_mut_ptr(), seen) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::sight::Rule;
    use super::*;

    /// Every kind this processor has.
    fn kinds() -> Vec<Kind> {
        let mut kinds = vec![Kind::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                kinds.push(Kind::Avx2);
            }
            if is_x86_feature_detected!("avx512f") {
                kinds.push(Kind::Avx512);
            }
        }
        kinds
    }

    /// Numbers that are random enough: a multiplicative congruence.
    fn numbers(count: usize, mut seed: u64) -> Vec<f32> {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..count).map(|_| 4.0 * next()).collect()
    }

    /// All kinds compute the same, tile by tile, for sizes that divide nothing.
    #[test]
    fn kinds_agree() {
        let shape = AttentionShape {
            batch: 1,
            heads: 2,
            kv_heads: 1,
            seq_q: 70,
            seq_k: 203,
            d_head: 20,
            d_value: 37,
        };
        let query = numbers(2 * 70 * 20, 1);
        let key = numbers(203 * 20, 2);
        let value = numbers(203 * 37, 3);
        let d_context = numbers(2 * 70 * 37, 4);
        let sights = Sights {
            shape: &shape,
            rule: &Rule::Causal,
            hidden: None,
        };
        let call = Call {
            shape,
            scale: 0.3,
            sights: &sights,
            query: &query,
            key: &key,
            value: &value,
        };
        let results: Vec<[Vec<f32>; 5]> = kinds()
            .into_iter()
            .map(|kind| {
                let mut context = vec![0.0; 2 * 70 * 37];
                let mut log_sum_exp = vec![0.0; 2 * 70];
                for head in 0..2 {
                    for (tile, queries) in tiles(70, QUERIES).enumerate() {
                        let first = head * 70 + tile * QUERIES;
                        let context = &mut context[first * 37..][..queries.len() * 37];
                        let log_sum_exp = &mut log_sum_exp[first..][..queries.len()];
                        unsafe { kind.forward()(&call, head, queries, context, log_sum_exp) };
                    }
                }
                let upstream = Upstream {
                    context: &context,
                    log_sum_exp: &log_sum_exp,
                    d_context: &d_context,
                    d_log_sum_exp: None,
                };
                let mut d_query = vec![0.0; query.len()];
                let mut d_key = vec![0.0; key.len()];
                let mut d_value = vec![0.0; value.len()];
                let out = Out {
                    d_query: &mut d_query,
                    d_key: &mut d_key,
                    d_value: &mut d_value,
                };
                unsafe { kind.backward()(&call, &upstream, 0, 0..140, out) };
                [context, log_sum_exp, d_query, d_key, d_value]
            })
            .collect();
        for other in &results[1..] {
            for (a, b) in results[0].iter().zip(other) {
                let size = a.iter().fold(0f32, |size, x| size.max(x.abs()));
                for (a, b) in a.iter().zip(b) {
                    assert!((a - b).abs() <= 1e-5 * size, "{a} and {b}, of {size}");
                }
            }
        }
    }
}
