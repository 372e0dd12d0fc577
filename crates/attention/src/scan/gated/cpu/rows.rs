//! Loops over the rows of a chunk. Rows are padded with zeros to whole registers.

use std::f32::consts::LOG2_E;
use std::mem::MaybeUninit;

use zoo_kernels::cpu::{InstructionSet, Simd, dispatch};

use super::CHUNK;
use crate::scan::cpu::{dot, has_non_finite, strip_width};

/// The lanes of the widest register.
const LANES: usize = 16;

/// Added to the squared norm of a row before its root is taken.
const EPSILON: f32 = 1e-6;

/// `into[i] = function(into[i], a[i])` for each element of padded rows.
#[inline(always)]
fn update(into: &mut [f32], a: &[f32], function: impl Fn(f32, f32) -> f32) {
    let (into, a) = (into.as_chunks_mut::<LANES>().0, a.as_chunks::<LANES>().0);
    for (into, a) in into.iter_mut().zip(a) {
        for lane in 0..LANES {
            into[lane] = function(into[lane], a[lane]);
        }
    }
}

/// Copies `count` rows of `width` elements with a stride to padded rows, and sets the rows after
/// them to zero.
pub(super) fn load(
    (from, stride): (&[f32], usize),
    [count, width, wide]: [usize; 3],
    into: &mut [f32],
) {
    for (i, into) in into.chunks_exact_mut(wide).enumerate() {
        let filled = if i < count { width } else { 0 };
        if filled > 0 {
            into[..width].copy_from_slice(&from[i * stride..][..width]);
        }
        into[filled..].fill(0.0);
    }
}

/// Replaces infinities and NaN by zeros and returns the first row with one.
pub(super) fn make_finite(wide: usize, rows: &mut [f32]) -> Option<usize> {
    if !has_non_finite(rows) {
        return None;
    }
    let first = rows.iter().position(|x| !x.is_finite());
    for x in &mut *rows {
        if !x.is_finite() {
            *x = 0.0;
        }
    }
    first.map(|element| element / wide)
}

dispatch! {
    /// Divides rows by their norms. `factors` are set to one over the norms.
    pub(super) fn normalize(wide: usize, rows: &mut [f32], factors: &mut [f32]) by normalize_by;
}

#[inline(always)]
fn normalize_by(wide: usize, rows: &mut [f32], factors: &mut [f32]) {
    for (row, factor) in rows.chunks_exact_mut(wide).zip(factors) {
        *factor = 1.0 / (dot(row, row) + EPSILON).sqrt();
        for x in row.as_chunks_mut::<LANES>().0 {
            for x in x {
                *x *= *factor;
            }
        }
    }
}

dispatch! {
    /// Replaces the gradients of normalised rows by those of the rows before [`normalize`].
    pub(super) fn normalize_grads(wide: usize, rows: &[f32], factors: &[f32], grads: &mut [f32])
        by normalize_grads_by;
}

#[inline(always)]
fn normalize_grads_by(wide: usize, rows: &[f32], factors: &[f32], grads: &mut [f32]) {
    let rows = rows.chunks_exact(wide).zip(grads.chunks_exact_mut(wide));
    for ((row, grads), factor) in rows.zip(factors) {
        let along = dot(row, grads);
        update(grads, row, |grad, x| factor * (grad - along * x));
    }
}

dispatch! {
    /// `into = factors · rows`, with a factor for each row or for each element.
    pub(super) fn scale(factors: &[f32], rows: &[f32], wide: usize, into: &mut [f32]) by scale_by;
}

#[inline(always)]
fn scale_by(factors: &[f32], rows: &[f32], wide: usize, into: &mut [f32]) {
    if factors.len() == rows.len() {
        into.copy_from_slice(rows);
        update(into, factors, |x, factor| factor * x);
        return;
    }
    let rows = rows.chunks_exact(wide).zip(into.chunks_exact_mut(wide));
    for ((row, into), factor) in rows.zip(factors) {
        update(into, row, |_, x| factor * x);
    }
}

dispatch! {
    /// `into += factors · rows`, with a factor for each row or for each element.
    pub(super) fn add_scaled(factors: &[f32], rows: &[f32], wide: usize, into: &mut [f32])
        by add_scaled_by;
}

#[inline(always)]
fn add_scaled_by(factors: &[f32], rows: &[f32], wide: usize, into: &mut [f32]) {
    if factors.len() == rows.len() {
        let factors = factors.chunks_exact(wide).zip(rows.chunks_exact(wide));
        for ((factors, row), into) in factors.zip(into.chunks_exact_mut(wide)) {
            let (factors, row) = (factors.as_chunks::<LANES>().0, row.as_chunks::<LANES>().0);
            let into = into.as_chunks_mut::<LANES>().0;
            for ((into, factors), row) in into.iter_mut().zip(factors).zip(row) {
                for lane in 0..LANES {
                    into[lane] += factors[lane] * row[lane];
                }
            }
        }
        return;
    }
    let rows = rows.chunks_exact(wide).zip(into.chunks_exact_mut(wide));
    for ((row, into), factor) in rows.zip(factors) {
        update(into, row, |sum, x| sum + factor * x);
    }
}

dispatch! {
    /// `into += sign · a · b`: the sum of each row, or each element if there are as many results.
    pub(super) fn add_products(sign: f32, a: &[f32], b: &[f32], wide: usize, into: &mut [f32])
        by add_products_by;
}

#[inline(always)]
fn add_products_by(sign: f32, a: &[f32], b: &[f32], wide: usize, into: &mut [f32]) {
    let rows = a.chunks_exact(wide).zip(b.chunks_exact(wide));
    if into.len() == a.len() {
        for ((a, b), into) in rows.zip(into.chunks_exact_mut(wide)) {
            let (a, b) = (a.as_chunks::<LANES>().0, b.as_chunks::<LANES>().0);
            for ((a, b), into) in a.iter().zip(b).zip(into.as_chunks_mut::<LANES>().0) {
                for lane in 0..LANES {
                    into[lane] += sign * (a[lane] * b[lane]);
                }
            }
        }
        return;
    }
    for ((a, b), into) in rows.zip(into) {
        *into += sign * dot(a, b);
    }
}

dispatch! {
    /// `into -= rows`
    pub(super) fn subtract(rows: &[f32], into: &mut [f32]) by subtract_by;
}

#[inline(always)]
fn subtract_by(rows: &[f32], into: &mut [f32]) {
    update(into, rows, |x, row| x - row);
}

dispatch! {
    /// `into += rows`
    pub(super) fn add(rows: &[f32], into: &mut [f32]) by add_by;
}

#[inline(always)]
fn add_by(rows: &[f32], into: &mut [f32]) {
    update(into, rows, |x, row| x + row);
}

dispatch! {
    /// Adds the products of corresponding rows: to one sum, or each to one of its own.
    pub(super) fn add_row_products(a: &[f32], b: &[f32], wide: usize, into: &mut [f32])
        by add_row_products_by;
}

#[inline(always)]
fn add_row_products_by(a: &[f32], b: &[f32], wide: usize, into: &mut [f32]) {
    let last = into.len() - 1;
    let rows = a.chunks_exact(wide).zip(b.chunks_exact(wide));
    for (i, (a, b)) in rows.enumerate() {
        into[i.min(last)] += dot(a, b);
    }
}

dispatch! {
    /// Replaces each row by the sum of it and those after it.
    pub(super) fn sums_to_end(wide: usize, rows: &mut [f32]) by sums_to_end_by;
}

#[inline(always)]
fn sums_to_end_by(wide: usize, rows: &mut [f32]) {
    for start in (0..rows.len() - wide).step_by(wide).rev() {
        let (rows, done) = rows.split_at_mut(start + wide);
        for (sum, after) in rows[start..].iter_mut().zip(done) {
            *sum += *after;
        }
    }
}

/// Replaces logarithms by the numbers.
pub(super) fn exponentiate(set: InstructionSet, logs: &mut [f32]) {
    assert!(logs.len().is_multiple_of(LANES));
    // SAFETY: the processor supports the set; the lanes divide the length.
    unsafe { exponentiate_kernel(set, logs) };
}

dispatch! {
    unsafe fn exponentiate_kernel(logs: &mut [f32]) by exponentiate_by;
}

/// # Safety
///
/// As for [`exponentiate`].
#[inline(always)]
unsafe fn exponentiate_by<S: Simd>(logs: &mut [f32]) {
    for logs in logs.chunks_exact_mut(S::LANES) {
        let at = logs.as_mut_ptr();
        // SAFETY: a chunk has the elements of a vector.
        unsafe { S::store(at, S::exp2(S::mul(S::load(at), S::splat(LOG2_E)))) };
    }
}

/// Products of decays below this are zero: subnormal numbers are slow.
pub(super) const NEGLIGIBLE: f32 = 1e-37;

#[inline(always)]
fn product(a: f32, b: f32) -> f32 {
    let product = a * b;
    if product < NEGLIGIBLE { 0.0 } else { product }
}

dispatch! {
    /// The products of the decays of each row and those before it.
    pub(super) fn decays_from_start(decays: &[f32], wide: usize, into: &mut [f32])
        by decays_from_start_by;
}

#[inline(always)]
fn decays_from_start_by(decays: &[f32], wide: usize, into: &mut [f32]) {
    into[..wide].copy_from_slice(&decays[..wide]);
    for start in (wide..decays.len()).step_by(wide) {
        let (done, into) = into.split_at_mut(start);
        let factors = done[start - wide..].iter().zip(&decays[start..]);
        for (into, (before, decay)) in into[..wide].iter_mut().zip(factors) {
            *into = product(*before, *decay);
        }
    }
}

dispatch! {
    /// The products of the decays after each row, times `last`.
    pub(super) fn decays_to_end(decays: &[f32], wide: usize, last: &[f32], into: &mut [f32])
        by decays_to_end_by;
}

#[inline(always)]
fn decays_to_end_by(decays: &[f32], wide: usize, last: &[f32], into: &mut [f32]) {
    let len = decays.len();
    into[len - wide..].copy_from_slice(last);
    for start in (0..len - wide).step_by(wide).rev() {
        let (into, done) = into.split_at_mut(start + wide);
        let factors = done.iter().zip(&decays[start + wide..]);
        for (into, (after, decay)) in into[start..].iter_mut().zip(factors) {
            *into = product(*after, *decay);
        }
    }
}

dispatch! {
    /// The products of the decays after row `j` up to row `i` for `j <= i`, zero above the diagonal.
    pub(super) fn decay_matrix(decays: &[f32], into: &mut [f32]) by decay_matrix_by;
}

#[inline(always)]
fn decay_matrix_by(decays: &[f32], into: &mut [f32]) {
    for (i, decay) in decays.iter().enumerate() {
        let (done, row) = into.split_at_mut(i * CHUNK);
        let row = &mut row[..strip_width(i)];
        row[i..].fill(0.0);
        if i > 0 {
            for (x, before) in row[..i].iter_mut().zip(&done[(i - 1) * CHUNK..]) {
                *x = product(*before, *decay);
            }
        }
        row[i] = 1.0;
    }
}

dispatch! {
    /// Multiplies the lower triangle of `scores` by `sign` and by `decays`, if there are any, and sets
    /// elements above the diagonal to zero, and those on it if `is_strict`.
    pub(super) fn finish_scores(
        count: usize,
        sign: f32,
        is_strict: bool,
        decays: &[f32],
        scores: &mut [f32],
    ) by finish_scores_by;
}

#[inline(always)]
fn finish_scores_by(count: usize, sign: f32, is_strict: bool, decays: &[f32], scores: &mut [f32]) {
    for (i, row) in scores.chunks_exact_mut(CHUNK).take(count).enumerate() {
        let end = if is_strict { i } else { i + 1 };
        let row = &mut row[..strip_width(i)];
        if !decays.is_empty() {
            update(row, &decays[i * CHUNK..][..strip_width(i)], |x, decay| {
                x * decay
            });
        }
        if sign != 1.0 {
            for x in row[..end].iter_mut() {
                *x *= sign;
            }
        }
        // Not multiplied by zero, which would make infinity NaN.
        row[end..].fill(0.0);
    }
}

dispatch! {
    /// Multiplies padded rows by a factor and writes `width` elements of each, as many rows as the
    /// output has.
    pub(super) fn store(
        factor: f32,
        rows: &[f32],
        wide: usize,
        width: usize,
        into: &mut [MaybeUninit<f32>],
    ) by store_by;
}

#[inline(always)]
fn store_by(factor: f32, rows: &[f32], wide: usize, width: usize, into: &mut [MaybeUninit<f32>]) {
    for (row, into) in rows.chunks_exact(wide).zip(into.chunks_exact_mut(width)) {
        for (into, x) in into.iter_mut().zip(row) {
            into.write(factor * x);
        }
    }
}
