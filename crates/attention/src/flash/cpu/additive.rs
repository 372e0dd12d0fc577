//! The MLP scores of additive attention, `Σ_x v_x tanh(q_x + k_x)`, and their gradients.
//!
//! For elements of ordinary size the exponentials are computed once per row instead of per pair:
//!
//! ```text
//! tanh(q + k) = 1 - 2 r,   tanh' = 4 r (1 - r),   r = 1 / (e^2q · e^2k + 1)
//! ```
//!
//! so that a pair costs one multiplication and one reciprocal. Larger elements, whose exponentials
//! could overflow, are computed directly.

use std::f32::consts::{LN_2, LOG2_E};

use zoo_kernels::cpu::{Simd, tanh};

use super::kernel::{KEYS, QUERIES};

/// The largest element whose exponential is computed per row. The product of two is finite, and
/// their rounding errors are no larger than that of the sum of two elements.
const MAX_ELEMENT: f32 = 8.0;

/// Vectors that are computed at once, to hide the latency of reciprocals.
const BLOCK: usize = 4;

/// How the elements of a tile are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As `e^2x`.
    Exponentials,
    /// As they are.
    Elements,
}

/// The exponentials of a tile of queries, or nothing if they are too large.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn query_powers<'a, S: Simd>(query_t: &[f32], into: &'a mut [f32]) -> &'a [f32] {
    if !are_small(query_t) {
        return &[];
    }
    // SAFETY: the caller enabled the instructions.
    unsafe { exponentials::<S>(query_t, into) };
    into
}

/// Whether the exponentials of these elements can be multiplied.
#[inline(always)]
pub(super) fn are_small(elements: &[f32]) -> bool {
    let mut max = 0;
    // Bits of absolute values are ordered like the values, and those of NaN are larger. A plain
    // loop: a closure would be compiled without the caller's target features.
    for x in elements {
        max = (x.to_bits() & 0x7fff_ffff).max(max);
    }
    max <= MAX_ELEMENT.to_bits()
}

/// Writes `e^2x` of each element to `into`, padded to a whole vector.
///
/// # Safety
///
/// The instructions of `S` are enabled; `into` has at least as many elements, rounded up to a
/// multiple of the lanes.
#[inline(always)]
pub(super) unsafe fn exponentials<S: Simd>(elements: &[f32], into: &mut [f32]) {
    /// `2 / ln 2` as a sum of two numbers, so that the exponent has an error of 2^-40.
    const HIGH: f32 = 2.0 * LOG2_E;
    const LOW: f32 = (2.0 * std::f64::consts::LOG2_E - HIGH as f64) as f32;
    let count = elements.len();
    assert!(into.len() >= count.next_multiple_of(S::LANES));
    // SAFETY: the lengths are checked above.
    unsafe {
        for i in (0..count).step_by(S::LANES) {
            let x = S::load_partial(elements.as_ptr().add(i), S::LANES.min(count - i));
            let exponent = S::mul(x, S::splat(HIGH));
            let rest = S::fma(x, S::splat(HIGH), S::sub(S::splat(0.0), exponent));
            let rest = S::fma(x, S::splat(LOW), rest);
            let power = S::exp2(exponent);
            // 2^rest = 1 + rest · ln 2
            let power = S::fma(power, S::mul(rest, S::splat(LN_2)), power);
            S::store(into.as_mut_ptr().add(i), power);
        }
    }
}

/// Queries and keys of a tile in the form in which their scores are computed: as exponentials if all
/// of them are small. The exponentials of the keys are written to `key_powers`, those of the
/// queries are in `query_powers` unless it is empty.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn select_form<'a, S: Simd>(
    [query_t, query_powers]: [&'a [f32]; 2],
    key: &'a [f32],
    key_powers: &'a mut [f32],
) -> (Form, &'a [f32], &'a [f32]) {
    if query_powers.is_empty() || !are_small(key) {
        return (Form::Elements, query_t, key);
    }
    // SAFETY: the caller enabled the instructions.
    unsafe { exponentials::<S>(key, key_powers) };
    (Form::Exponentials, query_powers, &key_powers[..key.len()])
}

/// `scores[key][query] = factor · Σ_x vector_x tanh(query_x + key_x)`.
///
/// `query_t` has a row of [`QUERIES`] for each `x`, `key` a row of `vector.len()` for each key.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn additive_scores<S: Simd>(
    form: Form,
    query_t: &[f32],
    key: &[f32],
    vector: &[f32],
    factor: f32,
    scores: &mut [f32],
) {
    let d_head = vector.len();
    let keys = key.len() / d_head;
    assert!(query_t.len() == d_head * QUERIES && scores.len() >= keys * QUERIES);
    let total: f32 = vector.iter().sum();
    for (row, scores) in key
        .chunks_exact(d_head)
        .zip(scores.chunks_exact_mut(QUERIES))
    {
        for lanes in (0..QUERIES).step_by(BLOCK * S::LANES) {
            // SAFETY: the lengths are checked above; a block divides `QUERIES`.
            unsafe {
                let mut sums = [S::splat(0.0); BLOCK];
                for (x, (&k, &v)) in row.iter().zip(vector).enumerate() {
                    let query = query_t.as_ptr().add(x * QUERIES + lanes);
                    let (k, v) = (S::splat(k), S::splat(v));
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let q = S::load(query.add(i * S::LANES));
                        let term = match form {
                            Form::Exponentials => S::recip(S::fma(q, k, S::splat(1.0))),
                            Form::Elements => tanh::<S>(S::add(q, k)),
                        };
                        *sum = S::fma(v, term, *sum);
                    }
                }
                for (i, sum) in sums.into_iter().enumerate() {
                    let score = match form {
                        // Σ v (1 - 2 r)
                        Form::Exponentials => {
                            S::fma(sum, S::splat(-2.0 * factor), S::splat(total * factor))
                        }
                        Form::Elements => S::mul(sum, S::splat(factor)),
                    };
                    S::store(scores.as_mut_ptr().add(lanes + i * S::LANES), score);
                }
            }
        }
    }
}

/// Gradients of a tile of MLP scores.
pub(super) struct AdditiveGrads<'a> {
    /// A row of [`QUERIES`] for each `x`, accumulated.
    pub(super) d_query_t: &'a mut [f32],
    /// A row of this stride for each key, accumulated.
    pub(super) d_key: (&'a mut [f32], usize),
    /// A vector of lanes for each `x`, accumulated.
    pub(super) d_vector: &'a mut [f32],
    /// [`KEYS`] vectors of lanes.
    pub(super) by_key: &'a mut [f32],
}

/// The most lanes of a vector.
pub(super) const MAX_LANES: usize = 16;

/// Accumulates the gradients of queries, keys and vector from those of the MLP scores. Pairs with a
/// gradient of zero contribute nothing, even if their elements are not finite.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn additive_backward<S: Simd>(
    form: Form,
    query_t: &[f32],
    key: &[f32],
    vector: &[f32],
    d_scores: &[f32],
    grads: AdditiveGrads<'_>,
) {
    let d_head = vector.len();
    let keys = key.len() / d_head;
    let (d_key, stride) = grads.d_key;
    let mut transposed = [0.0; MAX_LANES * MAX_LANES];
    assert!(query_t.len() == d_head * QUERIES && grads.d_query_t.len() == d_head * QUERIES);
    assert!(
        keys <= KEYS && d_scores.len() >= keys * QUERIES && grads.by_key.len() == KEYS * S::LANES
    );
    assert!(
        grads.d_vector.len() >= d_head * S::LANES && d_key.len() >= (keys - 1) * stride + d_head
    );
    // SAFETY: the lengths are checked above.
    unsafe {
        let zero = S::splat(0.0);
        // Σ of the gradients: tanh is 1 - 2 r.
        let mut total = zero;
        if form == Form::Exponentials {
            for i in (0..keys * QUERIES).step_by(S::LANES) {
                total = S::add(total, S::load(d_scores.as_ptr().add(i)));
            }
        }
        for (x, &v) in vector.iter().enumerate() {
            let mut d_vector = zero;
            grads.by_key.fill(0.0);
            for lanes in (0..QUERIES).step_by(BLOCK * S::LANES) {
                let query = query_t.as_ptr().add(x * QUERIES + lanes);
                let mut d_query = [zero; BLOCK];
                let mut q = [zero; BLOCK];
                for (i, q) in q.iter_mut().enumerate() {
                    *q = S::load(query.add(i * S::LANES));
                }
                for j in 0..keys {
                    let k = S::splat(*key.as_ptr().add(j * d_head + x));
                    let d_score = d_scores.as_ptr().add(j * QUERIES + lanes);
                    let mut of_key = zero;
                    for (i, d_query) in d_query.iter_mut().enumerate() {
                        let d_score = S::load(d_score.add(i * S::LANES));
                        let d_sum = match form {
                            Form::Exponentials => {
                                // A quarter of the gradient, r (1 - r) · d.
                                let r = S::recip(S::fma(q[i], k, S::splat(1.0)));
                                let product = S::mul(d_score, r);
                                d_vector = S::add(d_vector, product);
                                S::sub(product, S::mul(product, r))
                            }
                            Form::Elements => {
                                let tanh = tanh::<S>(S::add(q[i], k));
                                let is_positive = S::gt(d_score, zero);
                                let is_negative = S::gt(zero, d_score);
                                // NaN stays NaN.
                                let none = S::mul(d_score, zero);
                                let product = S::mul(d_score, tanh);
                                let product = S::select(is_positive | is_negative, product, none);
                                d_vector = S::add(d_vector, product);
                                let slope = S::sub(S::splat(1.0), S::mul(tanh, tanh));
                                let d_sum = S::mul(d_score, slope);
                                S::select(is_positive | is_negative, d_sum, none)
                            }
                        };
                        *d_query = S::add(*d_query, d_sum);
                        of_key = S::add(of_key, d_sum);
                    }
                    let into = grads.by_key.as_mut_ptr().add(j * S::LANES);
                    S::store(into, S::add(S::load(into), of_key));
                }
                let factor = match form {
                    Form::Exponentials => S::splat(4.0 * v),
                    Form::Elements => S::splat(v),
                };
                for (i, d_query) in d_query.into_iter().enumerate() {
                    let into = grads
                        .d_query_t
                        .as_mut_ptr()
                        .add(x * QUERIES + lanes + i * S::LANES);
                    S::store(into, S::fma(factor, d_query, S::load(into)));
                }
            }
            let factor = match form {
                Form::Exponentials => {
                    d_vector = S::fma(S::splat(-2.0), d_vector, total);
                    4.0 * v
                }
                Form::Elements => v,
            };
            let into = grads.d_vector.as_mut_ptr().add(x * S::LANES);
            S::store(into, S::add(S::load(into), d_vector));
            // Transposed, the lanes of as many keys are summed at once.
            for first in (0..keys).step_by(S::LANES) {
                let lanes = grads.by_key.as_ptr().add(first * S::LANES);
                S::transpose(lanes, S::LANES, transposed.as_mut_ptr(), S::LANES);
                let mut sums = [zero; 2];
                for lane in (0..S::LANES).step_by(2) {
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let row = transposed.as_ptr().add((lane + i) * S::LANES);
                        *sum = S::add(*sum, S::load(row));
                    }
                }
                let mut by_key = [0.0; MAX_LANES];
                S::store(by_key.as_mut_ptr(), S::add(sums[0], sums[1]));
                for (j, sum) in (first..keys).zip(by_key) {
                    d_key[j * stride + x] += factor * sum;
                }
            }
        }
    }
}
