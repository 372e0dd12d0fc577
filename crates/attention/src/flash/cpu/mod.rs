//! Tiled attention on a CPU, on plain slices of `f32`.
//!
//! Forward: each task takes one tile of queries through all tiles of keys it may
//! see; of a few queries, those that share keys through some of them. Backward: each task takes one head's keys and values (or, where there are
//! fewer heads than threads, a part of its queries), so that no two tasks add to
//! the same gradient.

mod backward;
mod call;
mod few;
mod finite;
mod forward;
mod kernel;
mod score;
mod scratch;

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use zoo_kernels::cpu::parallel::threads;
use zoo_kernels::cpu::{InstructionSet, add};

use self::call::Out;
pub(super) use self::call::{Call, Heads, STATS, Upstream};
use self::kernel::{KEYS, QUERIES};
use self::scratch::Scratch;
use super::call::TiledSettings;
use crate::pattern::{Examples, TilePlan, kept};

/// The tiles of a call.
pub(super) fn plan(settings: &TiledSettings) -> Arc<TilePlan> {
    kept(
        &settings.rule,
        &settings.shape,
        [QUERIES, KEYS],
        Examples::Each,
    )
}

/// Context `[batch, heads, seq_q, d_value]` and, for each row, the maximum of its scores in
/// units of log 2 and the sum of `2^(score - maximum)`: `[batch, heads, seq_q, 2]`.
///
/// The two are not joined to a log-sum-exp, which has no digits left for the sum where the
/// maximum is large.
pub(super) fn forward(call: &Call<'_>) -> (Vec<f32>, Vec<f32>) {
    let shape = call.shape;
    if shape.seq_q <= few::FEW && call.dropout.is_none() {
        return few::forward(call);
    }
    forward_by_tiles(call)
}

fn forward_by_tiles(call: &Call<'_>) -> (Vec<f32>, Vec<f32>) {
    let shape = call.shape;
    let heads = shape.batch * shape.heads;
    let mut context = vec![0.0; heads * shape.seq_q * shape.d_value];
    let mut stats = vec![0.0; heads * shape.seq_q * STATS];
    let set = InstructionSet::detect();
    context
        .par_chunks_mut(shape.seq_q * shape.d_value)
        .zip(stats.par_chunks_mut(shape.seq_q * STATS))
        .enumerate()
        .for_each(|(head, (context, stats))| {
            context
                .par_chunks_mut(QUERIES * shape.d_value)
                .zip(stats.par_chunks_mut(QUERIES * STATS))
                .enumerate()
                .for_each(|(tile, (context, stats))| {
                    let first = tile * QUERIES;
                    let queries = first..first + stats.len() / STATS;
                    // SAFETY: the processor has the set.
                    unsafe { forward::forward(set, call, head, queries, context, stats) };
                });
        });
    (context, stats)
}

/// The log-sum-exp of each row, `[batch, heads, seq_q]`; minus infinity if it is fully masked.
pub(super) fn log_sum_exp(stats: &[f32]) -> Vec<f32> {
    stats
        .as_chunks()
        .0
        .iter()
        .map(|&[largest, sum]| {
            let exponent = f64::from(largest) + f64::from(sum).log2();
            (exponent * std::f64::consts::LN_2) as f32
        })
        .collect()
}

/// The statistics of a backward pass that needs its own. Those of [`few`] come from dot products
/// that are added up in another order: a score of a million differs by a tenth.
pub(super) fn stats_of_tiles(call: &Call<'_>, stats: &[f32]) -> Option<Vec<f32>> {
    /// Up to this size, weights of both orders differ by a few millionths.
    const SMALL: f32 = 32.0;
    let is_large = |row: &[f32; STATS]| row[0].abs() > SMALL && row[1] != 0.0;
    let are_few = call.shape.seq_q <= few::FEW && call.dropout.is_none();
    (are_few && stats.as_chunks().0.iter().any(is_large)).then(|| forward_by_tiles(call).1)
}

/// The gradients by query, key and value.
pub(super) fn backward(call: &Call<'_>, upstream: &Upstream<'_>) -> [Vec<f32>; 3] {
    let shape = call.shape;
    let mut d_query = vec![0.0; call.query.len()];
    let keys = shape.batch * shape.kv_heads * shape.seq_k;
    let mut d_key = vec![0.0; keys * shape.d_head];
    let mut d_value = vec![0.0; keys * shape.d_value];
    let set = InstructionSet::detect();

    // Queries of all heads that share a key and value head lie side by side.
    let of_kv_head = shape.group() * shape.seq_q;
    let parts = parts(call);
    d_query
        .par_chunks_mut(of_kv_head * shape.d_head)
        .zip(d_key.par_chunks_mut(shape.seq_k * shape.d_head))
        .zip(d_value.par_chunks_mut(shape.seq_k * shape.d_value))
        .enumerate()
        .for_each(|(kv_head, ((d_query, d_key), d_value))| {
            // Each part but the first adds into a copy; copies are added up in order.
            let [of_keys, of_both] = [d_key.len(), d_key.len() + d_value.len()];
            let mut scratch = Scratch::take();
            let [copies] = scratch.split([(parts.len() - 1) * of_both]);
            let copied = copies
                .chunks_exact_mut(of_both)
                .map(|copy| copy.split_at_mut(of_keys));
            let into = std::iter::once((&mut *d_key, &mut *d_value)).chain(copied);
            let mut rest = d_query;
            let mut tasks = Vec::with_capacity(parts.len());
            for (rows, (d_key, d_value)) in parts.iter().zip(into) {
                let queries: usize = rows.clone().map(|row| queries_in(call, row)).sum();
                let (d_query, after) = rest.split_at_mut(queries * shape.d_head);
                rest = after;
                let out = Out {
                    d_query,
                    d_key,
                    d_value,
                };
                tasks.push((rows.clone(), out));
            }
            tasks.into_par_iter().for_each(|(rows, out)| {
                // SAFETY: the processor has the set.
                unsafe { backward::backward(set, call, upstream, kv_head, rows, out) };
            });
            for copy in copies.chunks_exact(of_both) {
                add(d_key, &copy[..of_keys]);
                add(d_value, &copy[of_keys..]);
            }
        });
    [d_query, d_key, d_value]
}

/// The gradient by a bias of `dims`, which are those of the scores or 1.
///
/// A second pass over the tiles, because examples and heads that share a bias add to
/// the same numbers, and those that share keys and values do in the first one.
pub(super) fn backward_of_bias(
    call: &Call<'_>,
    upstream: &Upstream<'_>,
    dims: [usize; 4],
) -> Vec<f32> {
    let shape = call.shape;
    let [batch, heads, seq_q, seq_k] = dims;
    let strides = [if seq_q > 1 { seq_k } else { 0 }, usize::from(seq_k > 1)];
    let set = InstructionSet::detect();
    let run = |head: [usize; 2], row: usize, d_bias: &mut [f32]| {
        // SAFETY: the processor has the set.
        unsafe { backward::backward_of_bias(set, call, upstream, head, row, strides, d_bias) };
    };
    let mut d_bias = vec![0.0; dims.iter().product()];
    d_bias
        .par_chunks_mut(seq_q * seq_k)
        .enumerate()
        .for_each(|(at, d_bias)| {
            // All that share this part of the bias.
            let examples = (0..shape.batch).filter(|b| batch == 1 || *b == at / heads);
            let sharing: Vec<[usize; 2]> = examples
                .flat_map(|example| {
                    let own = (0..shape.heads).filter(|h| heads == 1 || *h == at % heads);
                    own.map(move |head| [example, head])
                })
                .collect();
            if seq_q == shape.seq_q {
                d_bias
                    .par_chunks_mut(QUERIES * seq_k)
                    .enumerate()
                    .for_each(|(row, d_bias)| {
                        sharing.iter().for_each(|head| run(*head, row, d_bias));
                    });
            } else {
                let rows: Vec<Vec<f32>> = sharing
                    .par_iter()
                    .map(|head| {
                        let mut d_bias = vec![0.0; seq_k];
                        (0..call.plan.rows()).for_each(|row| run(*head, row, &mut d_bias));
                        d_bias
                    })
                    .collect();
                rows.iter().for_each(|row| add(d_bias, row));
            }
        });
    d_bias
}

/// The rows of tiles of a key and value head, in parts to be computed side by side: so
/// many that a thread that is held up leaves others something to take over.
fn parts(call: &Call<'_>) -> Vec<Range<usize>> {
    let shape = call.shape;
    let heads = shape.batch * shape.kv_heads;
    let rows = shape.group() * call.plan.rows();
    let wanted = (TASKS * threads()).div_ceil(heads);
    // Each but the first takes a copy of its head's gradients: no more than are worth
    // their time and their memory.
    let copy = size_of::<f32>() * heads * shape.seq_k * (shape.d_head + shape.d_value);
    let copies = (COPIES_AT_MOST / copy).max(1);
    let parts = wanted.clamp(1, rows.div_ceil(4)).min(1 + copies);
    tiles(rows, rows.div_ceil(parts)).collect()
}

/// Tasks of the backward pass for each thread, if there are enough queries.
const TASKS: usize = 8;
/// Bytes that copies of gradients may take, all heads together; where one of each takes
/// more, there is still one.
const COPIES_AT_MOST: usize = 1 << 26;

/// Queries in a row of tiles, counted over all heads that share keys and values.
fn queries_in(call: &Call<'_>, row: usize) -> usize {
    call.plan.queries(row % call.plan.rows()).len()
}

/// `0..length` in steps of `size`, the last one shorter.
fn tiles(length: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length)
        .step_by(size)
        .map(move |start| start..length.min(start + size))
}

#[cfg(test)]
mod tests;
