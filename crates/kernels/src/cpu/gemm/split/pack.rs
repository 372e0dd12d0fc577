//! Packing of `f32` operands into tiles of their parts.

use std::arch::x86_64::*;
use std::ops::Range;

use burn::tensor::bf16;

use super::PARTS;
use crate::cpu::bf16::{BLOCK, TILE};
use crate::cpu::gemm::Matrix;
use crate::cpu::simd::transpose_16;

/// An operand of a product, with an *outer* dimension, its rows (left) or columns (right), and the inner
/// one.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    elements: &'a [f32],
    /// Outer and inner.
    size: [usize; 2],
    /// Distance of outer elements if the inner ones are contiguous, else the reverse.
    stride: usize,
    inner_is_contiguous: bool,
    is_left: bool,
}

impl<'a> Operand<'a> {
    pub(super) fn rows(matrix: Matrix<'a>, [rows, inner]: [usize; 2]) -> Self {
        Self {
            elements: matrix.elements,
            size: [rows, inner],
            stride: matrix.stride,
            inner_is_contiguous: !matrix.is_transposed,
            is_left: true,
        }
    }

    pub(super) fn columns(matrix: Matrix<'a>, [inner, columns]: [usize; 2]) -> Self {
        Self {
            elements: matrix.elements,
            size: [columns, inner],
            stride: matrix.stride,
            inner_is_contiguous: matrix.is_transposed,
            is_left: false,
        }
    }

    /// 16 elements in the order of memory: of line `line` from `first` on, zeros from `end` on and
    /// beyond `lines`.
    ///
    /// # Safety
    ///
    /// AVX-512 F is enabled.
    #[inline(always)]
    unsafe fn load(&self, [line, lines]: [usize; 2], first: usize, end: usize) -> __m512 {
        // SAFETY: the mask has only elements of the line.
        unsafe {
            if line >= lines || first >= end {
                return _mm512_setzero_ps();
            }
            let left = end - first;
            let mask = if left >= 16 { !0 } else { (1 << left) - 1 };
            let start = line * self.stride + first;
            debug_assert!(start + left.min(16) <= self.elements.len());
            _mm512_maskz_loadu_ps(mask, self.elements.as_ptr().add(start))
        }
    }
}

/// The bits of the largest magnitude.
#[derive(Clone, Copy)]
struct Largest(__m512i);

impl Largest {
    #[inline(always)]
    unsafe fn update(&mut self, elements: __m512) {
        // SAFETY: as for `Operand::load`.
        unsafe {
            let magnitude =
                _mm512_and_si512(_mm512_castps_si512(elements), _mm512_set1_epi32(i32::MAX));
            self.0 = _mm512_max_epu32(self.0, magnitude);
        }
    }
}

/// The bits of 16 elements rounded to bf16, in the upper halves.
#[inline(always)]
unsafe fn round(elements: __m512) -> __m512i {
    // SAFETY: as for `Operand::load`.
    unsafe {
        let half = _mm512_add_epi32(_mm512_castps_si512(elements), _mm512_set1_epi32(0x8000));
        _mm512_and_si512(half, _mm512_set1_epi32(0xffff_0000_u32 as i32))
    }
}

/// The parts of two vectors, each combined to one vector of bf16.
#[inline(always)]
unsafe fn parts(
    [mut first, mut second]: [__m512; 2],
    combine: impl Fn(__m512i, __m512i) -> __m512i,
) -> [__m512i; PARTS] {
    // SAFETY: as for `Operand::load`.
    unsafe {
        let mut parts = [_mm512_setzero_si512(); PARTS];
        for part in &mut parts {
            let [a, b] = [round(first), round(second)];
            *part = combine(a, b);
            first = _mm512_sub_ps(first, _mm512_castsi512_ps(a));
            second = _mm512_sub_ps(second, _mm512_castsi512_ps(b));
        }
        parts
    }
}

/// The upper halves of the elements of two vectors.
static UPPER_HALVES: [u16; 32] = {
    let mut indices = [0; 32];
    let mut i = 0;
    while i < 32 {
        indices[i] = 2 * i as u16 + 1;
        i += 1;
    }
    indices
};

/// Packs 16 rows or columns, from `outer` on, of a range of the inner dimension: for each 32 inner
/// elements the tiles of their parts, padded with zeros. Returns the bits of the largest magnitude.
///
/// # Safety
///
/// The CPU has AVX-512 F, BW, DQ and VL, and the tiles are writable at `to`, which is aligned to 64
/// bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn pack_panel(
    operand: &Operand<'_>,
    outer: usize,
    inner: Range<usize>,
    to: *mut bf16,
) -> u32 {
    let [outer_count, _] = operand.size;
    // SAFETY: as promised by the caller.
    unsafe {
        let mut largest = Largest(_mm512_setzero_si512());
        let upper = _mm512_loadu_si512(UPPER_HALVES.as_ptr().cast());
        for (step, first) in inner.clone().step_by(BLOCK).enumerate() {
            let to = to.add(step * PARTS * TILE);
            // Rows of tiles: consecutive inner elements, or pairs of them, of which the first is in the
            // lower half.
            let mut tiles = [[_mm512_setzero_si512(); 16]; PARTS];
            for i in 0..16 {
                let (vectors, parts) = if operand.inner_is_contiguous {
                    let line = [outer + i, outer_count];
                    let vectors = [0, 16].map(|j| operand.load(line, first + j, inner.end));
                    let combine = |a, b| _mm512_permutex2var_epi16(a, upper, b);
                    (vectors, parts(vectors, combine))
                } else {
                    let row = first + 2 * i;
                    let vectors = [row, row + 1]
                        .map(|row| operand.load([row, inner.end], outer, outer_count));
                    let combine = |a, b| _mm512_or_si512(_mm512_srli_epi32::<16>(a), b);
                    (vectors, parts(vectors, combine))
                };
                for vector in vectors {
                    largest.update(vector);
                }
                for (tile, part) in tiles.iter_mut().zip(parts) {
                    tile[i] = part;
                }
            }
            for (part, tile) in tiles.into_iter().enumerate() {
                // A left tile has a row for each outer element, a right tile for each pair of inner ones.
                let tile = if operand.is_left == operand.inner_is_contiguous {
                    tile
                } else {
                    // Pairs are moved like `f32`.
                    transpose_16(tile.map(|row| _mm512_castsi512_ps(row)))
                        .map(|row| _mm512_castps_si512(row))
                };
                for (i, row) in tile.into_iter().enumerate() {
                    _mm512_store_si512(to.add(part * TILE + i * BLOCK).cast(), row);
                }
            }
        }
        _mm512_reduce_max_epu32(largest.0)
    }
}
