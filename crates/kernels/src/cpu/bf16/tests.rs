//! Packed products against sums in `f64`, on every instruction set of this CPU.

use std::mem::MaybeUninit;

use super::pack::{
    Rows, is_finite, left_of_columns, left_of_rows, max_bits, right_of_columns, right_of_rows,
    round_to_bf16,
};
use super::*;

/// Small integers over powers of two, so that bf16 holds them exactly.
fn random_values(count: usize, mut seed: u64) -> Vec<bf16> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as i32 % 128
    };
    (0..count)
        .map(|_| bf16::from_f32(next() as f32 / 64.0))
        .collect()
}

fn padded(size: usize) -> usize {
    size.next_multiple_of(BLOCK)
}

fn elements(memory: &mut PackedMemory) -> *mut bf16 {
    memory.as_mut_ptr().cast()
}

/// A packed operand, and where its tiles are.
struct Operand {
    memory: PackedMemory,
    layout: Layout,
}

impl Operand {
    fn tiles(&self) -> Tiles {
        self.layout.tiles(self.memory.as_ptr().cast())
    }
}

type Pack = unsafe fn(Rows<'_>, Layout, *mut bf16) -> u16;

/// Packs rows whose outer dimension is `outer` and whose inner dimension is `inner`, into memory that is
/// larger by a tile, whose content must not change.
unsafe fn operand(
    pack: Pack,
    rows: Rows<'_>,
    [outer, inner]: [usize; 2],
    is_inner_first: bool,
) -> Operand {
    let layout = match is_inner_first {
        true => Layout::inner_first(inner),
        false => Layout::outer_first(outer),
    };
    let tiles = padded(outer) / 16 * padded(inner) / BLOCK;
    let mut memory = packed_memory(tiles + 1);
    let canary = Line([bf16::from_f32(7.0); BLOCK]);
    memory.fill(MaybeUninit::new(canary));
    // SAFETY: the caller enabled the instructions; the memory has the size of the operand.
    unsafe { pack(rows, layout, elements(&mut memory)) };
    for line in &memory[tiles * TILE_LINES..] {
        // SAFETY: initialised above.
        assert_eq!(unsafe { line.assume_init() }.0, canary.0);
    }
    Operand { memory, layout }
}

/// Sizes that are no multiple of anything, and those of whole tiles and blocks.
const SIZES: [[usize; 3]; 6] = [
    [1, 1, 1],
    [16, 32, 16],
    [33, 31, 17],
    [64, 64, 96],
    [5, 100, 70],
    [96, 33, 40],
];

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn check_products<P: Bf16Product>() {
    for [rows, inner, columns] in SIZES {
        for form in 0..8 {
            let (a, b) = (
                random_values(rows * inner, 1),
                random_values(inner * columns, 2),
            );
            let transpose = |values: &[bf16], [rows, columns]: [usize; 2]| -> Vec<bf16> {
                let element = |i: usize| values[i % rows * columns + i / rows];
                (0..rows * columns).map(element).collect()
            };
            let (a_t, b_t) = (
                transpose(&a, [rows, inner]),
                transpose(&b, [inner, columns]),
            );
            let is_inner_first = form & 1 == 0;
            // SAFETY: the test enables the instructions.
            let (a_tiles, b_tiles) = unsafe {
                let a_size = [rows, inner];
                let a_tiles = match form & 2 {
                    0 => operand(left_of_rows, Rows::new(&a, inner), a_size, is_inner_first),
                    _ => operand(
                        left_of_columns,
                        Rows::new(&a_t, rows),
                        a_size,
                        is_inner_first,
                    ),
                };
                let b_size = [columns, inner];
                let b_tiles = match form & 4 {
                    0 => operand(
                        right_of_rows,
                        Rows::new(&b, columns),
                        b_size,
                        is_inner_first,
                    ),
                    _ => operand(
                        right_of_columns,
                        Rows::new(&b_t, inner),
                        b_size,
                        is_inner_first,
                    ),
                };
                (a_tiles, b_tiles)
            };
            let stride = padded(columns) + 3;
            let mut c = vec![0.5_f32; padded(rows) * stride];
            let size = [padded(rows), padded(inner), padded(columns)];
            // SAFETY: the test enables the instructions; the operands have these sizes.
            unsafe {
                let _state = TileState::<P>::new();
                let (a, b, c) = (a_tiles.tiles(), b_tiles.tiles(), c.as_mut_ptr());
                P::product::<false>(size, a, b, c, stride);
                P::product::<true>(size, a, b, c, stride);
            }
            for (row, c) in c.chunks_exact(stride).enumerate() {
                for (column, &got) in c.iter().enumerate() {
                    let is_inside = row < rows && column < columns;
                    let terms = (0..inner).filter(|_| is_inside);
                    let term =
                        |k: usize| a[row * inner + k].to_f64() * b[k * columns + column].to_f64();
                    let expected = match column < padded(columns) {
                        true => 2.0 * terms.map(term).sum::<f64>(),
                        false => 0.5,
                    };
                    // Exact: the terms are multiples of 2^-12, below 2^12 together.
                    assert_eq!(f64::from(got), expected, "{size:?} {form} {row} {column}");
                }
            }
        }
    }
}

#[test]
fn products_of_all_forms_match_f64() {
    for set in Bf16Set::available() {
        // SAFETY: the CPU supports it.
        unsafe {
            match set {
                Bf16Set::Amx => check_products::<Amx>(),
                Bf16Set::Avx512 => check_products::<Avx512Bf16>(),
            }
        }
    }
}

/// A sum of products that `f32` rounds: the error is that of `f32`, not of bf16.
#[test]
fn sums_are_accumulated_in_f32() {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
    unsafe fn dot<P: Bf16Product>(a: &[bf16], b: &[bf16]) -> f32 {
        let size = [1, a.len()];
        let mut c = [0_f32; BLOCK * BLOCK];
        // SAFETY: the test enables the instructions; the operands have these sizes.
        unsafe {
            let a = operand(left_of_rows, Rows::new(a, a.len()), size, true);
            let b = operand(right_of_columns, Rows::new(b, b.len()), size, true);
            let _state = TileState::<P>::new();
            let size = [BLOCK, padded(size[1]), BLOCK];
            P::product::<false>(size, a.tiles(), b.tiles(), c.as_mut_ptr(), BLOCK);
        }
        c[0]
    }
    let third: Vec<bf16> = (0..4096)
        .map(|i| bf16::from_f32(1.0 / (3 + i % 7) as f32))
        .collect();
    let exact: f64 = third.iter().map(|x| x.to_f64() * x.to_f64()).sum();
    for set in Bf16Set::available() {
        // SAFETY: the CPU supports it.
        let got = unsafe {
            match set {
                Bf16Set::Amx => dot::<Amx>(&third, &third),
                Bf16Set::Avx512 => dot::<Avx512Bf16>(&third, &third),
            }
        };
        let error = (f64::from(got) - exact).abs() / exact;
        assert!(error < 1e-5, "{set:?}: {error:e}");
    }
}

#[test]
fn largest_values_are_found() {
    // They need AVX-512 only, which all sets have.
    let counts = Bf16Set::available()
        .into_iter()
        .take(1)
        .flat_map(|_| [1, 31, 32, 33, 100]);
    for count in counts {
        for position in 0..count {
            for special in [bf16::NAN, bf16::INFINITY, bf16::NEG_INFINITY] {
                let mut values = random_values(count, 3);
                // SAFETY: the CPU has AVX-512.
                assert!(is_finite(unsafe { max_bits(&values) }));
                values[position] = special;
                // SAFETY: as above.
                let max = unsafe { max_bits(&values) };
                assert!(!is_finite(max), "{count} {position}");
                // SAFETY: as above.
                unsafe {
                    let rows = Rows::new(&values, count);
                    let mut memory = packed_memory(2 * count.div_ceil(BLOCK));
                    let to = elements(&mut memory);
                    let layout = Layout::inner_first(count);
                    assert!(!is_finite(left_of_rows(rows, layout, to)));
                    assert!(!is_finite(right_of_columns(rows, layout, to)));
                    let layout = Layout::outer_first(count);
                    assert!(!is_finite(left_of_columns(rows, layout, to)));
                    assert!(!is_finite(right_of_rows(rows, layout, to)));
                }
            }
        }
    }
}

#[test]
fn rounding_is_to_nearest_even() {
    let counts = Bf16Set::available()
        .into_iter()
        .take(1)
        .flat_map(|_| [0, 1, 15, 16, 37]);
    for count in counts {
        let values: Vec<f32> = (0..count).map(|i| 1.0 + i as f32 / 512.0).collect();
        let mut rounded = vec![bf16::ZERO; count];
        // SAFETY: the CPU has AVX-512 BF16.
        unsafe { round_to_bf16(&values, &mut rounded) };
        let expected: Vec<bf16> = values.iter().map(|x| bf16::from_f32(*x)).collect();
        assert_eq!(rounded, expected);
    }
}

#[test]
fn zeros_are_zeros() {
    assert_eq!(zeros(5), [bf16::ZERO; 5]);
    assert_eq!(zeros(0), []);
}
