//! Forward and back substitution with the strictly lower triangular matrix `M`, of which `-M` is
//! stored. Both work on blocks of rows: the rows of other blocks are subtracted by a matmul.

use zoo_kernels::cpu::dispatch;
use zoo_kernels::cpu::matmul::Accumulate;

use super::CHUNK;
use crate::scan::cpu::{Factor, STRIP, multiply};
use zoo_kernels::cpu::InstructionSet;

/// Solves `x = w - M b x`, and computes `b x`. `x` contains `w` and is overwritten.
pub(super) fn forward(
    set: InstructionSet,
    [count, wide]: [usize; 2],
    negated: &[f32],
    strength: &[f32],
    x: &mut [f32],
    scaled: &mut [f32],
) {
    for first in (0..count).step_by(STRIP) {
        let (done, next) = scaled.split_at_mut(first * wide);
        let block = &mut x[first * wide..(first + STRIP) * wide];
        if first > 0 {
            multiply(
                set,
                [STRIP, first, wide],
                Factor::rows(&negated[first * CHUNK..], CHUNK),
                (done, wide),
                (&mut *block, wide),
                Accumulate::Add,
            );
        }
        let negated = &negated[first * CHUNK + first..];
        substitute(negated, &strength[first..first + STRIP], wide, block, next);
    }
}

dispatch! {
    /// [`forward`] within a block.
    fn substitute(
        negated: &[f32],
        strength: &[f32],
        wide: usize,
        x: &mut [f32],
        scaled: &mut [f32],
    ) by substitute_by;
}

#[inline(always)]
fn substitute_by(
    negated: &[f32],
    strength: &[f32],
    wide: usize,
    x: &mut [f32],
    scaled: &mut [f32],
) {
    for (i, x) in x.chunks_exact_mut(wide).enumerate() {
        let (done, next) = scaled.split_at_mut(i * wide);
        let factors = &negated[i * CHUNK..][..i];
        add_rows(factors.iter().copied().zip(done.chunks_exact(wide)), x);
        write_scaled(strength[i], x, &mut next[..wide]);
    }
}

/// Solves `x = u - Mᵀ b x`, and computes `b x`. `x` contains `u` and is overwritten.
pub(super) fn backward(
    set: InstructionSet,
    [count, wide]: [usize; 2],
    negated: &[f32],
    strength: &[f32],
    x: &mut [f32],
    scaled: &mut [f32],
) {
    for first in (0..count).step_by(STRIP).rev() {
        let after = first + STRIP;
        let (next, done) = scaled.split_at_mut(after * wide);
        let block = &mut x[first * wide..after * wide];
        if after < count {
            multiply(
                set,
                [STRIP, count - after, wide],
                Factor::columns(&negated[after * CHUNK + first..], CHUNK),
                (done, wide),
                (&mut *block, wide),
                Accumulate::Add,
            );
        }
        let negated = &negated[first * CHUNK + first..];
        let next = &mut next[first * wide..];
        substitute_back(negated, &strength[first..after], wide, block, next);
    }
}

dispatch! {
    /// [`backward`] within a block.
    fn substitute_back(
        negated: &[f32],
        strength: &[f32],
        wide: usize,
        x: &mut [f32],
        scaled: &mut [f32],
    ) by substitute_back_by;
}

#[inline(always)]
fn substitute_back_by(
    negated: &[f32],
    strength: &[f32],
    wide: usize,
    x: &mut [f32],
    scaled: &mut [f32],
) {
    for (i, x) in x.chunks_exact_mut(wide).enumerate().rev() {
        let (next, done) = scaled.split_at_mut((i + 1) * wide);
        let factors = (i + 1..STRIP).map(|row| negated[row * CHUNK + i]);
        add_rows(factors.zip(done.chunks_exact(wide)), x);
        write_scaled(strength[i], x, &mut next[i * wide..]);
    }
}

/// Elements of a row that are summed in registers.
const LANES: usize = 16;

/// `into += Σ factor · row`
#[inline(always)]
fn add_rows<'a>(rows: impl Iterator<Item = (f32, &'a [f32])> + Clone, into: &mut [f32]) {
    for (column, into) in into.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let mut sums = [0.0; LANES];
        for (factor, row) in rows.clone() {
            let row = &row.as_chunks::<LANES>().0[column];
            for lane in 0..LANES {
                sums[lane] += factor * row[lane];
            }
        }
        for lane in 0..LANES {
            into[lane] += sums[lane];
        }
    }
}

#[inline(always)]
fn write_scaled(factor: f32, row: &[f32], into: &mut [f32]) {
    for (into, x) in into.iter_mut().zip(row) {
        *into = factor * x;
    }
}
