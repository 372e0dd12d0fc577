//! Products in parts on every CPU with AVX-512: tiles are multiplied by AMX, or by a plain loop.

use super::*;
use crate::cpu::bf16::{Bf16Product, Tiles};
use crate::random::mix;

/// Multiplies tiles by a plain loop.
#[derive(Debug, Clone, Copy)]
struct Emulated;

impl Bf16Product for Emulated {
    unsafe fn configure() {}

    unsafe fn release() {}

    unsafe fn product<const ADD: bool>(_: [usize; 3], _: Tiles, _: Tiles, _: *mut f32, _: usize) {
        unreachable!("blocks are multiplied");
    }
}

impl PartsProduct for Emulated {
    unsafe fn block(
        steps: usize,
        a: [*const bf16; 2],
        b: [*const bf16; 2],
        c: *mut f32,
        c_stride: usize,
        adds: bool,
    ) {
        let tile = |start: *const bf16, step: usize, part: usize| {
            let start = start.wrapping_add((step * PARTS + part) * TILE);
            // SAFETY: the panel has this tile.
            unsafe { std::slice::from_raw_parts(start, TILE) }
        };
        for row in 0..BLOCK {
            for column in 0..BLOCK {
                // SAFETY: the block is within the output.
                let sum = unsafe { &mut *c.add(row * c_stride + column) };
                if !adds {
                    *sum = 0.0;
                }
                for step in 0..steps {
                    for (i, j) in [(2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)] {
                        let left = tile(a[row / 16], step, i);
                        let right = tile(b[column / 16], step, j);
                        for inner in 0..BLOCK {
                            let left = left[row % 16 * BLOCK + inner].to_f32();
                            let pair = inner / 2 * BLOCK + column % 16 * 2 + inner % 2;
                            *sum += left * right[pair].to_f32();
                        }
                    }
                }
            }
        }
    }
}

fn random(count: usize, seed: u64) -> Vec<f32> {
    let element = |i: usize| (mix(seed ^ mix(i as u64)) >> 40) as f32 / (1 << 23) as f32 - 1.0;
    (0..count).map(element).collect()
}

/// The product by one of the kernels of this CPU; `None` if it is left to others.
fn product(multiply: Multiply, size: [usize; 3], a: Matrix<'_>, b: Matrix<'_>) -> Option<Vec<f32>> {
    let mut c = vec![MaybeUninit::new(f32::NAN); size[0] * size[2]];
    // SAFETY: the kernel is one of this CPU, and the elements are initialised.
    unsafe {
        let is_computed = multiply(size, a, b, &mut c);
        is_computed.then(|| c.iter().map(|element| element.assume_init()).collect())
    }
}

type Multiply = unsafe fn([usize; 3], Matrix<'_>, Matrix<'_>, &mut [MaybeUninit<f32>]) -> bool;

/// The kernels of this CPU. Without AVX-512 there are none.
fn kernels() -> Vec<(&'static str, Multiply)> {
    let has_avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    if !has_avx512 {
        println!("NOT run: packing needs AVX-512");
    }
    let has_amx = Bf16Set::detect() == Some(Bf16Set::Amx);
    let emulated = has_avx512.then_some(("emulated", multiply_with::<Emulated> as Multiply));
    let amx = has_amx.then_some(("amx", multiply as Multiply));
    emulated.into_iter().chain(amx).collect()
}

/// Incomplete blocks and steps in each dimension, and two ranges of the inner dimension.
const SIZES: [[usize; 3]; 6] = [
    [64, 64, 64],
    [65, 70, 97],
    [33, 100, 31],
    [160, 32, 200],
    [40, 513, 70],
    [70, 1030, 33],
];

/// The largest error relative to the sum of the magnitudes of the terms. Nearly all of it is the
/// rounding of six sums per term, up to 6,180 for an element; the `f32` kernels have about the same.
const TOLERANCE: f64 = 6e-7;

#[test]
fn products_have_the_precision_of_f32() {
    for (name, multiply) in kernels() {
        for size in SIZES {
            let [rows, inner, columns] = size;
            let (a, b) = (random(rows * inner, 1), random(inner * columns, 2));
            let transpose = |matrix: &[f32], columns: usize| {
                let rows = matrix.len() / columns;
                let element = |i: usize| matrix[i % rows * columns + i / rows];
                (0..matrix.len()).map(element).collect::<Vec<f32>>()
            };
            let (a_columns, b_columns) = (transpose(&a, inner), transpose(&b, columns));
            for (a_is_transposed, b_is_transposed) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let left = if a_is_transposed { &a_columns } else { &a };
                let right = if b_is_transposed { &b_columns } else { &b };
                let left = Matrix::new(left, [rows, inner], a_is_transposed);
                let right = Matrix::new(right, [inner, columns], b_is_transposed);
                let c = product(multiply, size, left, right).expect("ordinary elements");
                for (i, c) in c.iter().enumerate() {
                    let (row, column) = (i / columns, i % columns);
                    let terms = (0..inner).map(|k| {
                        f64::from(a[row * inner + k]) * f64::from(b[k * columns + column])
                    });
                    let (sum, magnitudes) = terms.fold((0.0, 0.0), |(sum, magnitudes), term| {
                        (sum + term, magnitudes + f64::abs(term))
                    });
                    let error = (f64::from(*c) - sum).abs() / magnitudes;
                    assert!(
                        error < TOLERANCE,
                        "{name} {size:?} {a_is_transposed} {b_is_transposed}: {c} at {i}, {sum}"
                    );
                }
            }
        }
    }
}

/// The parts are 1, 2^-9 and 2^-18, and all sums are exact: each of the six products contributes.
#[test]
fn six_products_are_computed() {
    let element = 1.0 + 2f32.powi(-9) + 2f32.powi(-18);
    let expected = 64.0 * (1.0 + 2.0 * 2f32.powi(-9) + 3.0 * 2f32.powi(-18));
    for (name, multiply) in kernels() {
        let elements = vec![element; 64 * 64];
        let matrix = Matrix::new(&elements, [64, 64], false);
        let c = product(multiply, [64; 3], matrix, matrix).expect("ordinary elements");
        assert!(
            c.iter().all(|c| *c == expected),
            "{name}: {}, {expected}",
            c[0]
        );
    }
}

/// With two parts the error would be 2^-17.
#[test]
fn every_digit_counts() {
    for (name, multiply) in kernels() {
        let size = [64, 64, 64];
        let identity: Vec<f32> = (0..64 * 64).map(|i| f32::from(i % 65 == 0)).collect();
        let elements: Vec<f32> = random(64 * 64, 3).iter().map(|x| x * 1e20).collect();
        for matrices in [[&identity, &elements], [&elements, &identity]] {
            let [left, right] = matrices.map(|matrix| Matrix::new(matrix, [64, 64], false));
            let c = product(multiply, size, left, right);
            assert_eq!(c.as_ref(), Some(&elements), "{name}");
        }
    }
}

#[test]
fn elements_without_parts_are_left_to_other_kernels() {
    for (name, multiply) in kernels() {
        let size = [64, 600, 64];
        for element in [f32::INFINITY, f32::NAN, -f32::MAX] {
            for position in [0, 38_399] {
                let mut a = random(64 * 600, 4);
                a[position] = element;
                let b = random(600 * 64, 5);
                let left = Matrix::new(&a, [64, 600], false);
                let right = Matrix::new(&b, [600, 64], false);
                let c = product(multiply, size, left, right);
                assert_eq!(c, None, "{name}: {element} at {position}");
            }
        }
    }
}

/// The products of the parts are infinite with both signs.
#[test]
fn products_that_overflow_are_left_to_other_kernels() {
    for (name, multiply) in kernels() {
        let large = vec![1.0e25 * (1.0 - 2f32.powi(-9)); 64 * 64];
        let small = vec![1.0e-25; 64 * 64];
        let [large, small] = [&large, &small].map(|x| Matrix::new(x, [64, 64], false));
        assert_eq!(product(multiply, [64; 3], large, large), None, "{name}");
        assert!(product(multiply, [64; 3], large, small).is_some(), "{name}");
    }
}
