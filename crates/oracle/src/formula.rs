//! What a mechanism computes, where that is not softmax attention.

use crate::hashed::Hashing;

/// How scores become weights.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Formula {
    /// `exp(s_ij) / Σ_j exp(s_ij)`
    #[default]
    Softmax,
    /// The same of `s_ij = Σ_x v_x tanh(q_ix + k_jx)`, with a `v` for each query head, one
    /// after the other; times the scale, which is 1 unless given.
    Additive(Vec<f32>),
    /// The same of `s_ij = q_i·W·k_j`, with a `W` for each query head, one after the other;
    /// times the scale, which is 1 unless given.
    Multiplicative(Vec<f32>),
    /// Those of softmax over the keys with `|j - p_i| <= window`, times
    /// `exp(-(j - p_i)² / 2(window/2)²)`; the place `p_i` is the number of keys times
    /// `1 / (1 + exp(-v·tanh(q_i·W)))`, with a `v` and a `W` for each query head.
    Predicted {
        /// The `v` of each head, one after the other.
        vectors: Vec<f32>,
        /// The `W` of each head, likewise.
        matrices: Vec<f32>,
        /// How far from the predicted place keys are seen.
        window: usize,
    },
    /// 1 for the key with the largest score, the first of several.
    Best,
    /// 1 for the key with the largest score after noise was added; gradients are those of
    /// `softmax((score + noise) / temperature)`.
    Sampled {
        /// What the gradient is softened by.
        temperature: f64,
        /// Which noise.
        seed: u64,
    },
    /// `φ(q_i)·φ(k_j) / Σ_j φ(q_i)·φ(k_j)`
    Features(Features),
    /// The softmax over the keys that hash as the query does, which are queries of length 1.
    Hashed(Hashing),
    /// `scale · γ^(i - j) q_i·k_j`, with a `γ` for each key and value head.
    Retention(Vec<f64>),
}

/// The features `φ(x)` of a query or key `x`.
#[derive(Debug, Clone, PartialEq)]
pub enum Features {
    /// `x + 1` above zero, `exp(x)` below, of queries times the scale.
    Elu1,
    /// `max(x, 0) + 0.001`, likewise.
    Relu,
    /// `exp(ω·x - |x|²/2)` for each direction `ω`, of both times the root of the scale.
    Random {
        /// The directions, one after the other.
        directions: Vec<f32>,
    },
}

impl Features {
    /// The features of `x`.
    pub(crate) fn of(&self, x: &[f64]) -> Vec<f64> {
        match self {
            Self::Elu1 => x
                .iter()
                .map(|&x| if x > 0.0 { x + 1.0 } else { x.exp() })
                .collect(),
            Self::Relu => x.iter().map(|x| x.max(0.0) + f64::from(1e-3f32)).collect(),
            Self::Random { directions } => directions
                .chunks(x.len())
                .map(|direction| exponent(direction, x).exp())
                .collect(),
        }
    }

    /// The gradient by `x`, from that by its features.
    pub(crate) fn gradient(&self, x: &[f64], d_features: &[f64]) -> Vec<f64> {
        match self {
            Self::Elu1 => (x.iter().zip(d_features))
                .map(|(&x, d)| if x > 0.0 { *d } else { d * x.exp() })
                .collect(),
            Self::Relu => (x.iter().zip(d_features))
                .map(|(&x, d)| if x > 0.0 { *d } else { 0.0 })
                .collect(),
            Self::Random { directions } => {
                let mut d_x = vec![0.0; x.len()];
                for (direction, d) in directions.chunks(x.len()).zip(d_features) {
                    let d_exponent = d * exponent(direction, x).exp();
                    for ((into, &along), x) in d_x.iter_mut().zip(direction).zip(x) {
                        *into += d_exponent * (f64::from(along) - x);
                    }
                }
                d_x
            }
        }
    }

    /// What queries and keys are multiplied by, each, at a scale.
    pub(crate) fn scales(&self, given: Option<f64>, d_head: usize) -> [f64; 2] {
        match self {
            Self::Elu1 | Self::Relu => [given.unwrap_or(1.0), 1.0],
            Self::Random { .. } => {
                let scale = given.unwrap_or(1.0 / (d_head as f64).sqrt());
                [scale.signum() * scale.abs().sqrt(), scale.abs().sqrt()]
            }
        }
    }

    /// The largest number that is raised to a power, which says how far `f32` can be off.
    pub(crate) fn largest_exponent(&self, x: &[f64]) -> f64 {
        match self {
            Self::Elu1 | Self::Relu => 0.0,
            Self::Random { directions } => {
                let square: f64 = x.iter().map(|x| x * x).sum();
                directions
                    .chunks(x.len())
                    .map(|direction| (exponent(direction, x) + square / 2.0).abs() + square / 2.0)
                    .fold(0.0, f64::max)
            }
        }
    }
}

fn exponent(direction: &[f32], x: &[f64]) -> f64 {
    let along: f64 = direction
        .iter()
        .zip(x)
        .map(|(&w, x)| f64::from(w) * x)
        .sum();
    along - x.iter().map(|x| x * x).sum::<f64>() / 2.0
}
