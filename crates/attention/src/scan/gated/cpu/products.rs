//! Products of rows with decayed keys, `sign · x_i · (g_i / g_j) k_j` for `j <= i`, and their
//! gradients. Quotients are products of the decays in between, so that strong decays cost no precision.
//!
//! If a position has one decay, products are multiplied by a matrix of decays. Otherwise a decay is
//! part of each term. Strips of 16 rows are then multiplied with the keys before them: both are first
//! decayed to the start of the strip, by factors of at most 1. Products within a strip are computed
//! term by term.

use zoo_kernels::cpu::matmul::Accumulate;
use zoo_kernels::cpu::{InstructionSet, Simd, dispatch};

use super::rows::{NEGLIGIBLE, add_scaled, decays_from_start, decays_to_end, finish_scores, scale};
use super::{CHUNK, Widths};
use crate::scan::cpu::{
    Factor, STRIP, lower_products, lower_times, lower_transposed_times, multiply, transpose,
};

/// The keys of a chunk and their decays.
pub(super) struct Keys<'a> {
    pub(super) set: InstructionSet,
    pub(super) widths: Widths,
    /// Rows in use, in whole strips: those after the last position are zero.
    pub(super) count: usize,
    /// `[CHUNK, wide_head]`, normalised by a delta rule.
    pub(super) rows: &'a mut [f32],
    /// `[wide_head, CHUNK]`
    pub(super) columns: &'a mut [f32],
    /// `[CHUNK, wide_decays]`: the decay at each position.
    pub(super) decays: &'a mut [f32],
    /// `[CHUNK, CHUNK]` if a position has one decay.
    pub(super) matrix: &'a mut [f32],
}

/// What keys are multiplied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Queries, which attend to keys up to their own.
    Queries,
    /// Keys, which erase earlier ones: products are negated.
    Keys,
}

impl Side {
    fn sign(self) -> f32 {
        match self {
            Self::Queries => 1.0,
            Self::Keys => -1.0,
        }
    }

    fn is_strict(self) -> bool {
        self == Self::Keys
    }
}

/// The number of elements of a workspace.
pub(super) fn workspace_len(widths: &Widths) -> usize {
    match widths.wide_decays {
        1 => 0,
        wide => (2 * CHUNK + 3 * STRIP) * wide,
    }
}

impl Keys<'_> {
    /// Writes the products to the lower triangle of `scores`, and zeros above the diagonal.
    pub(super) fn products(
        &self,
        side: Side,
        x: &[f32],
        scores: &mut [f32],
        workspace: &mut [f32],
    ) {
        let Widths {
            d_head,
            wide_head: wide,
            wide_decays,
            ..
        } = self.widths;
        let (set, count) = (self.set, self.count);
        if wide_decays == 1 {
            let size = [count, d_head];
            lower_products::<CHUNK>(set, size, (x, wide), self.columns, scores);
            finish_scores(count, side.sign(), side.is_strict(), self.matrix, scores);
            return;
        }
        let mut strip = Strip::new(wide, workspace);
        for first in (0..count).step_by(STRIP) {
            if first > 0 {
                strip.decay(self, first, x);
                // The powers are no longer needed.
                let columns = &mut *strip.key_powers;
                let keys = (&*strip.keys, wide);
                transpose(set, [first, d_head], keys, (&mut *columns, CHUNK));
                multiply(
                    set,
                    [STRIP, d_head, first],
                    Factor::rows(strip.rows, wide),
                    (columns, CHUNK),
                    (&mut scores[first * CHUNK..], CHUNK),
                    Accumulate::Overwrite,
                );
            }
            let diagonal = Diagonal::new(self, first, x);
            diagonal_products(set, diagonal, &mut scores[first * CHUNK + first..]);
        }
        finish_scores(count, side.sign(), side.is_strict(), &[], scores);
    }

    /// Adds the gradients of `x` and of the keys. Those of the products are overwritten.
    pub(super) fn gradients(
        &self,
        side: Side,
        x: &[f32],
        d_scores: &mut [f32],
        [d_x, d_key]: [&mut [f32]; 2],
        workspace: &mut [f32],
    ) {
        let Widths {
            wide_head: wide,
            wide_decays,
            ..
        } = self.widths;
        let (set, count) = (self.set, self.count);
        finish_scores(count, side.sign(), side.is_strict(), self.matrix, d_scores);
        if wide_decays == 1 {
            let size = [count, wide];
            lower_times::<CHUNK>(set, size, d_scores, (self.rows, wide), (d_x, wide));
            lower_transposed_times::<CHUNK>(set, size, d_scores, (x, wide), (d_key, wide));
            return;
        }
        let mut strip = Strip::new(wide, workspace);
        for first in (0..count).step_by(STRIP) {
            let rows = first * wide..(first + STRIP) * wide;
            if first > 0 {
                strip.decay(self, first, x);
                let d_scores = &d_scores[first * CHUNK..];
                multiply(
                    set,
                    [STRIP, first, wide],
                    Factor::rows(d_scores, CHUNK),
                    (strip.keys, wide),
                    (&mut *strip.d_rows, wide),
                    Accumulate::Overwrite,
                );
                add_scaled(strip.row_powers, strip.d_rows, wide, &mut d_x[rows.clone()]);
                // Their gradients replace the keys.
                multiply(
                    set,
                    [first, STRIP, wide],
                    Factor::columns(d_scores, CHUNK),
                    (strip.rows, wide),
                    (&mut *strip.keys, wide),
                    Accumulate::Overwrite,
                );
                let len = first * wide;
                let (powers, d_keys) = (&strip.key_powers[..len], &strip.keys[..len]);
                add_scaled(powers, d_keys, wide, &mut d_key[..len]);
            }
            let diagonal = Diagonal::new(self, first, x);
            let d_scores = &d_scores[first * CHUNK + first..];
            let (d_x, d_key) = (&mut d_x[rows.clone()], &mut d_key[rows]);
            diagonal_gradients(set, diagonal, d_scores, d_x, d_key);
        }
    }
}

/// A strip of rows and the keys before it, decayed to the start of the strip.
struct Strip<'a> {
    row_powers: &'a mut [f32],
    rows: &'a mut [f32],
    d_rows: &'a mut [f32],
    key_powers: &'a mut [f32],
    keys: &'a mut [f32],
}

impl<'a> Strip<'a> {
    fn new(wide: usize, workspace: &'a mut [f32]) -> Self {
        let (strips, chunks) = workspace.split_at_mut(3 * STRIP * wide);
        let (row_powers, strips) = strips.split_at_mut(STRIP * wide);
        let (rows, d_rows) = strips.split_at_mut(STRIP * wide);
        let (key_powers, keys) = chunks.split_at_mut(CHUNK * wide);
        Self {
            row_powers,
            rows,
            d_rows,
            key_powers,
            keys,
        }
    }

    fn decay(&mut self, keys: &Keys<'_>, first: usize, x: &[f32]) {
        let wide = keys.widths.wide_head;
        let start = first * wide;
        let rows = start..start + STRIP * wide;
        // The first row of the strip is not decayed.
        let (one, after) = self.row_powers.split_at_mut(wide);
        one.fill(1.0);
        decays_from_start(&keys.decays[start + wide..rows.end], wide, after);
        scale(self.row_powers, &x[rows], wide, self.rows);
        let key_powers = &mut self.key_powers[..start];
        let last = &keys.decays[start..start + wide];
        decays_to_end(&keys.decays[..start], wide, last, key_powers);
        scale(
            key_powers,
            &keys.rows[..start],
            wide,
            &mut self.keys[..start],
        );
    }
}

/// Rows and keys of a strip: `[STRIP, wide]`.
#[derive(Clone, Copy)]
struct Diagonal<'a> {
    wide: usize,
    x: &'a [f32],
    key: &'a [f32],
    decays: &'a [f32],
}

impl<'a> Diagonal<'a> {
    fn new(keys: &'a Keys<'_>, first: usize, x: &'a [f32]) -> Self {
        let wide = keys.widths.wide_head;
        let rows = first * wide..(first + STRIP) * wide;
        Self {
            wide,
            x: &x[rows.clone()],
            key: &keys.rows[rows.clone()],
            decays: &keys.decays[rows],
        }
    }
}

fn diagonal_products(set: InstructionSet, strip: Diagonal<'_>, scores: &mut [f32]) {
    assert!(scores.len() >= (STRIP - 1) * CHUNK + STRIP);
    // SAFETY: the processor supports the set; a `Diagonal` has whole strips of whole registers.
    unsafe { diagonal_products_kernel(set, strip, scores) }
}

dispatch! {
    unsafe fn diagonal_products_kernel(strip: Diagonal<'_>, scores: &mut [f32])
        by diagonal_products_by;
}

/// # Safety
///
/// As for [`diagonal_products`].
#[inline(always)]
unsafe fn diagonal_products_by<S: Simd>(strip: Diagonal<'_>, scores: &mut [f32]) {
    let [x, key, decays] = [strip.x, strip.key, strip.decays].map(<[f32]>::as_ptr);
    let wide = strip.wide;
    // The terms of each score, in lanes that are summed last.
    let mut terms = [0.0f32; STRIP * STRIP * MAX_LANES];
    let terms = terms.as_mut_ptr();
    // SAFETY: rows and columns are within the strip; the lanes divide the width and the strip.
    unsafe {
        for column in (0..wide).step_by(S::LANES) {
            for j in 0..STRIP {
                let key = S::load(key.add(j * wide + column));
                let mut power = S::splat(1.0);
                for i in j..STRIP {
                    let row = i * wide + column;
                    if i > j {
                        power = next_power::<S>(power, decays.add(row));
                    }
                    let term = terms.add((i * STRIP + j) * S::LANES);
                    let product = S::mul(S::load(x.add(row)), S::mul(power, key));
                    S::store(term, S::add(S::load(term), product));
                }
            }
        }
        for i in 0..STRIP {
            for j in (0..STRIP).step_by(S::LANES) {
                let sums = S::row_sums(terms.add((i * STRIP + j) * S::LANES));
                S::store(scores.as_mut_ptr().add(i * CHUNK + j), sums);
            }
        }
    }
}

/// The lanes of the widest vector.
const MAX_LANES: usize = 16;

/// A product of decays, and one more; zero if it is negligible.
///
/// # Safety
///
/// The instructions of `S` are enabled, and the decays of a vector can be read.
#[inline(always)]
unsafe fn next_power<S: Simd>(power: S::Vector, decays: *const f32) -> S::Vector {
    // SAFETY: as promised by the caller.
    unsafe {
        let power = S::mul(power, S::load(decays));
        let is_negligible = S::gt(S::splat(NEGLIGIBLE), power);
        S::select(is_negligible, S::splat(0.0), power)
    }
}

fn diagonal_gradients(
    set: InstructionSet,
    strip: Diagonal<'_>,
    d_scores: &[f32],
    d_x: &mut [f32],
    d_key: &mut [f32],
) {
    let len = STRIP * strip.wide;
    assert!(d_scores.len() >= (STRIP - 1) * CHUNK + STRIP);
    assert!(d_x.len() == len && d_key.len() == len);
    // SAFETY: the processor supports the set; the sizes are checked above.
    unsafe { diagonal_gradients_kernel(set, strip, d_scores, d_x, d_key) }
}

dispatch! {
    unsafe fn diagonal_gradients_kernel(
        strip: Diagonal<'_>,
        d_scores: &[f32],
        d_x: &mut [f32],
        d_key: &mut [f32],
    ) by diagonal_gradients_by;
}

/// # Safety
///
/// As for [`diagonal_gradients`].
#[inline(always)]
unsafe fn diagonal_gradients_by<S: Simd>(
    strip: Diagonal<'_>,
    d_scores: &[f32],
    d_x: &mut [f32],
    d_key: &mut [f32],
) {
    let [x, key, decays] = [strip.x, strip.key, strip.decays].map(<[f32]>::as_ptr);
    let [d_x, d_key] = [d_x, d_key].map(<[f32]>::as_mut_ptr);
    let wide = strip.wide;
    // SAFETY: rows and columns are within the strip; the lanes divide the width.
    unsafe {
        for column in (0..wide).step_by(S::LANES) {
            for j in 0..STRIP {
                let other = j * wide + column;
                let key = S::load(key.add(other));
                let mut sum = S::load(d_key.add(other));
                let mut power = S::splat(1.0);
                for i in j..STRIP {
                    let row = i * wide + column;
                    if i > j {
                        power = next_power::<S>(power, decays.add(row));
                    }
                    let factor = S::mul(S::splat(d_scores[i * CHUNK + j]), power);
                    sum = S::fma(factor, S::load(x.add(row)), sum);
                    let d_x = d_x.add(row);
                    S::store(d_x, S::fma(factor, key, S::load(d_x)));
                }
                S::store(d_key.add(other), sum);
            }
        }
    }
}
