//! Tiled attention on a CPU, on plain slices of `f32`.
//!
//! Forward: each task takes one tile of queries through all tiles of keys it may
//! see. Backward: each task takes one head's keys and values (or, where there are
//! fewer heads than threads, a part of its queries), so that no two tasks add to
//! the same gradient.

mod backward;
mod forward;
mod kernel;
mod kind;
mod scratch;
mod simd;

use std::ops::Range;

use rayon::prelude::*;

use self::kernel::{QUERIES, hide};
pub(super) use self::kind::Kind;
use self::simd::Simd;
use super::sight::Sights;
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
