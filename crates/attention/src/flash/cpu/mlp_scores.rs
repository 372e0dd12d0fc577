//! The MLP scores of all queries and keys as a matrix, `Σ_x v_x tanh(q_x + k_x)`, and their gradients.
//!
//! For the weights that a model returns. [Tiles](super::additive) map queries to lanes; here it is the
//! elements `x`, so that few queries and keys fill the lanes, too. The formulas are the same.

use std::ops::Range;

use zoo_kernels::cpu::parallel::{for_each, map, rows_per_task, threads};
use zoo_kernels::cpu::scratch::Scratch;
use zoo_kernels::cpu::{InstructionSet, Simd, dispatch, tanh};

use super::additive::{Form, MAX_LANES, are_small, exponentials};

/// The sizes of a call.
#[derive(Debug, Clone, Copy)]
pub(in crate::flash) struct MlpSizes {
    pub(in crate::flash) batch: usize,
    pub(in crate::flash) heads: usize,
    pub(in crate::flash) rows: usize,
    pub(in crate::flash) keys: usize,
    pub(in crate::flash) d: usize,
}

/// Queries `[batch, heads, rows, d]`, keys `[batch, heads, keys, d]` and vectors `[1, heads, rows, d]`.
#[derive(Clone, Copy)]
pub(in crate::flash) struct MlpInputs<'a> {
    pub(in crate::flash) query: &'a [f32],
    pub(in crate::flash) key: &'a [f32],
    pub(in crate::flash) vector: &'a [f32],
}

impl<'a> MlpInputs<'a> {
    /// Some rows and all keys of a head of an example.
    fn head(&self, sizes: MlpSizes, index: usize, rows: Range<usize>) -> Self {
        let MlpSizes {
            heads, rows: count, ..
        } = sizes;
        let rows_of = |tensor: &'a [f32], head: usize| {
            let first = head * count;
            &tensor[(first + rows.start) * sizes.d..(first + rows.end) * sizes.d]
        };
        Self {
            query: rows_of(self.query, index),
            key: &self.key[index * sizes.keys * sizes.d..][..sizes.keys * sizes.d],
            vector: rows_of(self.vector, index % heads),
        }
    }

    fn check(&self, sizes: MlpSizes) {
        let heads = sizes.batch * sizes.heads;
        let lens = [self.query.len(), self.key.len(), self.vector.len()];
        let rows = [
            heads * sizes.rows,
            heads * sizes.keys,
            sizes.heads * sizes.rows,
        ];
        assert_eq!(lens, rows.map(|rows| rows * sizes.d), "MLP scores");
    }
}

/// `[batch, heads, rows, keys]`.
pub(in crate::flash) fn forward(inputs: MlpInputs<'_>, sizes: MlpSizes) -> Vec<f32> {
    inputs.check(sizes);
    let mut scores = vec![0.0; sizes.batch * sizes.heads * sizes.rows * sizes.keys];
    let set = InstructionSet::detect();
    let all_rows = sizes.batch * sizes.heads * sizes.rows;
    let task_rows = rows_per_task(all_rows, sizes.keys * sizes.d).min(sizes.rows);
    let mut tasks = Vec::new();
    for (index, head) in scores
        .chunks_mut((sizes.rows * sizes.keys).max(1))
        .enumerate()
    {
        for (i, part) in head.chunks_mut(task_rows * sizes.keys).enumerate() {
            tasks.push((index, i * task_rows, part));
        }
    }
    for_each(tasks, |(index, first, scores)| {
        let rows = first..first + scores.len() / sizes.keys;
        // SAFETY: the CPU supports the instruction set, and `check` has compared the sizes.
        unsafe { scores_of(set, &inputs.head(sizes, index, rows), sizes.d, scores) };
    });
    scores
}

/// The gradients of queries, keys and vectors.
pub(in crate::flash) fn backward(
    inputs: MlpInputs<'_>,
    d_scores: &[f32],
    sizes: MlpSizes,
) -> [Vec<f32>; 3] {
    inputs.check(sizes);
    let MlpSizes {
        heads,
        rows,
        keys,
        d,
        ..
    } = sizes;
    let all_heads = sizes.batch * heads;
    assert_eq!(d_scores.len(), all_heads * rows * keys, "MLP scores");
    // Elements are independent: with few heads they are divided, too.
    let parts = (4 * threads())
        .div_ceil(all_heads.max(1))
        .min(d.div_ceil(MAX_LANES));
    let width = d.div_ceil(parts.max(1)).next_multiple_of(MAX_LANES);
    let tasks: Vec<(usize, Range<usize>)> = (0..all_heads)
        .flat_map(|index| {
            (0..d)
                .step_by(width)
                .map(move |x| (index, x..d.min(x + width)))
        })
        .collect();
    let set = InstructionSet::detect();
    let results = map(tasks, |(index, columns)| {
        let head = inputs.head(sizes, index, 0..rows);
        let width = columns.len();
        let mut grads = [rows, keys, rows].map(|rows| vec![0.0; rows * width]);
        let d_scores = &d_scores[index * rows * keys..][..rows * keys];
        // SAFETY: as in `forward`.
        unsafe { gradients_of(set, &head, d, columns.clone(), d_scores, &mut grads) };
        (index, columns, grads)
    });
    let counts = [all_heads * rows, all_heads * keys, heads * rows];
    let [mut d_query, mut d_key, mut d_vector] = counts.map(|rows| vec![0.0; rows * d]);
    for (index, columns, [query, key, vector]) in results {
        let width = columns.len();
        let copy = |into: &mut [f32], from: &[f32], count: usize| {
            for (i, from) in from.chunks_exact(width).enumerate() {
                let row = (index * count + i) * d;
                into[row + columns.start..row + columns.end].copy_from_slice(from);
            }
        };
        copy(&mut d_query, &query, rows);
        copy(&mut d_key, &key, keys);
        // Summed over the examples.
        for (i, from) in vector.chunks_exact(width).enumerate() {
            let row = (index % heads * rows + i) * d;
            for (into, x) in d_vector[row + columns.start..].iter_mut().zip(from) {
                *into += x;
            }
        }
    }
    [d_query, d_key, d_vector]
}

dispatch! {
    /// The scores of some rows of a head.
    unsafe fn scores_of(
        inputs: &MlpInputs<'_>,
        d: usize,
        scores: &mut [f32],
    ) by scores_of_rows;
}

dispatch! {
    /// The gradients of some elements of a head.
    unsafe fn gradients_of(
        inputs: &MlpInputs<'_>,
        d: usize,
        columns: Range<usize>,
        d_scores: &[f32],
        grads: &mut [Vec<f32>; 3],
    ) by gradients_of_columns;
}

/// Copies some columns of rows of `d` elements to rows that are padded to whole vectors with zeros, as
/// exponentials or as they are.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn pad<S: Simd>(
    form: Form,
    from: &[f32],
    d: usize,
    columns: &Range<usize>,
    into: &mut [f32],
) {
    let padded = columns.len().next_multiple_of(S::LANES);
    for (from, into) in from.chunks_exact(d).zip(into.chunks_exact_mut(padded)) {
        let from = &from[columns.start..columns.end];
        match form {
            Form::Elements => into[..from.len()].copy_from_slice(from),
            // SAFETY: the caller enabled the instructions.
            Form::Exponentials => unsafe { exponentials::<S>(from, into) },
        }
        into[from.len()..].fill(0.0);
    }
}

#[inline(always)]
fn form_of(inputs: &MlpInputs<'_>) -> Form {
    if are_small(inputs.query) && are_small(inputs.key) {
        Form::Exponentials
    } else {
        Form::Elements
    }
}

/// Keys whose sums are computed at once.
const BLOCK: usize = 4;

/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn scores_of_rows<S: Simd>(inputs: &MlpInputs<'_>, d: usize, scores: &mut [f32]) {
    let keys = inputs.key.len() / d;
    let padded = d.next_multiple_of(S::LANES);
    let padded_keys = keys.next_multiple_of(S::LANES);
    let form = form_of(inputs);
    let mut scratch = Scratch::take();
    let lens = [padded, padded_keys * padded, padded, S::LANES * S::LANES];
    let [query, key, vector, sums] = scratch.split(lens);
    let columns = 0..d;
    // SAFETY: the caller enabled the instructions, and the buffers have the padded sizes.
    unsafe {
        pad::<S>(form, inputs.key, d, &columns, key);
        // Padding keys, whose scores are not stored.
        key[keys * padded..].fill(0.0);
        let rows = inputs
            .query
            .chunks_exact(d)
            .zip(inputs.vector.chunks_exact(d));
        for ((query_row, vector_row), scores) in rows.zip(scores.chunks_exact_mut(keys)) {
            pad::<S>(form, query_row, d, &columns, query);
            pad::<S>(Form::Elements, vector_row, d, &columns, vector);
            let total: f32 = vector_row.iter().sum();
            for first in (0..keys).step_by(S::LANES) {
                for block in (0..S::LANES).step_by(BLOCK) {
                    let key = key.as_ptr().add((first + block) * padded);
                    let mut sum = [S::splat(0.0); BLOCK];
                    for x in (0..padded).step_by(S::LANES) {
                        let q = S::load(query.as_ptr().add(x));
                        let v = S::load(vector.as_ptr().add(x));
                        for (i, sum) in sum.iter_mut().enumerate() {
                            let k = S::load(key.add(i * padded + x));
                            let term = match form {
                                Form::Exponentials => S::recip(S::fma(q, k, S::splat(1.0))),
                                Form::Elements => tanh::<S>(S::add(q, k)),
                            };
                            *sum = S::fma(v, term, *sum);
                        }
                    }
                    for (i, sum) in sum.into_iter().enumerate() {
                        S::store(sums.as_mut_ptr().add((block + i) * S::LANES), sum);
                    }
                }
                let sum = S::row_sums(sums.as_ptr());
                let score = match form {
                    // Σ v (1 - 2 r)
                    Form::Exponentials => S::fma(sum, S::splat(-2.0), S::splat(total)),
                    Form::Elements => sum,
                };
                let count = S::LANES.min(keys - first);
                S::store_partial(scores.as_mut_ptr().add(first), score, count);
            }
        }
    }
}

/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn gradients_of_columns<S: Simd>(
    inputs: &MlpInputs<'_>,
    d: usize,
    columns: Range<usize>,
    d_scores: &[f32],
    grads: &mut [Vec<f32>; 3],
) {
    let (rows, keys) = (inputs.query.len() / d, inputs.key.len() / d);
    let width = columns.len();
    let padded = width.next_multiple_of(S::LANES);
    let form = form_of(inputs);
    let mut scratch = Scratch::take();
    let lens = [rows * padded, keys * padded, rows * padded, keys * S::LANES];
    let [query, key, vector, of_keys] = scratch.split(lens);
    let [d_query, d_key, d_vector] = grads;
    // SAFETY: the caller enabled the instructions, and the buffers have the padded sizes.
    unsafe {
        pad::<S>(form, inputs.query, d, &columns, query);
        pad::<S>(form, inputs.key, d, &columns, key);
        pad::<S>(Form::Elements, inputs.vector, d, &columns, vector);
        let zero = S::splat(0.0);
        for x in (0..padded).step_by(S::LANES) {
            let count = S::LANES.min(width - x);
            of_keys.fill(0.0);
            for (i, d_scores) in d_scores.chunks_exact(keys).enumerate() {
                let q = S::load(query.as_ptr().add(i * padded + x));
                let v = S::load(vector.as_ptr().add(i * padded + x));
                let (mut of_query, mut of_vector) = (zero, zero);
                let mut total = 0.0;
                for (j, &d_score) in d_scores.iter().enumerate() {
                    // Masked keys, whose elements may not be finite.
                    if d_score == 0.0 {
                        continue;
                    }
                    let k = S::load(key.as_ptr().add(j * padded + x));
                    total += d_score;
                    let d_score = S::splat(d_score);
                    let d_sum = match form {
                        Form::Exponentials => {
                            // A quarter of the gradient, r (1 - r) · d.
                            let r = S::recip(S::fma(q, k, S::splat(1.0)));
                            let product = S::mul(d_score, r);
                            of_vector = S::add(of_vector, product);
                            S::sub(product, S::mul(product, r))
                        }
                        Form::Elements => {
                            let tanh = tanh::<S>(S::add(q, k));
                            let product = S::mul(d_score, tanh);
                            of_vector = S::add(of_vector, product);
                            S::sub(d_score, S::mul(product, tanh))
                        }
                    };
                    of_query = S::add(of_query, d_sum);
                    let into = of_keys.as_mut_ptr().add(j * S::LANES);
                    S::store(into, S::fma(v, d_sum, S::load(into)));
                }
                let of_query = S::mul(v, of_query);
                let (of_query, of_vector) = match form {
                    // tanh is 1 - 2 r.
                    Form::Exponentials => (
                        S::mul(S::splat(4.0), of_query),
                        S::fma(S::splat(-2.0), of_vector, S::splat(total)),
                    ),
                    Form::Elements => (of_query, of_vector),
                };
                S::store_partial(d_query.as_mut_ptr().add(i * width + x), of_query, count);
                S::store_partial(d_vector.as_mut_ptr().add(i * width + x), of_vector, count);
            }
            let factor = match form {
                Form::Exponentials => S::splat(4.0),
                Form::Elements => S::splat(1.0),
            };
            for j in 0..keys {
                let sum = S::mul(factor, S::load(of_keys.as_ptr().add(j * S::LANES)));
                S::store_partial(d_key.as_mut_ptr().add(j * width + x), sum, count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::Normals;

    fn normals(count: usize, scale: f32, seed: u64) -> Vec<f32> {
        let mut normals = Normals::new([seed, 0, 0]);
        (0..count).map(|_| normals.next() as f32 * scale).collect()
    }

    /// Scores and gradients in `f64`.
    fn reference(
        inputs: MlpInputs<'_>,
        d_scores: &[f32],
        sizes: MlpSizes,
    ) -> (Vec<f64>, [Vec<f64>; 3]) {
        let MlpSizes {
            batch,
            heads,
            rows,
            keys,
            d,
        } = sizes;
        let mut scores = vec![0.0; d_scores.len()];
        let mut grads = [inputs.query, inputs.key, inputs.vector].map(|x| vec![0.0; x.len()]);
        for head in 0..batch * heads {
            for (i, j) in (0..rows).flat_map(|i| (0..keys).map(move |j| (i, j))) {
                let score = (head * rows + i) * keys + j;
                let d_score = f64::from(d_scores[score]);
                for x in 0..d {
                    let query = (head * rows + i) * d + x;
                    let key = (head * keys + j) * d + x;
                    let vector = (head % heads * rows + i) * d + x;
                    let v = f64::from(inputs.vector[vector]);
                    let tanh = (f64::from(inputs.query[query]) + f64::from(inputs.key[key])).tanh();
                    scores[score] += v * tanh;
                    let slope = d_score * v * (1.0 - tanh * tanh);
                    grads[0][query] += slope;
                    grads[1][key] += slope;
                    grads[2][vector] += d_score * tanh;
                }
            }
        }
        (scores, grads)
    }

    fn assert_close(got: &[f32], want: &[f64], name: &str) {
        let largest = want
            .iter()
            .fold(1e-3, |largest: f64, x| largest.max(x.abs()));
        for (got, want) in got.iter().zip(want) {
            let error = (f64::from(*got) - want).abs() / largest;
            assert!(error < 3e-6, "{name}: {got} instead of {want}");
        }
        assert_eq!(got.len(), want.len());
    }

    /// Heads of several examples, sizes that are no multiple of a vector, single rows, and elements
    /// whose exponentials would overflow.
    #[test]
    fn scores_and_gradients_are_those_of_the_formula() {
        let cases = [
            ([2, 3, 5, 7, 20], 1.0),
            ([1, 1, 1, 1, 1], 1.0),
            ([4, 1, 24, 24, 256], 0.5),
            ([1, 2, 33, 17, 100], 1.0),
            ([2, 1, 1, 40, 16], 1.0),
            ([2, 2, 6, 19, 33], 30.0),
        ];
        for ([batch, heads, rows, keys, d], scale) in cases {
            let sizes = MlpSizes {
                batch,
                heads,
                rows,
                keys,
                d,
            };
            let query = normals(batch * heads * rows * d, scale, 1);
            let key = normals(batch * heads * keys * d, scale, 2);
            let vector = normals(heads * rows * d, 1.0, 3);
            let d_scores = normals(batch * heads * rows * keys, 1.0, 4);
            let inputs = MlpInputs {
                query: &query,
                key: &key,
                vector: &vector,
            };
            let form = form_of(&inputs);
            assert!((form == Form::Elements) == (scale > 8.0), "{sizes:?}");
            let (want, want_grads) = reference(inputs, &d_scores, sizes);
            assert_close(
                &forward(inputs, sizes),
                &want,
                &format!("scores of {sizes:?}"),
            );
            let grads = backward(inputs, &d_scores, sizes);
            let names = ["query", "key", "vector"];
            for ((got, want), name) in grads.iter().zip(&want_grads).zip(names) {
                assert_close(got, want, &format!("d_{name} of {sizes:?}"));
            }
        }
    }

    /// Masked keys have a gradient of zero, whatever their elements are.
    #[test]
    fn pairs_without_gradient_contribute_nothing() {
        let sizes = MlpSizes {
            batch: 1,
            heads: 1,
            rows: 2,
            keys: 3,
            d: 20,
        };
        let (query, vector) = (normals(40, 1.0, 1), normals(40, 1.0, 2));
        let mut key = normals(60, 1.0, 3);
        key[40..].fill(f32::NAN);
        let inputs = MlpInputs {
            query: &query,
            key: &key,
            vector: &vector,
        };
        let d_scores = [1.0, 2.0, 0.0, 3.0, 4.0, 0.0];
        let [d_query, d_key, d_vector] = backward(inputs, &d_scores, sizes);
        assert!(d_query.iter().chain(&d_vector).all(|x| x.is_finite()));
        assert_eq!(d_key[40..], [0.0; 20]);
        assert!(d_key[..40].iter().all(|x| *x != 0.0));
    }
}
