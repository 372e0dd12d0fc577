//! A few queries against many keys, forward: how text is generated.
//!
//! With queries across the lanes most lanes would be empty. Here the numbers of a head lie
//! across them, and each key and value is read once, for all queries that share it: it is
//! the memory that takes the time.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use rayon::prelude::*;
use zoo_kernels::cpu::dispatch;
use zoo_kernels::cpu::parallel::threads;
use zoo_kernels::cpu::{InstructionSet, Simd};

use super::call::Call;
use super::kernel::KEYS;
use super::score::{biased, soften};
use super::scratch::Scratch;
use crate::pattern::rule::place;

/// As many queries a head as are faster here: from a dozen on, a tile of 64 is.
pub(super) const FEW: usize = 8;

/// Keys that are worth a task of their own, in tiles: reading them takes some ten
/// microseconds.
const TILES_OF_A_TASK: usize = 4;

/// Some keys, and whether none of them is hidden.
type Keys = (Range<usize>, bool);

/// What a query knows after some keys: its context, still to be divided by the sum, the
/// largest score and the sum.
const LARGEST_AND_SUM: usize = 2;

/// Context `[batch, heads, seq_q, d_value]` and statistics `[batch, heads, seq_q, 2]` of a
/// few queries a head, without dropout.
pub(super) fn forward(call: &Call<'_>) -> (Vec<f32>, Vec<f32>) {
    let [batch, _, seq_q, _] = call.shape.scores();
    let (kv_heads, d_value) = (call.shape.kv_heads, call.shape.d_value);
    let queries = call.shape.group() * seq_q;
    let tiles: Vec<Vec<Keys>> = (0..batch)
        .map(|example| call.plan.tiles(example, 0).collect())
        .collect();
    // A head's keys are one task, or several where there are fewer heads than threads.
    let wanted = (2 * threads()).div_ceil(batch * kv_heads);
    let most = tiles.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let of_a_task = most.div_ceil(wanted).max(TILES_OF_A_TASK);
    let parts = most.div_ceil(of_a_task);

    let width = d_value + LARGEST_AND_SUM;
    let mut partial = vec![0.0; batch * kv_heads * parts * queries * width];
    let set = InstructionSet::detect();
    partial
        .par_chunks_mut(queries * width)
        .enumerate()
        .for_each(|(task, partial)| {
            let (kv_head, part) = (task / parts, task % parts);
            let tiles = &tiles[kv_head / kv_heads];
            let some = tiles.len().min(part * of_a_task)..tiles.len().min((part + 1) * of_a_task);
            // SAFETY: the processor has the set.
            unsafe { forward_of_few(set, call, kv_head, &tiles[some], partial) };
        });
    joined(&partial, [parts, queries, d_value])
}

/// The parts of every query, one after the other, become one.
pub(super) fn joined(
    partial: &[f32],
    [parts, queries, d_value]: [usize; 3],
) -> (Vec<f32>, Vec<f32>) {
    let width = d_value + LARGEST_AND_SUM;
    let (mut context, mut stats) = (Vec::new(), Vec::new());
    for head in partial.chunks_exact(parts * queries * width) {
        for query in 0..queries {
            let part = |part: usize| &head[(part * queries + query) * width..][..width];
            let largest = (0..parts).fold(f32::MIN, |most, at| most.max(part(at)[d_value]));
            let first = context.len();
            context.resize(first + d_value, 0.0);
            let mut total = 0.0;
            for at in 0..parts {
                let part = part(at);
                let shrink = (part[d_value] - largest).exp2();
                total += shrink * part[d_value + 1];
                for (into, sum) in context[first..].iter_mut().zip(part) {
                    *into += shrink * sum;
                }
            }
            stats.extend([largest, total]);
            // A fully masked row has a sum of zero, and zeros for its context.
            if total == 0.0 {
                continue;
            }
            for into in &mut context[first..] {
                *into /= total;
            }
        }
    }
    (context, stats)
}

dispatch! {
    /// A few queries through some keys.
    pub(super) unsafe fn forward_of_few(
        call: &Call<'_>,
        kv_head: usize,
        tiles: &[(Range<usize>, bool)],
        partial: &mut [f32],
    ) by forward_part;
}

/// All queries of a key and value head through some of its keys.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn forward_part<S: Simd>(
    call: &Call<'_>,
    kv_head: usize,
    tiles: &[Keys],
    partial: &mut [f32],
) {
    let [_, _, seq_q, seq_k] = call.shape.scores();
    let [d_head, d_value] = call.shape.widths();
    let (kv_heads, group) = (call.shape.kv_heads, call.shape.group());
    let queries = group * seq_q;
    let width = d_value + LARGEST_AND_SUM;
    assert!(partial.len() == queries * width && KEYS.is_multiple_of(S::LANES));
    let key = call.key.head(kv_head, seq_k * d_head);
    let value = call.value.head(kv_head, seq_k * d_value);
    let mut scratch = Scratch::take();
    let [query, scores, squares, turned] = scratch.split([
        queries * d_head,
        TOGETHER * KEYS,
        TOGETHER * S::LANES * S::LANES,
        S::LANES * S::LANES,
    ]);
    let rows = &call.query[kv_head * queries * d_head..][..queries * d_head];
    for (into, x) in query.iter_mut().zip(rows) {
        *into = x * call.scale * LOG2_E;
    }
    for row in partial.chunks_exact_mut(width) {
        row.fill(0.0);
        // Below every score, and finite: nothing is ever infinity minus infinity.
        row[d_value] = f32::MIN;
    }

    for (keys, is_whole) in tiles {
        let tile = SomeKeys {
            call,
            example: kv_head / kv_heads,
            first_head: kv_head % kv_heads * group,
            keys: keys.clone(),
            is_whole: *is_whole,
            key: &key[keys.start * d_head..keys.end * d_head],
            value: &value[keys.start * d_value..keys.end * d_value],
        };
        let mut at = 0;
        while at < queries {
            let query = &query[at * d_head..];
            let partial = &mut partial[at * width..];
            // SAFETY: the caller enabled the instructions.
            at += unsafe {
                // What is hidden from one of them must not even be multiplied by zero.
                let may_hide = !is_whole || call.hidden.is_some() || call.bias.is_some();
                if queries - at >= TOGETHER && !may_hide {
                    tile.take::<S, TOGETHER>(at, query, partial, [scores, squares, turned])
                } else {
                    tile.take::<S, 1>(at, query, partial, [scores, squares, turned])
                }
            };
        }
    }
}

/// Queries that go through a key together: sixteen AVX-512 registers of sums.
const TOGETHER: usize = 4;

/// Some keys and values of a head.
struct SomeKeys<'a> {
    call: &'a Call<'a>,
    example: usize,
    /// The first of the query heads that share them.
    first_head: usize,
    keys: Range<usize>,
    /// Nothing in it is hidden.
    is_whole: bool,
    key: &'a [f32],
    value: &'a [f32],
}

impl SomeKeys<'_> {
    /// Takes `Q` queries, from the `at`-th on, through the keys; returns `Q`.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled.
    #[inline(always)]
    unsafe fn take<S: Simd, const Q: usize>(
        &self,
        at: usize,
        query: &[f32],
        partial: &mut [f32],
        [scores, squares, turned]: [&mut [f32]; 3],
    ) -> usize {
        let [d_head, d_value] = self.call.shape.widths();
        let seq_q = self.call.shape.seq_q;
        // SAFETY: the caller enabled the instructions.
        unsafe {
            products::<S, Q>(&query[..Q * d_head], self.key, scores, [squares, turned]);
            let width = d_value + LARGEST_AND_SUM;
            for (row, (scores, partial)) in scores
                .chunks_exact_mut(KEYS)
                .zip(partial.chunks_exact_mut(width))
                .take(Q)
                .enumerate()
            {
                let one = One {
                    head: self.first_head + (at + row) / seq_q,
                    query: (at + row) % seq_q,
                };
                self.finish::<S>(&one, scores);
                let (context, rest) = partial.split_at_mut(d_value);
                let shrink = weigh::<S>(scores, rest);
                if shrink != 1.0 {
                    for into in context.iter_mut() {
                        *into *= shrink;
                    }
                }
            }
            gather::<S, Q>(self.keys.len(), scores, self.value, partial, d_value);
        }
        Q
    }

    /// Products become scores: capped, lowered with the distance, biased, hidden. Minus
    /// infinity where there is no key.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, one: &One, scores: &mut [f32]) {
        let call = self.call;
        if let Some(cap) = call.softcap {
            // SAFETY: all of the scores, which are whole registers.
            unsafe { soften::<S>(scores.len(), scores.as_mut_ptr(), cap * LOG2_E, None) };
        }
        let (seen, missing) = scores.split_at_mut(self.keys.len());
        missing.fill(f32::NEG_INFINITY);
        if let Some(slopes) = call.alibi {
            let place = place(&call.shape, one.query);
            let fall = slopes[one.head] * LOG2_E;
            for (score, key) in seen.iter_mut().zip(self.keys.clone()) {
                *score -= fall * ((place - key as i64) as f32).abs();
            }
        }
        if let Some(bias) = call.bias {
            for (score, key) in seen.iter_mut().zip(self.keys.clone()) {
                *score = biased(*score, bias.at([self.example, one.head, one.query, key]));
            }
        }
        if !self.is_whole || call.hidden.is_some() {
            let head = [self.example, one.head];
            for (score, key) in seen.iter_mut().zip(self.keys.clone()) {
                let bits = call.seen(head, one.query..one.query + 1, key);
                if bits & 1 == 0 {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
    }
}

struct One {
    head: usize,
    query: usize,
}

/// The products of `Q` queries with the keys of a tile, a row of [`KEYS`] for each.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn products<S: Simd, const Q: usize>(
    query: &[f32],
    key: &[f32],
    products: &mut [f32],
    [squares, turned]: [&mut [f32]; 2],
) {
    let width = query.len() / Q;
    let whole = width / S::LANES * S::LANES;
    let count = key.len() / width;
    let square = S::LANES * S::LANES;
    assert!(count <= KEYS && products.len() >= Q * KEYS && KEYS.is_multiple_of(S::LANES));
    assert!(squares.len() >= Q * square && turned.len() == square);
    for first in (0..count).step_by(S::LANES) {
        let some = S::LANES.min(count - first);
        // Each key's products, added up but for the lanes; then the lanes of all at once.
        for at in 0..some {
            // SAFETY: within a row of `key`, as long as a query, and within the squares.
            unsafe {
                let row = key.as_ptr().add((first + at) * width);
                let mut sums = [S::splat(0.0); Q];
                for x in (0..whole).step_by(S::LANES) {
                    let numbers = S::load(row.add(x));
                    for (q, sum) in sums.iter_mut().enumerate() {
                        *sum = S::fma(S::load(query.as_ptr().add(q * width + x)), numbers, *sum);
                    }
                }
                for (q, sum) in sums.into_iter().enumerate() {
                    S::store(squares.as_mut_ptr().add(q * square + at * S::LANES), sum);
                }
            }
        }
        for q in 0..Q {
            // SAFETY: squares of this size, as was just seen, and a register of products.
            unsafe {
                let lanes = squares.as_ptr().add(q * square);
                S::transpose(lanes, S::LANES, turned.as_mut_ptr(), S::LANES);
                let mut sums = [S::splat(0.0); 4];
                for at in (0..S::LANES).step_by(4) {
                    for (next, sum) in sums.iter_mut().enumerate() {
                        let row = turned.as_ptr().add((at + next) * S::LANES);
                        *sum = S::add(*sum, S::load(row));
                    }
                }
                let sum = S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3]));
                S::store(products.as_mut_ptr().add(q * KEYS + first), sum);
            }
            for at in 0..some {
                for x in whole..width {
                    products[q * KEYS + first + at] +=
                        query[q * width + x] * key[(first + at) * width + x];
                }
            }
        }
    }
}

/// Takes scores into the running softmax: they become weights, still to be divided by the
/// sum. Returns what the context so far is to be multiplied by.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn weigh<S: Simd>(scores: &mut [f32], largest_and_sum: &mut [f32]) -> f32 {
    assert!(scores.len().is_multiple_of(S::LANES) && largest_and_sum.len() == LARGEST_AND_SUM);
    let before = largest_and_sum[0];
    let mut lanes = [f32::MIN; 16];
    let mut now = before;
    // SAFETY: whole registers of scores, and no register has more than 16 lanes.
    unsafe {
        let mut most = S::splat(before);
        for at in (0..scores.len()).step_by(S::LANES) {
            most = S::max(S::load(scores.as_ptr().add(at)), most);
        }
        S::store(lanes.as_mut_ptr(), most);
    }
    for &lane in &lanes[..S::LANES] {
        now = now.max(lane);
    }
    // SAFETY: as above.
    unsafe {
        let (most, mut total) = (S::splat(now), S::splat(0.0));
        for at in (0..scores.len()).step_by(S::LANES) {
            let place = scores.as_mut_ptr().add(at);
            let weight = S::exp2(S::sub(S::load(place), most));
            S::store(place, weight);
            total = S::add(total, weight);
        }
        S::store(lanes.as_mut_ptr(), total);
    }
    let mut total = 0.0;
    for lane in &lanes[..S::LANES] {
        total += lane;
    }
    let shrink = if now > before {
        (before - now).exp2()
    } else {
        1.0
    };
    largest_and_sum[0] = now;
    largest_and_sum[1] = shrink * largest_and_sum[1] + total;
    shrink
}

/// Adds the first `count` values, times their weights, to the contexts of `Q` queries.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn gather<S: Simd, const Q: usize>(
    count: usize,
    weights: &[f32],
    value: &[f32],
    partial: &mut [f32],
    d_value: usize,
) {
    let width = d_value + LARGEST_AND_SUM;
    assert!(count <= KEYS && weights.len() >= Q * KEYS);
    assert!(value.len() == count * d_value && partial.len() >= Q * width);
    let mut column = 0;
    while d_value - column >= S::LANES {
        let wide = (d_value - column) / S::LANES >= S::WIDE;
        // SAFETY: as many whole registers of each row are left.
        column += unsafe {
            match S::WIDE {
                4 if wide => {
                    gather_columns::<S, Q, 4>(count, weights, value, partial, [d_value, column])
                }
                2 if wide => {
                    gather_columns::<S, Q, 2>(count, weights, value, partial, [d_value, column])
                }
                _ => gather_columns::<S, Q, 1>(count, weights, value, partial, [d_value, column]),
            }
        };
    }
    for (weights, context) in weights
        .chunks_exact(KEYS)
        .zip(partial.chunks_exact_mut(width))
        .take(Q)
    {
        for x in column..d_value {
            for (weight, row) in weights.iter().zip(value.chunks_exact(d_value)) {
                if *weight != 0.0 {
                    context[x] += weight * row[x];
                }
            }
        }
    }
}

/// `W` registers of each of them; returns how many numbers they hold.
///
/// # Safety
///
/// As for [`gather`], whose checks were passed; from the `column` on, as many registers
/// are within the rows.
#[inline(always)]
unsafe fn gather_columns<S: Simd, const Q: usize, const W: usize>(
    count: usize,
    weights: &[f32],
    value: &[f32],
    partial: &mut [f32],
    [d_value, column]: [usize; 2],
) -> usize {
    // SAFETY: all places are within what the caller promised.
    unsafe {
        let mut sums = [[S::splat(0.0); W]; Q];
        let mut row = value.as_ptr().add(column);
        for key in 0..count {
            // A hidden value may be NaN. Several queries at once have no hidden keys.
            if Q > 1 || *weights.as_ptr().add(key) != 0.0 {
                let mut numbers = [S::splat(0.0); W];
                for (at, numbers) in numbers.iter_mut().enumerate() {
                    *numbers = S::load(row.add(at * S::LANES));
                }
                for (q, sums) in sums.iter_mut().enumerate() {
                    let weight = S::splat(*weights.as_ptr().add(q * KEYS + key));
                    for (sum, numbers) in sums.iter_mut().zip(numbers) {
                        *sum = S::fma(weight, numbers, *sum);
                    }
                }
            }
            row = row.wrapping_add(d_value);
        }
        for (q, sums) in sums.into_iter().enumerate() {
            let into = partial
                .as_mut_ptr()
                .add(q * (d_value + LARGEST_AND_SUM) + column);
            for (at, sum) in sums.into_iter().enumerate() {
                let place = into.add(at * S::LANES);
                S::store(place, S::add(S::load(place), sum));
            }
        }
    }
    W * S::LANES
}
