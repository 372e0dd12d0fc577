//! Elements in `f32` as the sums of operands in `bf16`.
//!
//! `bf16` has the exponents of `f32` and a third of its digits: three numbers hold an element exactly.
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

/// Rounds eight elements to `bf16`, and subtracts that.
///
/// Truncated numbers would all be too small, and so would their sums.
#[cube]
pub(super) fn take_part(elements: &mut Array<f32>) -> Words {
    let mut words = Words::new(0u32);
    #[unroll]
    for i in 0..comptime!(VECTOR / 2) {
        let low = take_bits(elements, comptime!(2 * i));
        let high = take_bits(elements, comptime!(2 * i + 1));
        words.insert(i, (low >> 16u32) | high);
    }
    words
}

/// The upper half of the bits of an element after rounding, which is subtracted from it. Nothing
/// remains of infinity and NaN.
#[cube]
fn take_bits(elements: &mut Array<f32>, #[comptime] index: usize) -> u32 {
    let bits = u32::reinterpret(elements[index]);
    let up = (bits + 0x7fffu32 + ((bits >> 16u32) & 1u32)) & 0xffff_0000u32;
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
