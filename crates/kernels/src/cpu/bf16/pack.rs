//! Packing of rows into the tiles of a left or right operand.
//!
//! Rows and columns are padded with zeros to a multiple of [`BLOCK`]. Each function also returns the
//! bits of the largest absolute value of the rows, see [`is_finite`].

use std::arch::x86_64::*;

use burn::tensor::bf16;

use super::super::simd::transpose_16;
use super::{BLOCK, Layout};

/// Contiguous rows of `width` elements.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    elements: &'a [bf16],
    width: usize,
    count: usize,
}

impl<'a> Rows<'a> {
    /// The rows of a slice.
    ///
    /// # Panics
    ///
    /// If its length is not a multiple of the width.
    #[inline(always)]
    pub fn new(elements: &'a [bf16], width: usize) -> Self {
        assert!(
            width > 0 && elements.len().is_multiple_of(width),
            "rows of {width} elements, got {}",
            elements.len()
        );
        Self {
            elements,
            width,
            count: elements.len() / width,
        }
    }

    /// Up to 32 elements of a row from `column` on, and zeros; all zeros beyond the last row.
    ///
    /// # Safety
    ///
    /// AVX-512 F and BW are enabled.
    #[inline(always)]
    unsafe fn load(&self, row: usize, column: usize) -> __m512i {
        // SAFETY: the mask has only elements of the row.
        unsafe {
            if row >= self.count || column >= self.width {
                return _mm512_setzero_si512();
            }
            let left = self.width - column;
            let mask = if left >= BLOCK { !0 } else { (1 << left) - 1 };
            let from = self.elements.as_ptr().add(row * self.width + column);
            _mm512_maskz_loadu_epi16(mask, from.cast())
        }
    }
}

/// Whether the elements are finite, of which this is the largest absolute value.
pub fn is_finite(max_bits: u16) -> bool {
    max_bits < 0x7f80
}

/// The largest absolute value, as bits.
#[derive(Clone, Copy)]
struct MaxBits(__m512i);

impl MaxBits {
    #[inline(always)]
    unsafe fn new() -> Self {
        // SAFETY: as in `Rows::load`.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn update(&mut self, elements: __m512i) {
        // SAFETY: as in `Rows::load`.
        unsafe {
            let magnitude = _mm512_and_si512(elements, _mm512_set1_epi16(0x7fff));
            self.0 = _mm512_max_epu16(self.0, magnitude);
        }
    }

    #[inline(always)]
    unsafe fn get(self) -> u16 {
        let mut lanes = [0_u16; 32];
        // SAFETY: the array has 64 bytes.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), self.0) };
        let mut max = 0;
        for lane in lanes {
            max = lane.max(max);
        }
        max
    }
}

/// The rows as rows of a left operand.
///
/// # Safety
///
/// AVX-512 F and BW are enabled, and `to` is writable for the padded operand.
#[inline(always)]
pub unsafe fn left_of_rows(rows: Rows<'_>, layout: Layout, to: *mut bf16) -> u16 {
    // SAFETY: as promised by the caller.
    unsafe {
        let mut max = MaxBits::new();
        for row in 0..rows.count.next_multiple_of(BLOCK) {
            let to = to.add(row / 16 * layout.block + row % 16 * BLOCK);
            for step in 0..rows.width.div_ceil(BLOCK) {
                let elements = rows.load(row, step * BLOCK);
                max.update(elements);
                _mm512_storeu_si512(to.add(step * layout.step).cast(), elements);
            }
        }
        max.get()
    }
}

/// The rows as columns of a right operand; their elements are its inner dimension.
///
/// # Safety
///
/// As for [`left_of_rows`].
#[inline(always)]
pub unsafe fn right_of_columns(rows: Rows<'_>, layout: Layout, to: *mut bf16) -> u16 {
    // SAFETY: as promised by the caller.
    unsafe {
        let mut max = MaxBits::new();
        for first in (0..rows.count.next_multiple_of(BLOCK)).step_by(16) {
            for step in 0..rows.width.div_ceil(BLOCK) {
                let mut pairs = [_mm512_setzero_ps(); 16];
                for (i, pairs) in pairs.iter_mut().enumerate() {
                    let elements = rows.load(first + i, step * BLOCK);
                    max.update(elements);
                    *pairs = _mm512_castsi512_ps(elements);
                }
                // Pairs of adjacent elements are moved like `f32`.
                let to = to.add(first / 16 * layout.block + step * layout.step);
                for (i, pairs) in transpose_16(pairs).into_iter().enumerate() {
                    _mm512_storeu_ps(to.add(i * BLOCK).cast(), pairs);
                }
            }
        }
        max.get()
    }
}

/// The rows as rows of a right operand, whose inner dimension they are.
///
/// # Safety
///
/// As for [`left_of_rows`].
#[inline(always)]
pub unsafe fn right_of_rows(rows: Rows<'_>, layout: Layout, to: *mut bf16) -> u16 {
    // SAFETY: as promised by the caller.
    unsafe {
        let mut max = MaxBits::new();
        for step in 0..rows.count.div_ceil(BLOCK) {
            for column in (0..rows.width).step_by(BLOCK) {
                let to = to.add(column / 16 * layout.block + step * layout.step);
                for pair in 0..BLOCK / 2 {
                    let [low, high] = row_pair(rows, step * BLOCK + 2 * pair, column, &mut max);
                    let to = to.add(pair * BLOCK);
                    _mm512_storeu_si512(to.cast(), low);
                    _mm512_storeu_si512(to.add(layout.block).cast(), high);
                }
            }
        }
        max.get()
    }
}

/// The columns of the rows as rows of a left operand, that is, transposed: the rows are its inner
/// dimension.
///
/// # Safety
///
/// As for [`left_of_rows`].
#[inline(always)]
pub unsafe fn left_of_columns(rows: Rows<'_>, layout: Layout, to: *mut bf16) -> u16 {
    // SAFETY: as promised by the caller.
    unsafe {
        let mut max = MaxBits::new();
        for step in 0..rows.count.div_ceil(BLOCK) {
            for column in (0..rows.width).step_by(BLOCK) {
                let (mut low, mut high) = ([_mm512_setzero_ps(); 16], [_mm512_setzero_ps(); 16]);
                for (pair, (low, high)) in low.iter_mut().zip(&mut high).enumerate() {
                    let row = step * BLOCK + 2 * pair;
                    let pairs = row_pair(rows, row, column, &mut max);
                    *low = _mm512_castsi512_ps(pairs[0]);
                    *high = _mm512_castsi512_ps(pairs[1]);
                }
                for (half, pairs) in [low, high].into_iter().enumerate() {
                    let block = column / 16 + half;
                    let to = to.add(block * layout.block + step * layout.step);
                    for (i, pairs) in transpose_16(pairs).into_iter().enumerate() {
                        _mm512_storeu_ps(to.add(i * BLOCK).cast(), pairs);
                    }
                }
            }
        }
        max.get()
    }
}

/// Elements of `row` and the next one, interleaved: 16 columns from `column` on, and the next 16.
///
/// # Safety
///
/// AVX-512 F and BW are enabled.
#[inline(always)]
unsafe fn row_pair(rows: Rows<'_>, row: usize, column: usize, max: &mut MaxBits) -> [__m512i; 2] {
    // SAFETY: as promised by the caller; the array has 64 bytes.
    unsafe {
        let [a, b] = [rows.load(row, column), rows.load(row + 1, column)];
        max.update(a);
        max.update(b);
        let low = _mm512_loadu_si512(INTERLEAVE_LOW.as_ptr().cast());
        let high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
        [
            _mm512_permutex2var_epi16(a, low, b),
            _mm512_permutex2var_epi16(a, high, b),
        ]
    }
}

/// Element `i` of one register and of another, for `i` below 16.
static INTERLEAVE_LOW: [u16; 32] = {
    let mut indices = [0; 32];
    let mut i = 0;
    while i < 16 {
        indices[2 * i] = i as u16;
        indices[2 * i + 1] = 32 + i as u16;
        i += 1;
    }
    indices
};

/// The bits of the largest absolute value, see [`is_finite`].
///
/// # Safety
///
/// AVX-512 F and BW are enabled.
#[inline(always)]
pub unsafe fn max_bits(elements: &[bf16]) -> u16 {
    // SAFETY: as promised by the caller; masked loads stay within the slice.
    unsafe {
        let row = Rows::new(elements, elements.len().max(1));
        let mut max = MaxBits::new();
        for column in (0..elements.len()).step_by(BLOCK) {
            max.update(row.load(0, column));
        }
        max.get()
    }
}

/// Rounds `f32` to bf16, to nearest even.
///
/// # Safety
///
/// AVX-512 F, BW, VL and BF16 are enabled.
///
/// # Panics
///
/// If the lengths differ.
#[inline(always)]
pub unsafe fn round_to_bf16(from: &[f32], to: &mut [bf16]) {
    assert!(from.len() == to.len(), "{} != {}", from.len(), to.len());
    for first in (0..from.len()).step_by(16) {
        // SAFETY: the mask has only elements within both slices.
        unsafe {
            let left = from.len() - first;
            let mask = if left >= 16 { !0 } else { (1 << left) - 1 };
            let elements = _mm512_maskz_loadu_ps(mask, from.as_ptr().add(first));
            let rounded: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(elements));
            _mm256_mask_storeu_epi16(to.as_mut_ptr().add(first).cast(), mask, rounded);
        }
    }
}
