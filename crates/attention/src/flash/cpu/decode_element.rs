//! The dtypes that the [decoding kernel](super::decode) reads, and the order in which their elements are
//! loaded: a vector of bf16 is widened to two vectors, of the elements of even and of odd index.

use burn::tensor::bf16;
use zoo_kernels::cpu::{Float, InstructionSet, Simd, dispatch};

use super::call::Call;
use super::decode::{Keys, forward_part};

/// Elements of keys and values.
pub(super) trait DecodeElement: Float + Sync {
    /// All queries of a key and value head over some of its keys.
    ///
    /// # Safety
    ///
    /// The processor supports the instruction set, and the arguments are valid for the kernel.
    unsafe fn forward_partial(
        set: InstructionSet,
        call: &Call<'_, Self>,
        kv_head: usize,
        tiles: &[Keys],
        partial: &mut [f32],
    );
}

/// Implements [`DecodeElement`], with a function for each instruction set.
macro_rules! impl_decode_element {
    ($element:ty, $dispatched:ident, $kernel:ident) => {
        dispatch! {
            unsafe fn $dispatched(
                call: &Call<'_, $element>,
                kv_head: usize,
                tiles: &[Keys],
                partial: &mut [f32],
            ) by $kernel;
        }

        /// # Safety
        ///
        /// The instructions of `S` are enabled.
        #[inline(always)]
        unsafe fn $kernel<S: Simd>(
            call: &Call<'_, $element>,
            kv_head: usize,
            tiles: &[Keys],
            partial: &mut [f32],
        ) {
            // SAFETY: as promised by the caller.
            unsafe { forward_part::<S, $element>(call, kv_head, tiles, partial) };
        }

        impl DecodeElement for $element {
            unsafe fn forward_partial(
                set: InstructionSet,
                call: &Call<'_, Self>,
                kv_head: usize,
                tiles: &[Keys],
                partial: &mut [f32],
            ) {
                // SAFETY: as promised by the caller.
                unsafe { $dispatched(set, call, kv_head, tiles, partial) };
            }
        }
    };
}

impl_decode_element!(f32, f32_partial, f32_part);
impl_decode_element!(bf16, bf16_partial, bf16_part);

/// Reorders elements as [`Float::load_pair`] does.
#[inline(always)]
pub(super) fn to_pair_order<S: Simd, T: Float>(elements: &mut [f32]) {
    let mut ordered = [0.0; 2 * MAX_LANES];
    for pair in elements.chunks_exact_mut(2 * S::LANES) {
        for (i, into) in ordered.iter_mut().enumerate().take(2 * S::LANES) {
            *into = pair[T::pair_index(S::LANES, i / S::LANES, i % S::LANES)];
        }
        pair.copy_from_slice(&ordered[..2 * S::LANES]);
    }
}

/// The inverse of [`to_pair_order`].
#[inline(always)]
pub(super) fn from_pair_order<S: Simd, T: Float>(elements: &mut [f32]) {
    let mut ordered = [0.0; 2 * MAX_LANES];
    for pair in elements.chunks_exact_mut(2 * S::LANES) {
        for (i, from) in pair.iter().enumerate() {
            ordered[T::pair_index(S::LANES, i / S::LANES, i % S::LANES)] = *from;
        }
        pair.copy_from_slice(&ordered[..2 * S::LANES]);
    }
}

/// The lanes of the widest vector.
const MAX_LANES: usize = 16;

/// The columns of values that are loaded in pairs.
#[inline(always)]
pub(super) fn paired_columns<S: Simd>(d_value: usize) -> usize {
    match S::TILE_VECTORS {
        1 => 0,
        vectors => d_value / (vectors * S::LANES) * vectors * S::LANES,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::AttentionShape;
    #[cfg(unix)]
    use crate::cpu::guarded::{Edge, Guarded};
    use crate::flash::broadcast::Broadcast;
    use crate::flash::call::Program;
    use crate::flash::cpu::call::{Heads, STATS};
    use crate::flash::cpu::kernel::{KEYS, QUERIES};
    use crate::pattern::rule::Rule;
    use crate::pattern::{Examples, cached_plan};

    /// Four queries of each of two heads that share keys.
    fn shape([d_head, d_value]: [usize; 2]) -> AttentionShape {
        AttentionShape {
            heads: 2,
            d_head,
            d_value,
            ..AttentionShape::single_head(1, 4, 203)
        }
    }

    /// Multiples of 1/64, which bf16 holds exactly.
    fn values<T>(count: usize, seed: usize, convert: impl Fn(f32) -> T) -> Vec<T> {
        let element = |i: usize| ((i * 37 + seed * 11) % 127) as f32 / 64.0 - 1.0;
        (0..count).map(|i| convert(element(i))).collect()
    }

    fn compute<T: DecodeElement, A: AsMut<[T]>>(
        set: InstructionSet,
        widths: [usize; 2],
        is_masked: bool,
        convert: impl Fn(f32) -> T + Copy,
        alloc: impl Fn(&[T]) -> A,
    ) -> Vec<f32> {
        let shape = shape(widths);
        let [_, _, seq_q, seq_k] = shape.scores();
        let [d_head, d_value] = widths;
        let tensor = |count: usize, seed: usize| alloc(&values(count, seed, convert));
        let mut query = tensor(2 * seq_q * d_head, 1);
        let mut key = tensor(seq_k * d_head, 2);
        let mut value = tensor(seq_k * d_value, 3);
        let mask: Vec<u8> = (0..seq_k).map(|key| u8::from(key % 5 == 2)).collect();
        let rule = Arc::new(if is_masked { Rule::Causal } else { Rule::Full });
        let call = Call {
            shape,
            plan: &cached_plan(&rule, &shape, [QUERIES, KEYS], Examples::Each),
            rule: &rule,
            gather: None,
            mask: is_masked.then(|| Broadcast::new(&mask[..], [1, 1, 1, seq_k])),
            scale: 0.3,
            softcap: None,
            alibi: None,
            bias: None,
            has_relative_bias: false,
            dropout: None,
            program: Program::Softmax,
            parameter: &[],
            score_mod: None,
            first_head: 0,
            is_tracked: false,
            query: &*query.as_mut(),
            key: Heads {
                values: key.as_mut(),
                stride: seq_k * d_head,
            },
            value: Heads {
                values: value.as_mut(),
                stride: seq_k * d_value,
            },
        };
        let tiles: Vec<_> = call.plan.tiles(0, 0).collect();
        let mut partial = vec![0.0; 2 * seq_q * (d_value + STATS)];
        // SAFETY: the CPU supports the instruction set; the slices have the sizes of the call.
        unsafe { T::forward_partial(set, &call, 0, &tiles, &mut partial) };
        partial
    }

    fn assert_close(got: &[f32], expected: &[f32], name: &str) {
        assert_eq!(got.len(), expected.len());
        let max = expected.iter().fold(0_f32, |max, x| max.max(x.abs()));
        for (a, b) in got.iter().zip(expected) {
            assert!(
                (a - b).abs() <= 2e-6 * max,
                "{name}: {a} != {b}, largest {max}"
            );
        }
    }

    /// Widening is exact, so results are those of the same values in `f32`, summed in another order. Each tensor ends or begins
    /// at a guard page, so an access out of bounds crashes the test.
    #[test]
    fn bf16_is_widened_exactly_and_in_bounds() {
        for set in InstructionSet::available() {
            for widths in [[20, 37], [64, 64], [33, 16]] {
                for is_masked in [false, true] {
                    let expected = compute(set, widths, is_masked, |x| x, <[f32]>::to_vec);
                    assert!(expected.iter().all(|x| x.is_finite() && *x != 0.0));
                    let got = compute(set, widths, is_masked, bf16::from_f32, <[bf16]>::to_vec);
                    assert_close(&got, &expected, &format!("{set:?}, {widths:?}"));
                    #[cfg(unix)]
                    for edge in [Edge::End, Edge::Start] {
                        let alloc = |values: &[bf16]| Guarded::new(values, edge);
                        let guarded = compute(set, widths, is_masked, bf16::from_f32, alloc);
                        assert_eq!(guarded, got, "{set:?}, {widths:?}");
                    }
                }
            }
        }
    }
}
