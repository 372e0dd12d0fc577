//! The same products with AVX-512 BF16.

use std::arch::x86_64::*;

use super::{BLOCK, Bf16Product, TILE, Tiles};

/// Products of pairs of bf16 in vectors.
#[derive(Debug, Clone, Copy)]
pub struct Avx512Bf16;

/// Rows of the output that are computed at a time: eight by two accumulators.
const ROWS: usize = 8;

impl Bf16Product for Avx512Bf16 {
    #[inline(always)]
    unsafe fn configure() {}

    #[inline(always)]
    unsafe fn release() {}

    #[inline(always)]
    unsafe fn product<const ADD: bool>(
        [rows, inner, columns]: [usize; 3],
        a: Tiles,
        b: Tiles,
        c: *mut f32,
        c_stride: usize,
    ) {
        for row in (0..rows).step_by(ROWS) {
            for column in (0..columns).step_by(BLOCK) {
                // SAFETY: the caller enabled the instructions; all accesses are within the sizes it
                // promised.
                unsafe {
                    let a_rows = a.start.add(row / 16 * a.layout.block + row % 16 * BLOCK);
                    let b_columns = b.start.add(column / 16 * b.layout.block);
                    let c_block = c.add(row * c_stride + column);
                    let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
                    for step in 0..inner / BLOCK {
                        let a_tile = a_rows.add(step * a.layout.step);
                        let b_tile = b_columns.add(step * b.layout.step);
                        for pair in 0..BLOCK / 2 {
                            let line = b_tile.add(pair * BLOCK);
                            let b_pairs = [
                                pairs(_mm512_loadu_si512(line.cast())),
                                pairs(_mm512_loadu_si512(line.add(b.layout.block).cast())),
                            ];
                            for (i, sums) in sums.iter_mut().enumerate() {
                                let a_pair = a_tile.add(i * BLOCK + 2 * pair);
                                let a_pair = a_pair.cast::<i32>().read_unaligned();
                                let a_pair = pairs(_mm512_set1_epi32(a_pair));
                                sums[0] = _mm512_dpbf16_ps(sums[0], a_pair, b_pairs[0]);
                                sums[1] = _mm512_dpbf16_ps(sums[1], a_pair, b_pairs[1]);
                            }
                        }
                    }
                    for (i, sums) in sums.iter().enumerate() {
                        for (half, sum) in sums.iter().enumerate() {
                            let to = c_block.add(i * c_stride + half * BLOCK / 2);
                            let sum = if ADD {
                                _mm512_add_ps(_mm512_loadu_ps(to), *sum)
                            } else {
                                *sum
                            };
                            _mm512_storeu_ps(to, sum);
                        }
                    }
                }
            }
        }
    }
}

/// Pairs of bf16 as the type of the intrinsics.
#[inline(always)]
unsafe fn pairs(bits: __m512i) -> __m512bh {
    // SAFETY: both types are 64 bytes without invalid bit patterns.
    unsafe { std::mem::transmute(bits) }
}

const _: () = assert!(BLOCK.is_multiple_of(ROWS) && TILE == 16 * BLOCK);
