//! Elements in `f32` as the sums of operands in `bf16`.
//!
//! `bf16` has the exponents of `f32` and 8 of its 24 significant bits: an element is the sum of three of them.
//! Of the nine products of the parts of two elements the six largest are computed; the others are below
//! the rounding error.

use cubecl::prelude::*;

use super::layout::VECTOR;
use super::rows::Words;

/// The exponent of infinity and NaN in `f32`.
pub(super) const FLOAT_EXPONENT: u32 = 0x7f80_0000;

/// Whether the bits are those of infinity or NaN.
#[cube]
pub(super) fn is_non_finite(bits: u32) -> bool {
    bits & FLOAT_EXPONENT == FLOAT_EXPONENT
}

/// Magnitudes from this on may be rounded to infinity.
const MAX_ORDINARY: u32 = 0x7f00_0000;

/// Whether none of eight elements is infinite, NaN, or among the largest numbers.
#[cube]
pub(super) fn are_ordinary(elements: &mut Array<f32>) -> bool {
    let mut largest = 0u32;
    #[unroll]
    for i in 0..VECTOR {
        largest = max(largest, u32::reinterpret(elements[i]) & 0x7fff_ffffu32);
    }
    largest < MAX_ORDINARY
}

/// Rounds eight elements to `bf16`, and subtracts that.
///
/// Truncated numbers would all be too small, and so would their sums.
#[cube]
pub(super) fn take_part(elements: &mut Array<f32>, are_ordinary: bool) -> Words {
    let mut words = Words::new(0u32);
    if are_ordinary {
        #[unroll]
        for i in 0..comptime!(VECTOR / 2) {
            let low = take_ordinary(elements, comptime!(2 * i));
            let high = take_ordinary(elements, comptime!(2 * i + 1));
            words.insert(i, (low >> 16u32) | high);
        }
    } else {
        #[unroll]
        for i in 0..comptime!(VECTOR / 2) {
            let low = take_any(elements, comptime!(2 * i));
            let high = take_any(elements, comptime!(2 * i + 1));
            words.insert(i, (low >> 16u32) | high);
        }
    }
    words
}

/// The upper half of the bits of an element after rounding, which is subtracted from it.
#[cube]
fn take_ordinary(elements: &mut Array<f32>, #[comptime] index: usize) -> u32 {
    let rounded = (u32::reinterpret(elements[index]) + 0x8000u32) & 0xffff_0000u32;
    elements[index] -= f32::reinterpret(rounded);
    rounded
}

/// Likewise of an element that may not be ordinary. Nothing remains of infinity and NaN.
#[cube]
fn take_any(elements: &mut Array<f32>, #[comptime] index: usize) -> u32 {
    let bits = u32::reinterpret(elements[index]);
    let up = (bits + 0x8000u32) & 0xffff_0000u32;
    let down = bits & 0xffff_0000u32;
    // The largest numbers would be rounded to infinity, and the payload of NaN could overflow.
    let rounded = select(is_non_finite(up) || is_non_finite(bits), down, up);
    // NaN whose payload is in the lower half.
    let is_nan = is_non_finite(bits) && (bits & 0x007f_ffffu32) != 0u32;
    let rounded = select(is_nan, rounded | 0x0040_0000u32, rounded);
    let rest = elements[index] - f32::reinterpret(rounded);
    elements[index] = select(is_non_finite(bits), 0.0f32, rest);
    rounded
}
