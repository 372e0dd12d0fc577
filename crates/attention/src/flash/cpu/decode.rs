//! The forward pass for few queries and many keys, as in decoding.
//!
//! With queries mapped to SIMD lanes most lanes would be empty. Here `d_head` is mapped to the
//! lanes, and each key and value is read once for all queries that share it, because memory
//! bandwidth is the limit. Tensors are `f32` or bf16, which is widened in registers.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use rayon::prelude::*;
use zoo_kernels::cpu::parallel::threads;
use zoo_kernels::cpu::{Float, InstructionSet, Simd};

use super::call::{Call, STATS, Tile, Visible};
use super::decode_element::{DecodeElement, from_pair_order, paired_columns, to_pair_order};
use super::kernel::KEYS;
use super::score::{add_bias, apply_softcap};
use crate::pattern::gather::Indices;
use crate::pattern::rule::query_position;
use zoo_kernels::cpu::scratch::Scratch;

/// The most queries per head that are computed here: from a dozen on, a tile of 64 is faster.
pub(super) const MAX_QUERIES: usize = 8;

/// The fewest tiles of keys per task: reading them takes some ten microseconds.
const MIN_TILES_PER_TASK: usize = 4;

/// A tile of keys, and whether all of them are visible.
pub(super) type Keys = (Range<usize>, bool);

/// Context `[batch, heads, seq_q, d_value]` and statistics `[batch, heads, seq_q, 2]`, without
/// dropout.
pub(super) fn forward<T: DecodeElement>(call: &Call<'_, T>) -> (Vec<f32>, Vec<f32>) {
    let [batch, _, seq_q, _] = call.shape.scores();
    let (kv_heads, d_value) = (call.shape.kv_heads, call.shape.d_value);
    let queries = call.shape.group() * seq_q;
    let tiles: Vec<Vec<Keys>> = (0..batch)
        .map(|example| call.plan.tiles(example, 0).collect())
        .collect();
    // The keys of a head are one task, or several if there are fewer heads than threads.
    let ideal = (2 * threads()).div_ceil(batch * kv_heads);
    let max_tiles = tiles.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let tiles_per_task = max_tiles.div_ceil(ideal).max(MIN_TILES_PER_TASK);
    let parts = max_tiles.div_ceil(tiles_per_task);

    // A partial result: the unnormalised context, the maximum and the sum.
    let width = d_value + STATS;
    let mut partial = vec![0.0; batch * kv_heads * parts * queries * width];
    let set = InstructionSet::detect();
    partial
        .par_chunks_mut(queries * width)
        .enumerate()
        .for_each(|(task, partial)| {
            let (kv_head, part) = (task / parts, task % parts);
            let tiles = &tiles[kv_head / kv_heads];
            let first = tiles.len().min(part * tiles_per_task);
            let end = tiles.len().min(first + tiles_per_task);
            // SAFETY: the CPU supports the instruction set.
            unsafe { T::forward_partial(set, call, kv_head, &tiles[first..end], partial) };
        });
    merge_partials(&partial, [parts, queries, d_value])
}

pub(super) fn merge_partials(
    partial: &[f32],
    [parts, queries, d_value]: [usize; 3],
) -> (Vec<f32>, Vec<f32>) {
    let width = d_value + STATS;
    let (mut context, mut stats) = (Vec::new(), Vec::new());
    for head in partial.chunks_exact(parts * queries * width) {
        for query in 0..queries {
            let part = |part: usize| &head[(part * queries + query) * width..][..width];
            let max = (0..parts).fold(f32::MIN, |max, i| max.max(part(i)[d_value]));
            let first = context.len();
            context.resize(first + d_value, 0.0);
            let mut total = 0.0;
            for i in 0..parts {
                let part = part(i);
                let rescale = (part[d_value] - max).exp2();
                total += rescale * part[d_value + 1];
                for (into, sum) in context[first..].iter_mut().zip(part) {
                    *into += rescale * sum;
                }
            }
            stats.extend([max, total]);
            // A fully masked row has a sum of zero and a context of zeros.
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

/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn forward_part<S: Simd, T: DecodeElement>(
    call: &Call<'_, T>,
    kv_head: usize,
    tiles: &[Keys],
    partial: &mut [f32],
) {
    let [_, _, seq_q, seq_k] = call.shape.scores();
    let [d_head, d_value] = call.shape.widths();
    let (kv_heads, group) = (call.shape.kv_heads, call.shape.group());
    let queries = group * seq_q;
    let width = d_value + STATS;
    assert!(partial.len() == queries * width && KEYS.is_multiple_of(S::LANES));
    let key = call.key.head(kv_head, seq_k * d_head);
    let value = call.value.head(kv_head, seq_k * d_value);
    let mut scratch = Scratch::take();
    let [query, scores, lane_sums] = scratch.split([
        queries * d_head,
        QUERY_BLOCK * KEYS,
        QUERY_BLOCK * S::LANES * S::LANES,
    ]);
    let rows = &call.query[kv_head * queries * d_head..][..queries * d_head];
    for (into, x) in query.iter_mut().zip(rows) {
        *into = x.to_f32() * call.scale * LOG2_E;
    }
    let pairs = d_head / (2 * S::LANES);
    for row in query.chunks_exact_mut(d_head) {
        to_pair_order::<S, T>(&mut row[..pairs * 2 * S::LANES]);
    }
    for row in partial.chunks_exact_mut(width) {
        row.fill(0.0);
        // Below every score, and finite: infinity minus infinity would be NaN.
        row[d_value] = f32::MIN;
    }

    for (keys, is_unmasked) in tiles {
        let tile = KeyTile {
            call,
            example: kv_head / kv_heads,
            first_head: kv_head % kv_heads * group,
            keys: keys.clone(),
            is_unmasked: *is_unmasked,
            key: &key[keys.start * d_head..keys.end * d_head],
            value: &value[keys.start * d_value..keys.end * d_value],
        };
        let mut i = 0;
        while i < queries {
            let query = &query[i * d_head..];
            let partial = &mut partial[i * width..];
            let buffers = [&mut *scores, &mut *lane_sums];
            // SAFETY: the caller enabled the instructions.
            i += unsafe {
                // A masked value may be NaN and must not be multiplied by zero.
                if queries - i >= QUERY_BLOCK && !call.may_mask(*is_unmasked) {
                    tile.process::<S, QUERY_BLOCK>(i, query, partial, buffers)
                } else {
                    tile.process::<S, 1>(i, query, partial, buffers)
                }
            };
        }
    }
    for row in partial.chunks_exact_mut(width) {
        from_pair_order::<S, T>(&mut row[..paired_columns::<S>(d_value)]);
    }
}

/// Queries that are multiplied by a key at once: sixteen AVX-512 registers of sums.
const QUERY_BLOCK: usize = 4;

struct KeyTile<'a, T> {
    call: &'a Call<'a, T>,
    example: usize,
    /// The first of the query heads that share the keys.
    first_head: usize,
    keys: Range<usize>,
    /// The rule masks nothing in it.
    is_unmasked: bool,
    key: &'a [T],
    value: &'a [T],
}

impl<T: DecodeElement> KeyTile<'_, T> {
    /// Updates the partial results of `Q` queries, from `first` on; returns `Q`.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled.
    #[inline(always)]
    unsafe fn process<S: Simd, const Q: usize>(
        &self,
        first: usize,
        query: &[f32],
        partial: &mut [f32],
        [scores, lane_sums]: [&mut [f32]; 2],
    ) -> usize {
        let [d_head, d_value] = self.call.shape.widths();
        let seq_q = self.call.shape.seq_q;
        // SAFETY: the caller enabled the instructions.
        unsafe {
            let query = &query[..Q * d_head];
            dot_products::<S, T, Q>(query, self.key, scores, lane_sums);
            let width = d_value + STATS;
            for (row, (scores, partial)) in scores
                .chunks_exact_mut(KEYS)
                .zip(partial.chunks_exact_mut(width))
                .take(Q)
                .enumerate()
            {
                let head = self.first_head + (first + row) / seq_q;
                self.finish_scores::<S>(head, (first + row) % seq_q, scores);
                let (context, stats) = partial.split_at_mut(d_value);
                let rescale = online_softmax::<S>(scores, stats);
                if rescale != 1.0 {
                    for into in context.iter_mut() {
                        *into *= rescale;
                    }
                }
            }
            add_weighted_values::<S, T, Q>(self.keys.len(), scores, self.value, partial, d_value);
        }
        Q
    }

    /// Applies softcap, ALiBi, bias and mask to dot products. Scores beyond the last key become
    /// minus infinity.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled.
    #[inline(always)]
    unsafe fn finish_scores<S: Simd>(&self, head: usize, query: usize, scores: &mut [f32]) {
        let call = self.call;
        if let Some(cap) = call.softcap {
            // SAFETY: the number of scores is a multiple of the lanes.
            unsafe { apply_softcap::<S>(scores.len(), scores.as_mut_ptr(), cap * LOG2_E, None) };
        }
        let (scores, padding) = scores.split_at_mut(self.keys.len());
        padding.fill(f32::NEG_INFINITY);
        if let Some(slopes) = call.alibi {
            let position = query_position(&call.shape, query);
            let slope = slopes[head] * LOG2_E;
            for (score, key) in scores.iter_mut().zip(self.keys.clone()) {
                *score -= slope * ((position - key as i64) as f32).abs();
            }
        }
        if let Some(bias) = call.bias {
            for (score, key) in scores.iter_mut().zip(self.keys.clone()) {
                *score = add_bias(*score, bias.get([self.example, head, query, key]));
            }
        }
        if !self.is_unmasked || call.mask.is_some() {
            let tile = Tile {
                example: self.example,
                head,
                queries: Indices::Range(query..query + 1),
                keys: Indices::Range(self.keys.clone()),
                visible: Visible::from_plan(self.is_unmasked),
            };
            for (i, score) in scores.iter_mut().enumerate() {
                if call.visible(&tile, i) & 1 == 0 {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
    }
}

/// The dot products of `Q` queries with the keys of a tile, a row of [`KEYS`] for each.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn dot_products<S: Simd, T: Float, const Q: usize>(
    query: &[f32],
    key: &[T],
    dots: &mut [f32],
    lane_sums: &mut [f32],
) {
    let width = query.len() / Q;
    let aligned = width / S::LANES * S::LANES;
    let paired = width / (2 * S::LANES) * 2 * S::LANES;
    let count = key.len() / width;
    let square = S::LANES * S::LANES;
    assert!(count <= KEYS && dots.len() >= Q * KEYS && KEYS.is_multiple_of(S::LANES));
    assert!(lane_sums.len() >= Q * square);
    for first in (0..count).step_by(S::LANES) {
        let keys = S::LANES.min(count - first);
        // One register of lane sums per key; the lanes of all keys are then reduced at once.
        for i in 0..keys {
            // SAFETY: rows of `key` are as long as a query; the length of `lane_sums` is checked.
            unsafe {
                let row = key.as_ptr().add((first + i) * width);
                let mut sums = [S::splat(0.0); Q];
                for x in (0..paired).step_by(2 * S::LANES) {
                    let pair = T::load_pair::<S>(row.add(x));
                    for (q, sum) in sums.iter_mut().enumerate() {
                        let query = query.as_ptr().add(q * width + x);
                        *sum = S::fma(S::load(query), pair[0], *sum);
                        *sum = S::fma(S::load(query.add(S::LANES)), pair[1], *sum);
                    }
                }
                if paired < aligned {
                    let elements = T::load::<S>(row.add(paired));
                    for (q, sum) in sums.iter_mut().enumerate() {
                        let query = query.as_ptr().add(q * width + paired);
                        *sum = S::fma(S::load(query), elements, *sum);
                    }
                }
                for (q, sum) in sums.into_iter().enumerate() {
                    S::store(lane_sums.as_mut_ptr().add(q * square + i * S::LANES), sum);
                }
            }
        }
        for q in 0..Q {
            // SAFETY: the lengths of the buffers are checked above.
            unsafe {
                let sums = S::row_sums(lane_sums.as_ptr().add(q * square));
                S::store(dots.as_mut_ptr().add(q * KEYS + first), sums);
            }
            for i in 0..keys {
                for x in aligned..width {
                    let element = key[(first + i) * width + x].to_f32();
                    dots[q * KEYS + first + i] += query[q * width + x] * element;
                }
            }
        }
    }
}

/// Updates the online softmax: scores become unnormalised weights. Returns the factor that rescales
/// the context so far.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn online_softmax<S: Simd>(scores: &mut [f32], stats: &mut [f32]) -> f32 {
    assert!(scores.len().is_multiple_of(S::LANES) && stats.len() == STATS);
    let old_max = stats[0];
    let mut lanes = [f32::MIN; 16];
    let mut new_max = old_max;
    // SAFETY: the number of scores is a multiple of the lanes, of which there are at most 16.
    unsafe {
        let mut max = S::splat(old_max);
        for i in (0..scores.len()).step_by(S::LANES) {
            max = S::max(S::load(scores.as_ptr().add(i)), max);
        }
        S::store(lanes.as_mut_ptr(), max);
    }
    for &lane in &lanes[..S::LANES] {
        new_max = new_max.max(lane);
    }
    // SAFETY: as above.
    unsafe {
        let (max, mut total) = (S::splat(new_max), S::splat(0.0));
        for i in (0..scores.len()).step_by(S::LANES) {
            let score = scores.as_mut_ptr().add(i);
            let weight = S::exp2(S::sub(S::load(score), max));
            S::store(score, weight);
            total = S::add(total, weight);
        }
        S::store(lanes.as_mut_ptr(), total);
    }
    let mut total = 0.0;
    for lane in &lanes[..S::LANES] {
        total += lane;
    }
    let rescale = if new_max > old_max {
        (old_max - new_max).exp2()
    } else {
        1.0
    };
    stats[0] = new_max;
    stats[1] = rescale * stats[1] + total;
    rescale
}

/// Adds the first `count` values, multiplied by their weights, to the contexts of `Q` queries.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn add_weighted_values<S: Simd, T: Float, const Q: usize>(
    count: usize,
    weights: &[f32],
    value: &[T],
    partial: &mut [f32],
    d_value: usize,
) {
    let width = d_value + STATS;
    assert!(count <= KEYS && weights.len() >= Q * KEYS);
    assert!(value.len() == count * d_value && partial.len() >= Q * width);
    let mut column = 0;
    while d_value - column >= S::LANES {
        let wide = (d_value - column) / S::LANES >= S::TILE_VECTORS;
        let columns = [d_value, column];
        // SAFETY: as many registers of each row are left.
        column += unsafe {
            match S::TILE_VECTORS {
                4 if wide => add_columns::<S, T, Q, 4>(count, weights, value, partial, columns),
                2 if wide => add_columns::<S, T, Q, 2>(count, weights, value, partial, columns),
                _ => add_columns::<S, T, Q, 1>(count, weights, value, partial, columns),
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
                    context[x] += weight * row[x].to_f32();
                }
            }
        }
    }
}

/// [`add_weighted_values`] for `W` registers of each row; returns how many columns they hold.
///
/// # Safety
///
/// As for [`add_weighted_values`], whose checks have passed; `W` registers from `column` on are
/// within the rows.
#[inline(always)]
unsafe fn add_columns<S: Simd, T: Float, const Q: usize, const W: usize>(
    count: usize,
    weights: &[f32],
    value: &[T],
    partial: &mut [f32],
    [d_value, column]: [usize; 2],
) -> usize {
    // SAFETY: all accesses are within the bounds the caller guarantees.
    unsafe {
        let mut sums = [[S::splat(0.0); W]; Q];
        let mut row = value.as_ptr().add(column);
        for key in 0..count {
            // A masked value may be NaN. With several queries at once, no key is masked.
            if Q > 1 || *weights.as_ptr().add(key) != 0.0 {
                let mut elements = [S::splat(0.0); W];
                if W == 1 {
                    elements[0] = T::load::<S>(row);
                }
                for (i, pair) in elements.chunks_exact_mut(2).enumerate() {
                    pair.copy_from_slice(&T::load_pair::<S>(row.add(2 * i * S::LANES)));
                }
                for (q, sums) in sums.iter_mut().enumerate() {
                    let weight = S::splat(*weights.as_ptr().add(q * KEYS + key));
                    for (sum, elements) in sums.iter_mut().zip(elements) {
                        *sum = S::fma(weight, elements, *sum);
                    }
                }
            }
            row = row.wrapping_add(d_value);
        }
        for (q, sums) in sums.into_iter().enumerate() {
            let into = partial.as_mut_ptr().add(q * (d_value + STATS) + column);
            for (i, sum) in sums.into_iter().enumerate() {
                let element = into.add(i * S::LANES);
                S::store(element, S::add(S::load(element), sum));
            }
        }
    }
    W * S::LANES
}
