//! Tiled attention on the CPU, on slices of `f32` or bf16.
//!
//! Forward: a task computes one tile of queries over all visible tiles of keys; with few queries
//! (decoding), it computes all queries that share a key and value head over some of the keys.
//! Backward: a task computes the keys and values of one head, or a part of the head's queries if
//! there are fewer heads than threads, so that no two tasks write to the same gradient.

mod additive;
mod backward;
#[cfg(target_arch = "x86_64")]
mod bf16;
mod bf16_calls;
mod call;
mod decode;
mod decode_element;
mod finite;
mod forward;
mod gather;
mod gaussian;
mod hard;
mod kernel;
pub(super) mod mlp_scores;
mod score;
mod tile_gradients;

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use zoo_kernels::cpu::parallel::threads;
use zoo_kernels::cpu::{InstructionSet, add};

pub(super) use self::bf16_calls::{backward_bf16, forward_bf16, reads_bf16, uses_amx};
use self::call::GradSlices;
pub(super) use self::call::{BackwardInputs, Call, Heads, STATS};
use self::forward::Start;
use self::kernel::{KEYS, QUERIES};
use super::call::{Program, TiledSettings, tiles};
use crate::pattern::rule::Rule;
use crate::pattern::{Examples, TilePlan, cached_plan};
use zoo_kernels::cpu::scratch::Scratch;

pub(super) fn plan(settings: &TiledSettings) -> Arc<TilePlan> {
    let tile = [QUERIES, KEYS];
    match settings.gather {
        // It is not used.
        Some(_) => cached_plan(&Arc::new(Rule::Full), &settings.shape, tile, Examples::Each),
        None => settings.plan(tile, Examples::Each),
    }
}

/// Context `[batch, heads, seq_q, d_value]` and, for each row, the maximum of its scores in
/// base 2 and the sum of `2^(score - maximum)`: `[batch, heads, seq_q, 2]`.
///
/// The log-sum-exp alone would have no precision left for the sum if the maximum is large.
pub(super) fn forward(call: &Call<'_>) -> (Vec<f32>, Vec<f32>) {
    match call.gather {
        Some(plan) => gather::forward(call, plan),
        None if is_decode(call) => decode::forward(call),
        None => forward_tiled(call),
    }
}

fn is_decode<T>(call: &Call<'_, T>) -> bool {
    call.shape.seq_q <= decode::MAX_QUERIES
        && call.gather.is_none()
        && call.dropout.is_none()
        && call.program == Program::Softmax
        && call.score_mod.is_none()
}

fn forward_tiled(call: &Call<'_>) -> (Vec<f32>, Vec<f32>) {
    let shape = call.shape;
    let heads = shape.batch * shape.heads;
    let mut context = vec![0.0; heads * shape.seq_q * shape.d_value];
    let stats_width = call.stats_width();
    let mut stats = vec![0.0; heads * shape.seq_q * stats_width];
    let set = InstructionSet::detect();
    context
        .par_chunks_mut(shape.seq_q * shape.d_value)
        .zip(stats.par_chunks_mut(shape.seq_q * stats_width))
        .enumerate()
        .for_each(|(head, (context, stats))| {
            context
                .par_chunks_mut(QUERIES * shape.d_value)
                .zip(stats.par_chunks_mut(QUERIES * stats_width))
                .enumerate()
                .for_each(|(tile, (context, stats))| {
                    // SAFETY: the CPU supports the instruction set.
                    unsafe {
                        forward::forward(set, call, head, tile, Start::Empty, context, stats);
                    }
                });
        });
    (context, stats)
}

/// The log-sum-exp of each row, `[batch, heads, seq_q]`; minus infinity if it is fully masked.
pub(super) fn log_sum_exp<T>(call: &Call<'_, T>, stats: &[f32]) -> Vec<f32> {
    stats
        .chunks_exact(call.stats_width())
        .map(|row| {
            let exponent = f64::from(row[0]) + f64::from(row[1]).log2();
            (exponent * std::f64::consts::LN_2) as f32
        })
        .collect()
}

/// Statistics for the backward pass if those of [`decode`] are not precise enough. Its dot products
/// are summed in a different order: a score of a million differs by a tenth.
pub(super) fn recompute_stats(call: &Call<'_>, stats: &[f32]) -> Option<Vec<f32>> {
    /// Up to this score, the weights of both orders differ by a few millionths.
    const SMALL: f32 = 32.0;
    let is_large = |row: &[f32; STATS]| row[0].abs() > SMALL && row[1] != 0.0;
    (is_decode(call) && stats.as_chunks().0.iter().any(is_large)).then(|| forward_tiled(call).1)
}

/// Context and statistics for a backward pass whose forward pass was computed with bf16 products.
pub(super) fn recompute(call: &Call<'_>) -> (Vec<f32>, Vec<f32>) {
    forward_tiled(call)
}

/// The statistics of hard attention.
pub(super) struct HardStats {
    /// Maximum and sum of each row.
    pub(super) stats: Vec<f32>,
    /// The selected key of each row.
    pub(super) selected: Vec<f32>,
    /// The context of the soft weights; zeros if the key is not sampled.
    pub(super) soft_context: Vec<f32>,
}

/// The statistics of hard attention, if this is it.
pub(super) fn split_stats(call: &Call<'_>, stats: &[f32]) -> Option<HardStats> {
    if !matches!(call.program, Program::Hard(_)) {
        return None;
    }
    let width = call.stats_width();
    let (rows, d_value) = (stats.len() / width, call.shape.d_value);
    let mut hard = HardStats {
        stats: Vec::with_capacity(STATS * rows),
        selected: Vec::with_capacity(rows),
        soft_context: vec![0.0; rows * d_value],
    };
    let contexts = hard.soft_context.chunks_exact_mut(d_value);
    for (row, context) in stats.chunks_exact(width).zip(contexts) {
        hard.stats.extend(&row[..STATS]);
        hard.selected.push(row[STATS]);
        let soft = &row[STATS + 1..];
        context[..soft.len()].copy_from_slice(soft);
    }
    Some(hard)
}

/// The gradients of query, key, value and the parameter of the program.
pub(super) fn backward(call: &Call<'_>, saved: &BackwardInputs<'_>) -> [Vec<f32>; 4] {
    let shape = call.shape;
    let mut d_query = vec![0.0; call.query.len()];
    let keys = shape.batch * shape.kv_heads * shape.seq_k;
    let mut d_key = vec![0.0; keys * shape.d_head];
    let mut d_value = vec![0.0; keys * shape.d_value];
    let set = InstructionSet::detect();

    // The queries of all heads that share a key and value head are contiguous.
    let queries_per_kv_head = shape.group() * shape.seq_q;
    let d_parameters: Vec<Vec<f32>> = d_query
        .par_chunks_mut(queries_per_kv_head * shape.d_head)
        .zip(d_key.par_chunks_mut(shape.seq_k * shape.d_head))
        .zip(d_value.par_chunks_mut(shape.seq_k * shape.d_value))
        .enumerate()
        .map(|(kv_head, ((d_query, d_key), d_value))| {
            if call.gather.is_some() {
                gather::backward(call, saved, kv_head, [d_query, d_key, d_value]);
                return Vec::new();
            }
            let parts = parts(call, kv_head, d_key.len() + d_value.len(), TASKS_PER_THREAD);
            // Each part but the first writes to a copy; the copies are added in order.
            let key_len = d_key.len();
            let copy_len = key_len + d_value.len();
            let mut scratch = Scratch::take();
            let [copies] = scratch.split([(parts.len() - 1) * copy_len]);
            let copied = copies
                .chunks_exact_mut(copy_len)
                .map(|copy| copy.split_at_mut(key_len));
            let targets = std::iter::once((&mut *d_key, &mut *d_value)).chain(copied);
            let mut rest = d_query;
            let mut tasks = Vec::with_capacity(parts.len());
            let queries_of =
                |rows: &Range<usize>| rows.clone().map(|row| queries_in(call, row)).sum();
            let mut d_parameters: Vec<Vec<f32>> = parts
                .iter()
                .map(|rows| vec![0.0; parameter_len(call, queries_of(rows))])
                .collect();
            let targets = targets.zip(&mut d_parameters);
            for (rows, ((d_key, d_value), d_parameter)) in parts.iter().zip(targets) {
                let queries: usize = queries_of(rows);
                let (d_query, after) = rest.split_at_mut(queries * shape.d_head);
                rest = after;
                let grads = GradSlices {
                    d_query,
                    d_key,
                    d_value,
                    d_parameter,
                };
                tasks.push((rows.clone(), grads));
            }
            tasks.into_par_iter().for_each(|(rows, grads)| {
                // SAFETY: the CPU supports the instruction set.
                unsafe { backward::backward(set, call, saved, kv_head, rows, grads) };
            });
            for copy in copies.chunks_exact(copy_len) {
                add(d_key, &copy[..key_len]);
                add(d_value, &copy[key_len..]);
            }
            match call.program {
                Program::Additive => sum(&d_parameters),
                Program::Gaussian { .. } => d_parameters.concat(),
                Program::Softmax | Program::Sigmoid | Program::Hard(_) => Vec::new(),
            }
        })
        .collect();
    let d_parameter = match call.program {
        // The vectors of all heads, summed over the examples.
        Program::Additive => {
            let examples = d_parameters.chunks(shape.kv_heads);
            sum(&examples.map(<[_]>::concat).collect::<Vec<_>>())
        }
        Program::Gaussian { .. } => d_parameters.concat(),
        Program::Softmax | Program::Sigmoid | Program::Hard(_) => Vec::new(),
    };
    [d_query, d_key, d_value, d_parameter]
}

/// The length of the parameter's gradient in a task with this number of queries.
fn parameter_len(call: &Call<'_>, queries: usize) -> usize {
    match call.program {
        Program::Additive => call.shape.group() * call.shape.d_head,
        Program::Gaussian { .. } => queries * call.position_columns(),
        Program::Softmax | Program::Sigmoid | Program::Hard(_) => 0,
    }
}

/// The elementwise sum of vectors of the same length.
fn sum(terms: &[Vec<f32>]) -> Vec<f32> {
    let Some((first, rest)) = terms.split_first() else {
        return Vec::new();
    };
    let mut sum = first.clone();
    rest.iter().for_each(|term| add(&mut sum, term));
    sum
}

/// The gradient of a bias of shape `dims`, which broadcasts to the scores.
///
/// A second pass over the tiles: here examples and heads that share a bias add to the same
/// elements, while in [`backward`] those that share keys and values do.
pub(super) fn backward_bias(
    call: &Call<'_>,
    saved: &BackwardInputs<'_>,
    dims: [usize; 4],
) -> Vec<f32> {
    let shape = call.shape;
    let [batch, heads, seq_q, seq_k] = dims;
    // Of query and key, and the element of the first query and key.
    let (strides, origin) = match call.has_relative_bias {
        true => ([-1, 1], shape.seq_q as isize - 1),
        false => {
            let by_query = if seq_q > 1 { seq_k as isize } else { 0 };
            ([by_query, isize::from(seq_k > 1)], 0)
        }
    };
    let set = InstructionSet::detect();
    // `first` is the first query of `d_bias`.
    let run = |head: [usize; 2], row: usize, first: usize, d_bias: &mut [f32]| {
        let d_bias = (first as isize * strides[0] - origin, d_bias);
        // SAFETY: the CPU supports the instruction set.
        unsafe { backward::backward_bias(set, call, saved, head, row, strides, d_bias) };
    };
    let mut d_bias = vec![0.0; dims.iter().product()];
    d_bias
        .par_chunks_mut(seq_q * seq_k)
        .enumerate()
        .for_each(|(i, d_bias)| {
            // All examples and heads that share this part of the bias.
            let examples = (0..shape.batch).filter(|b| batch == 1 || *b == i / heads);
            let sharing: Vec<[usize; 2]> = examples
                .flat_map(|example| {
                    let heads = (0..shape.heads).filter(|h| heads == 1 || *h == i % heads);
                    heads.map(move |head| [example, head])
                })
                .collect();
            if call.gather.is_some() {
                for head in sharing {
                    (0..call.num_rows(head)).for_each(|row| run(head, row, 0, d_bias));
                }
            } else if seq_q == shape.seq_q && !call.has_relative_bias {
                d_bias
                    .par_chunks_mut(QUERIES * seq_k)
                    .enumerate()
                    .for_each(|(row, d_bias)| {
                        let first = row * QUERIES;
                        sharing
                            .iter()
                            .for_each(|head| run(*head, row, first, d_bias));
                    });
            } else {
                let rows: Vec<Vec<f32>> = sharing
                    .par_iter()
                    .map(|head| {
                        let mut d_bias = vec![0.0; seq_k];
                        (0..call.plan.rows()).for_each(|row| run(*head, row, 0, &mut d_bias));
                        d_bias
                    })
                    .collect();
                rows.iter().for_each(|row| add(d_bias, row));
            }
        });
    d_bias
}

/// The rows of tiles of a key and value head, split into parts that are computed in parallel:
/// enough of them to balance the load of the threads. Each part but the first needs a copy of
/// `copy_len` elements for gradients.
fn parts<T>(
    call: &Call<'_, T>,
    kv_head: usize,
    copy_len: usize,
    tasks_per_thread: usize,
) -> Vec<Range<usize>> {
    let shape = call.shape;
    let heads = shape.batch * shape.kv_heads;
    let (example, first) = (kv_head / shape.kv_heads, kv_head % shape.kv_heads);
    let query_heads = first * shape.group()..(first + 1) * shape.group();
    let rows: usize = query_heads.map(|head| call.num_rows([example, head])).sum();
    let ideal = (tasks_per_thread * threads()).div_ceil(heads);
    let copies = (MAX_COPY_BYTES / (size_of::<f32>() * heads * copy_len)).max(1);
    let parts = ideal.clamp(1, rows.div_ceil(4)).min(1 + copies);
    tiles(rows, rows.div_ceil(parts)).collect()
}

/// Tasks of the backward pass per thread, if there are enough queries.
const TASKS_PER_THREAD: usize = 8;
/// The memory for copies of gradients, all heads together. One copy per head is always allowed.
const MAX_COPY_BYTES: usize = 1 << 26;

/// Queries in a row of tiles; rows are counted over all heads that share keys and values.
fn queries_in<T>(call: &Call<'_, T>, row: usize) -> usize {
    call.plan.queries(row % call.plan.rows()).len()
}

#[cfg(test)]
mod tests;
