//! Where things are, told to attention.

use burn::tensor::{Tensor, TensorData};

use crate::precision::{narrow, widen};

/// How a head learns the positions of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Positions {
    /// It does not.
    None,
    /// Queries and keys are rotated by their position:
    /// Su et al., [RoFormer](https://arxiv.org/abs/2104.09864), 2021.
    Rotary {
        /// How slow the slowest turn is; 10,000 in the paper.
        theta: f64,
    },
    /// Scores fall with the distance, by the usual [slopes](alibi_slopes).
    Alibi,
}

/// The slopes of ALiBi for so many heads: how much the score of a key falls with each
/// place it is away from the query.
///
/// A geometric sequence from `2^(-8/heads)` to `2^-8`. Where `heads` is no power of
/// two, those of the next lower power, and every other one of the next higher.
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

/// Turns pairs of numbers of queries or keys by their place, so that products depend on
/// the distance alone: numbers `2x` and `2x + 1` of place `i` by `i · theta^(-2x/d_head)`.
///
/// Su et al., [RoFormer](https://arxiv.org/abs/2104.09864), 2021.
///
/// # Shapes
///
/// - tensor: `[batch, heads, seq, d_head]`, `first` the place of its first row
/// - result: the same
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
    // In f64: single precision knows an angle of 10,000 to a thousandth only.
    let turns: Vec<f64> = (0..pairs)
        .map(|pair| theta.powf(-2.0 * pair as f64 / d_head as f64))
        .collect();
    let table = |of: fn(f64) -> f64| {
        let numbers: Vec<f32> = (first..first + seq as i64)
            .flat_map(|place| turns.iter().map(move |turn| of(place as f64 * turn) as f32))
            .collect();
        let data = TensorData::new(numbers, [1, 1, seq, pairs, 1]);
        Tensor::<5>::from_data(data, (&tensor.device(), tensor.dtype()))
    };
    let (cosine, sine) = (table(f64::cos), table(f64::sin));
    let numbers = tensor.reshape([batch, heads, seq, pairs, 2]);
    let even = numbers.clone().slice_dim(4, 0..1); // [batch, heads, seq, pairs, 1]
    let odd = numbers.slice_dim(4, 1..2);
    let turned = vec![
        even.clone() * cosine.clone() - odd.clone() * sine.clone(),
        odd * cosine + even * sine,
    ];
    let turned = Tensor::cat(turned, 4).reshape([batch, heads, seq, d_head]);
    narrow(turned, stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_the_paper() {
        let halves: Vec<f32> = (1..=8).map(|head| 0.5f32.powi(head)).collect();
        assert_eq!(alibi_slopes(8), halves);
        assert_eq!(alibi_slopes(1), [0.5f32.powi(8)]);
        assert!(alibi_slopes(0).is_empty());
        // Three heads: those of two, and the first of four.
        assert_eq!(alibi_slopes(3), [0.0625, 0.003_906_25, 0.25]);
    }
}
