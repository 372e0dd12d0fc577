//! Gumbel noise on the device, from the same random numbers as on every other backend.

use std::ops::Range;

use tch::{Device, Kind, Tensor};

use crate::AttentionShape;
use crate::counter::head_key;

/// What the noise of a score is computed from: a key for each query, and a factor for each attention
/// key.
pub(super) struct Noise {
    /// The halves of the key, `[batch, heads, seq_q, 1]`, as `i32`.
    halves: [Tensor; 2],
    /// `key · 0x9e3779b9`, as `i32`.
    columns: Tensor,
}

impl Noise {
    pub(super) fn new(
        seed: u64,
        first_head: usize,
        shape: &AttentionShape,
        device: Device,
    ) -> Self {
        let heads: Vec<i64> = (0..shape.batch * shape.heads)
            .map(|i| [i / shape.heads, first_head + i % shape.heads])
            // Inverted, so that dropout with the same seed is independent.
            .map(|head| head_key(!seed, head) as i64)
            .collect();
        let [batch, heads_, seq_q, seq_k] = shape.scores().map(|size| size as i64);
        let heads = Tensor::from_slice(&heads).to_device(device);
        let range = |count: i64| Tensor::arange(count, (Kind::Int64, device));
        let rows = mix(&(heads.reshape([batch, heads_, 1, 1]) + range(seq_q).unsqueeze(1)));
        let high = shift_right(&rows, 32);
        let columns = (range(seq_k) * 0x9e37_79b9_i64).bitwise_and(0xffff_ffff_i64);
        Self {
            halves: [rows.bitwise_and(0xffff_ffff_i64), high].map(to_i32),
            columns: to_i32(columns),
        }
    }

    /// The noise of some queries and keys, `[batch, heads, queries, keys]`: `-ln(-ln(u))` with
    /// `u = (bits + 0.5) / 2^32`, which is neither 0 nor 1.
    ///
    /// Near 1, `f32` has too few bits for `u`. Bits above 2^31 are negative as `i32`, which makes
    /// them `u - 1`.
    pub(super) fn tile(&self, queries: &Range<usize>, keys: &Range<usize>) -> Tensor {
        let bits = self.random_bits(queries, keys);
        let is_above_half = bits.lt(0);
        let mut u = bits.to_kind(Kind::Float);
        let _ = u.g_add_scalar_(0.5);
        let _ = u.g_mul_scalar_(2f64.powi(-32));
        let mut noise = u.log1p().where_self(&is_above_half, &u.log_());
        let _ = noise.neg_();
        let _ = noise.log_();
        let _ = noise.neg_();
        noise
    }

    /// [`random_bits`](crate::counter::random_bits) as `i32`, whose multiplications wrap around.
    fn random_bits(&self, queries: &Range<usize>, keys: &Range<usize>) -> Tensor {
        let [low, high] = self
            .halves
            .each_ref()
            .map(|half| half.narrow(2, queries.start as i64, queries.len() as i64));
        let columns = self.columns.narrow(0, keys.start as i64, keys.len() as i64);
        let mut x = low.bitwise_xor_tensor(&columns);
        xor_shifted(&mut x, 16);
        let _ = x.g_mul_scalar_(i64::from(0x7feb_352d_u32 as i32));
        xor_shifted(&mut x, 15);
        let _ = x.bitwise_xor_tensor_(&high);
        let _ = x.g_mul_scalar_(i64::from(0x846c_a68b_u32 as i32));
        xor_shifted(&mut x, 16);
        x
    }
}

/// `x ^ (x >> bits)` with a logical shift.
fn xor_shifted(x: &mut Tensor, bits: u32) {
    let mut shifted = x.bitwise_right_shift_tensor_scalar(i64::from(bits));
    let _ = shifted.bitwise_and_(i64::from(u32::MAX >> bits));
    let _ = x.bitwise_xor_tensor_(&shifted);
}

/// [`mix`](crate::counter::mix) of each element, with wrapping arithmetic.
fn mix(x: &Tensor) -> Tensor {
    let x = x + 0x9e37_79b9_7f4a_7c15_u64 as i64;
    let xored = |x: &Tensor, bits| x.bitwise_xor_tensor(&shift_right(x, bits));
    let x = xored(&x, 30) * 0xbf58_476d_1ce4_e5b9_u64 as i64;
    let x = xored(&x, 27) * 0x94d0_49bb_1331_11eb_u64 as i64;
    xored(&x, 31)
}

/// A logical shift of 64 bits.
fn shift_right(x: &Tensor, bits: u32) -> Tensor {
    x.bitwise_right_shift_tensor_scalar(i64::from(bits))
        .bitwise_and((u64::MAX >> bits) as i64)
}

/// The low 32 bits of non-negative numbers below 2^32.
fn to_i32(x: Tensor) -> Tensor {
    // Conversions of numbers out of range are not defined.
    let is_negative = x.ge(1i64 << 31).to_kind(Kind::Int64);
    (x - is_negative * (1i64 << 32)).to_kind(Kind::Int)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::{random_bits, row_key};

    #[test]
    fn bits_are_those_of_the_counter() {
        let shape = AttentionShape {
            heads: 3,
            kv_heads: 3,
            ..AttentionShape::single_head(2, 40, 70)
        };
        for seed in [0, 17, u64::MAX] {
            let noise = Noise::new(seed, 5, &shape, Device::Cpu);
            let (queries, keys) = (3..40, 9..70);
            let bits = noise.random_bits(&queries, &keys);
            let bits: Vec<i32> = Vec::try_from(bits.reshape([-1])).expect("a vector");
            let mut expected = Vec::new();
            for head in 0..6 {
                for query in queries.clone() {
                    let row = row_key(!seed, [head / 3, 5 + head % 3, query]);
                    let of_key = |key: usize| random_bits(row, key as u32) as i32;
                    expected.extend(keys.clone().map(of_key));
                }
            }
            assert_eq!(bits, expected);
        }
    }

    #[test]
    fn noise_is_that_of_exact_logarithms() {
        let shape = AttentionShape::single_head(1, 40, 3000);
        let noise = Noise::new(3, 0, &shape, Device::Cpu);
        let ranges = (0..40, 0..3000);
        let bits = noise.random_bits(&ranges.0, &ranges.1).reshape([-1]);
        let got = noise.tile(&ranges.0, &ranges.1).reshape([-1]);
        let bits: Vec<i32> = Vec::try_from(bits).expect("a vector");
        let got: Vec<f32> = Vec::try_from(got).expect("a vector");
        for (bits, got) in bits.into_iter().zip(got) {
            let u = (f64::from(bits as u32) + 0.5) / 2f64.powi(32);
            let expected = -(-u.ln()).ln();
            let error = (f64::from(got) - expected).abs();
            assert!(
                error <= 4e-7 * expected.abs().max(1.0),
                "{bits}: {got}, {expected}"
            );
        }
    }

    #[test]
    fn noise_is_finite() {
        let noise = Noise {
            halves: [0, -1].map(|half| Tensor::full([1, 1, 1, 1], half, (Kind::Int, Device::Cpu))),
            columns: Tensor::arange(1 << 16, (Kind::Int, Device::Cpu)),
        };
        let tile = noise.tile(&(0..1), &(0..1 << 16));
        assert_eq!(tile.isfinite().all().int64_value(&[]), 1);
        let mean = tile.mean(Kind::Double).double_value(&[]);
        // Euler's constant.
        assert!((mean - 0.5772).abs() < 0.03, "{mean}");
    }
}
