//! Position encodings of attention heads: RoPE and ALiBi.

use burn::tensor::{Tensor, TensorData};

use crate::precision::{narrow, widen};

/// Position encoding of a head's queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Positions {
    /// No position encoding.
    None,
    /// Rotary position embedding (RoPE):
    /// Su et al., [RoFormer](https://arxiv.org/abs/2104.09864), 2021.
    Rotary {
        /// Base of the frequencies; 10,000 in the paper.
        theta: f64,
    },
    /// ALiBi with the default [slopes](alibi_slopes).
    Alibi,
}

/// The default ALiBi slopes: how much a score decreases per position of distance between query
/// and key.
///
/// A geometric sequence from `2^(-8/heads)` to `2^-8`. If `heads` is not a power of two, the
/// slopes of the next lower power of two, followed by every other slope of the next higher one.
///
/// Press et al., [Train Short, Test Long](https://arxiv.org/abs/2108.12409), 2021.
pub fn alibi_slopes(heads: usize) -> Vec<f32> {
    let sequence = |count: usize| {
        (1..=count).map(move |head| 2f64.powf(-8.0 * head as f64 / count as f64) as f32)
    };
    let lower = if heads == 0 { 0 } else { 1 << heads.ilog2() };
    sequence(lower)
        .chain(sequence(2 * lower).step_by(2))
        .take(heads)
        .collect()
}

/// Applies rotary position embedding to queries or keys, so that their dot products depend only
/// on the relative position: the pair of elements `2x` and `2x + 1` at position `i` is rotated by
/// the angle `i · theta^(-2x/d_head)`.
///
/// Su et al., [RoFormer](https://arxiv.org/abs/2104.09864), 2021.
///
/// The tensor is `[batch, heads, seq, d_head]`, and its first row is at position `first`.
///
/// # Panics
///
/// If `d_head` is odd.
pub fn rotate(tensor: Tensor<4>, first: i64, theta: f64) -> Tensor<4> {
    let [batch, heads, seq, d_head] = tensor.dims();
    assert!(
        d_head.is_multiple_of(2),
        "rotary positions: d_head must be even, got {d_head}"
    );
    let stored = tensor.dtype();
    let tensor = widen(tensor);
    let pairs = d_head / 2;
    // In f64: single precision resolves an angle of 10,000 only to a thousandth.
    let frequencies: Vec<f64> = (0..pairs)
        .map(|pair| theta.powf(-2.0 * pair as f64 / d_head as f64))
        .collect();
    let table = |function: fn(f64) -> f64| {
        let values: Vec<f32> = (first..first + seq as i64)
            .flat_map(|position| {
                frequencies
                    .iter()
                    .map(move |f| function(position as f64 * f) as f32)
            })
            .collect();
        let data = TensorData::new(values, [1, 1, seq, pairs, 1]);
        Tensor::<5>::from_data(data, (&tensor.device(), tensor.dtype()))
    };
    let (cosine, sine) = (table(f64::cos), table(f64::sin));
    let elements = tensor.reshape([batch, heads, seq, pairs, 2]);
    let even = elements.clone().slice_dim(4, 0..1); // [batch, heads, seq, pairs, 1]
    let odd = elements.slice_dim(4, 1..2);
    let rotated = vec![
        even.clone() * cosine.clone() - odd.clone() * sine.clone(),
        odd * cosine + even * sine,
    ];
    let rotated = Tensor::cat(rotated, 4).reshape([batch, heads, seq, d_head]);
    narrow(rotated, stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_match_the_paper() {
        let halves: Vec<f32> = (1..=8).map(|head| 0.5f32.powi(head)).collect();
        assert_eq!(alibi_slopes(8), halves);
        assert_eq!(alibi_slopes(1), [0.5f32.powi(8)]);
        assert!(alibi_slopes(0).is_empty());
        // Three heads: the slopes for two heads, then the first for four heads.
        assert_eq!(alibi_slopes(3), [0.0625, 0.003_906_25, 0.25]);
    }
}
