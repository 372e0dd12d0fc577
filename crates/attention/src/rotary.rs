//! Rotary position embedding (RoPE).

use std::f64::consts::TAU;

use burn::tensor::{Tensor, TensorData};
use zoo_spec::{Llama3Scaling, PairLayout, Rotary, RotaryScaling, YarnScaling};

use crate::precision::{narrow, widen};

/// Applies rotary position embedding to queries or keys, so that their dot products depend only
/// on the relative position: pair `x` of the elements at position `i` is rotated by the angle
/// `i · f(x)`.
///
/// `f(x)` is `theta^(-2x/rotated)`, or a scaled frequency, and the [layout](PairLayout) determines
/// which elements are a pair. The elements after the first `rotated = fraction · d_head` are passed
/// through.
///
/// Su et al., [RoFormer](https://arxiv.org/abs/2104.09864), 2021; the frequencies of longer contexts
/// have their references at [`RotaryScaling`].
///
/// The tensor is `[batch, heads, seq, d_head]`, and its first row is at position `first`.
///
/// # Panics
///
/// If the number of rotated elements is odd or below 2.
pub fn rotate(tensor: Tensor<4>, first: i64, rotary: &Rotary) -> Tensor<4> {
    let [.., d_head] = tensor.dims();
    let rotated = rotary.rotated(d_head);
    assert!(
        rotated >= 2 && rotated.is_multiple_of(2) && rotated <= d_head,
        "rotary positions: the number of rotated elements must be even and at least 2, got {rotated} \
         of d_head = {d_head}"
    );
    if rotated == d_head {
        return rotate_all(tensor, first, rotary);
    }
    let passed = tensor.clone().slice_dim(3, rotated..d_head);
    let tensor = rotate_all(tensor.slice_dim(3, 0..rotated), first, rotary);
    Tensor::cat(vec![tensor, passed], 3)
}

/// Rotates every element: `x · cos + swapped(x) · (∓sin)`, where the elements of a pair are swapped.
fn rotate_all(tensor: Tensor<4>, first: i64, rotary: &Rotary) -> Tensor<4> {
    let [batch, heads, seq, width] = tensor.dims();
    let stored = tensor.dtype();
    let tensor = widen(tensor);
    let ([outer, inner], axis) = match rotary.layout {
        PairLayout::Interleaved => ([width / 2, 2], 4),
        PairLayout::Halves => ([2, width / 2], 3),
    };
    let data = TensorData::new(table(rotary, first, seq, width), [2, 1, seq, outer, inner]);
    let table = Tensor::<5>::from_data(data, (&tensor.device(), tensor.dtype()));
    let cosine = table.clone().slice_dim(0, 0..1);
    let sine = table.slice_dim(0, 1..2);
    let pairs: Tensor<5> = tensor.reshape([batch, heads, seq, outer, inner]);
    let swapped = pairs.clone().flip([axis]);
    let rotated = pairs * cosine + swapped * sine;
    narrow(rotated.reshape([batch, heads, seq, width]), stored)
}

/// The cosines of `seq` positions, `[seq, width]`, and their sines, negative for the first element of
/// a pair.
fn table(rotary: &Rotary, first: i64, seq: usize, width: usize) -> Vec<f32> {
    let frequencies = frequencies(rotary, width);
    let magnitude = attention_factor(&rotary.scaling);
    let mut table = vec![0.0; 2 * seq * width];
    let (cosines, sines) = table.split_at_mut(seq * width);
    let rows = cosines.chunks_exact_mut(width);
    let rows = rows.zip(sines.chunks_exact_mut(width)).zip(first..);
    for ((cosines, sines), position) in rows {
        for (pair, frequency) in frequencies.iter().enumerate() {
            let [a, b] = match rotary.layout {
                PairLayout::Interleaved => [2 * pair, 2 * pair + 1],
                PairLayout::Halves => [pair, pair + width / 2],
            };
            // In f64: single precision resolves an angle of 10,000 only to a thousandth.
            let (sine, cosine) = (position as f64 * frequency).sin_cos();
            let [sine, cosine] = [sine, cosine].map(|value| (magnitude * value) as f32);
            (cosines[a], cosines[b]) = (cosine, cosine);
            (sines[a], sines[b]) = (-sine, sine);
        }
    }
    table
}

/// The angle of each pair per position.
fn frequencies(rotary: &Rotary, width: usize) -> Vec<f64> {
    let d = width as f64;
    let theta = match rotary.scaling {
        RotaryScaling::Ntk(ntk) => rotary.theta * ntk.factor.powf(d / (d - 2.0)),
        RotaryScaling::None
        | RotaryScaling::Linear(_)
        | RotaryScaling::Yarn(_)
        | RotaryScaling::Llama3(_) => rotary.theta,
    };
    let scaled = |pair: usize| {
        let frequency = theta.powf(-2.0 * pair as f64 / d);
        match rotary.scaling {
            RotaryScaling::None | RotaryScaling::Ntk(_) => frequency,
            RotaryScaling::Linear(linear) => frequency / linear.factor,
            RotaryScaling::Yarn(yarn) => {
                interpolate(frequency, yarn.factor, yarn_ramp(&yarn, theta, pair, d))
            }
            RotaryScaling::Llama3(llama) => {
                interpolate(frequency, llama.factor, llama_ramp(&llama, frequency))
            }
        }
    };
    (0..width / 2).map(scaled).collect()
}

/// The frequency where `unchanged` is 1, divided by `factor` where it is 0.
fn interpolate(frequency: f64, factor: f64, unchanged: f64) -> f64 {
    (1.0 - unchanged) * frequency / factor + unchanged * frequency
}

/// How much of a frequency YaRN leaves unchanged: linear between the pairs with `beta_fast` and with
/// `beta_slow` rotations within the original context, as in the authors' code.
fn yarn_ramp(yarn: &YarnScaling, theta: f64, pair: usize, d: f64) -> f64 {
    let context = yarn.original_context as f64;
    // The pair, not rounded, with this number of rotations.
    let pair_with = |rotations: f64| d * (context / rotations / TAU).ln() / (2.0 * theta.ln());
    let low = pair_with(yarn.beta_fast).floor().clamp(0.0, d - 1.0);
    let high = pair_with(yarn.beta_slow).ceil().clamp(0.0, d - 1.0);
    let width = if low == high { 0.001 } else { high - low };
    1.0 - ((pair as f64 - low) / width).clamp(0.0, 1.0)
}

/// How much of a frequency Llama 3 leaves unchanged: linear in the number of rotations within the
/// original context.
fn llama_ramp(llama: &Llama3Scaling, frequency: f64) -> f64 {
    let (low, high) = (llama.low_frequency_factor, llama.high_frequency_factor);
    let rotations = llama.original_context as f64 * frequency / TAU;
    ((rotations - low) / (high - low)).clamp(0.0, 1.0)
}

/// The factor of cosines and sines, and so of queries and keys.
fn attention_factor(scaling: &RotaryScaling) -> f64 {
    match scaling {
        RotaryScaling::Yarn(yarn) => {
            let default = || 0.1 * yarn.factor.ln() + 1.0;
            yarn.attention_factor.unwrap_or_else(default)
        }
        RotaryScaling::None
        | RotaryScaling::Linear(_)
        | RotaryScaling::Ntk(_)
        | RotaryScaling::Llama3(_) => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scaled frequencies relative to the unscaled ones.
    fn ratios(theta: f64, scaling: RotaryScaling) -> Vec<f64> {
        let plain = Rotary::new(theta);
        let scaled = frequencies(&plain.with_scaling(scaling), 16);
        let pairs = scaled.into_iter().zip(frequencies(&plain, 16));
        pairs.map(|(scaled, plain)| scaled / plain).collect()
    }

    fn assert_equal(got: &[f64], want: &[f64]) {
        let is_equal = |(got, want): (&f64, &f64)| (got - want).abs() < 1e-12;
        let equal = got.len() == want.len() && got.iter().zip(want).all(is_equal);
        assert!(equal, "{got:?}, expected {want:?}");
    }

    #[test]
    fn scaling_keeps_high_frequencies_and_divides_low_ones() {
        assert_equal(&ratios(1e4, RotaryScaling::linear(4.0)), &[0.25; 8]);
        for scaling in [
            RotaryScaling::ntk(4.0),
            RotaryScaling::yarn(4.0, 500),
            RotaryScaling::llama3(4.0, 500),
        ] {
            let ratios = ratios(1e4, scaling);
            assert_equal(&[ratios[0], ratios[7]], &[1.0, 0.25]);
            assert!(ratios.is_sorted_by(|a, b| *a >= *b - 1e-12), "{ratios:?}");
        }
    }

    /// The authors' code would divide all of them.
    #[test]
    fn yarn_keeps_frequencies_that_are_all_high() {
        assert_equal(&ratios(2.0, RotaryScaling::yarn(4.0, 1 << 20)), &[1.0; 8]);
    }

    #[test]
    fn a_factor_of_one_changes_nothing() {
        for scaling in [
            RotaryScaling::linear(1.0),
            RotaryScaling::ntk(1.0),
            RotaryScaling::yarn(1.0, 500),
            RotaryScaling::llama3(1.0, 500),
        ] {
            assert_equal(&ratios(1e4, scaling), &[1.0; 8]);
            assert_equal(&[attention_factor(&scaling)], &[1.0]);
        }
    }
}
