//! Formulas that turn scores into attention weights.

use crate::block_selection::BlockSelection;
use crate::linformer::Projections;
use crate::lsh::Hashing;
use crate::native_sparse::GatedBranches;

/// Formula of the attention weights.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Formula {
    /// `exp(s_ij) / Σ_j exp(s_ij)`
    #[default]
    Softmax,
    /// Softmax of `s_ij = scale · Σ_x v_x tanh(q_ix + k_jx)` with the `v` of each query head,
    /// concatenated. The default scale is 1.
    Additive(Vec<f32>),
    /// Softmax of `s_ij = scale · q_i·W·k_j` with the `W` of each query head, concatenated. The
    /// default scale is 1.
    Multiplicative(Vec<f32>),
    /// Softmax over the keys with `|j - p_i| <= window`, times `exp(-(j - p_i)² / 2(window/2)²)`.
    /// The predicted position `p_i` is the number of keys times `1 / (1 + exp(-v·tanh(q_i·W)))`.
    LocalPredictive {
        /// The `v` of each query head, concatenated.
        vectors: Vec<f32>,
        /// The `W` of each query head, concatenated.
        matrices: Vec<f32>,
        /// Maximum distance of visible keys from the predicted position.
        window: usize,
    },
    /// 1 for the first key with the largest score.
    Argmax,
    /// 1 for the key with the largest score plus Gumbel noise. Gradients are those of
    /// `softmax((score + noise) / temperature)`.
    Sampled {
        /// Softmax temperature of the gradient.
        temperature: f64,
        /// Seed of the noise.
        seed: u64,
    },
    /// `exp(s_ij) / (exp(sink) + Σ_j exp(s_ij))` with the sink of each query head.
    Sink(Vec<f32>),
    /// `1 / (1 + exp(-(s_ij - ln n)))` with this `n`.
    Sigmoid(usize),
    /// Softmax of `s_ij + table[bucket(j - i)]`.
    Relative(RelativeTable),
    /// Softmax of `s_ij + Σ_l g_l` over the positions `l` after the key up to the query, with the
    /// `g` of each position: `[batch, heads, seq_k]`.
    Forgetting(Vec<f32>),
    /// Softmax of the scores of the first half of queries and keys, minus `λ` times that of the
    /// second half. `λ` is `exp(a·b) - exp(c·d)` of these four vectors plus a constant.
    Differential {
        /// The vectors `a`, `b`, `c` and `d`, concatenated.
        vectors: Vec<f32>,
        /// The constant.
        lambda_init: f64,
    },
    /// `φ(q_i)·φ(k_j) / Σ_j φ(q_i)·φ(k_j)`
    Linear(FeatureMap),
    /// Softmax over the keys in the chunks of the query. Keys are the normalised queries.
    Lsh(Hashing),
    /// Softmax over the keys of selected blocks.
    BlockSelection(BlockSelection),
    /// A gated sum of softmax over the means of blocks, the keys of selected blocks, and a window.
    NativeSparse(GatedBranches),
    /// `scale · γ^(i - j) q_i·k_j`, with a `γ` for each KV head.
    Retention(Vec<f64>),
    /// A recurrence whose decays depend on the position.
    Gated(GatedRecurrence),
    /// Products of three softmax matrices through means of segments. The second is inverted by an
    /// iteration.
    Nystrom {
        /// Number of segments of queries and of keys.
        landmarks: usize,
        /// Number of iterations.
        iterations: usize,
    },
    /// Softmax of `scale · q_i·(E K)_r`, times `F V`, with projections `E` and `F` along the sequence.
    Linformer(Projections),
}

/// `S_t = D_t diag(a_t) S_(t-1) + b_t k_t v_tᵀ` with outputs `scale · q_t · S_t`. `D_t` is 1, or for the
/// delta rule `1 - b_t k_t k_tᵀ`, whose queries and keys are divided by `sqrt(|x|² + 1e-6)`.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedRecurrence {
    /// `[batch, kv_heads, seq_k, width]`: the logarithms of `a`; the width is 1 or `d_head`. Empty
    /// is no decay.
    pub log_decays: Vec<f32>,
    /// `[batch, kv_heads, seq_k]`: the `b`; empty is 1.
    pub strengths: Vec<f32>,
    /// Whether it is a delta rule.
    pub is_delta: bool,
}

/// Biases of relative positions, as in T5.
#[derive(Debug, Clone, PartialEq)]
pub struct RelativeTable {
    /// A bias for each bucket, those of a head after those of the one before.
    pub values: Vec<f32>,
    /// Number of buckets.
    pub num_buckets: usize,
    /// Distances from this one on are in the last bucket.
    pub max_distance: usize,
    /// Whether later keys have the second half of the buckets.
    pub bidirectional: bool,
}

impl RelativeTable {
    /// The index of the bias of a key that is `relative` positions after its query.
    pub(crate) fn index(&self, head: usize, relative: i64) -> usize {
        let mut bucket = 0;
        let mut count = self.num_buckets;
        if self.bidirectional {
            count /= 2;
            if relative > 0 {
                bucket = count;
            }
        }
        let distance = match self.bidirectional {
            true => relative.abs(),
            false => (-relative).max(0),
        } as usize;
        let linear = count / 2;
        bucket += if distance < linear {
            distance
        } else if distance >= self.max_distance {
            count - 1
        } else {
            // T5 computes these logarithms in single precision, which matters where one is whole.
            let numerator = (distance as f32 / linear as f32).ln();
            let denominator = (self.max_distance as f64 / linear as f64).ln() as f32;
            let steps = numerator / denominator * (count - linear) as f32;
            (linear + steps as usize).min(count - 1)
        };
        head * self.num_buckets + bucket
    }
}

/// Feature map `φ(x)` of a query or key `x`.
#[derive(Debug, Clone, PartialEq)]
pub enum FeatureMap {
    /// `elu(x) + 1`. Queries are multiplied by the scale first.
    Elu1,
    /// `max(x, 0) + 0.001`. Queries are multiplied by the scale first.
    Relu,
    /// `max(x, 0)`. Weights are multiplied by `cos(π/2 · (i - j) / length)`, with positions aligned
    /// at the end. Queries are multiplied by the scale first.
    Cosine(usize),
    /// `x`, with `1 + s + s²/2` instead of the dot product `s`. Queries and keys are multiplied by the
    /// square root of the scale first.
    Taylor,
    /// `exp(ω·x - |x|²/2)` for each direction `ω`. Queries and keys are multiplied by the square
    /// root of the scale first.
    Random {
        /// The directions, concatenated.
        directions: Vec<f32>,
    },
}

impl FeatureMap {
    pub(crate) fn forward(&self, x: &[f64]) -> Vec<f64> {
        match self {
            Self::Elu1 => x
                .iter()
                .map(|&x| if x > 0.0 { x + 1.0 } else { x.exp() })
                .collect(),
            Self::Relu => x.iter().map(|x| x.max(0.0) + f64::from(1e-3f32)).collect(),
            Self::Cosine(_) => x.iter().map(|x| x.max(0.0)).collect(),
            Self::Taylor => x.to_vec(),
            Self::Random { directions } => directions
                .chunks(x.len())
                .map(|direction| exponent(direction, x).exp())
                .collect(),
        }
    }

    /// Gradient with respect to `x`, given that with respect to its features.
    pub(crate) fn backward(&self, x: &[f64], d_features: &[f64]) -> Vec<f64> {
        match self {
            Self::Elu1 => (x.iter().zip(d_features))
                .map(|(&x, d)| if x > 0.0 { *d } else { d * x.exp() })
                .collect(),
            Self::Taylor => d_features.to_vec(),
            Self::Relu | Self::Cosine(_) => (x.iter().zip(d_features))
                .map(|(&x, d)| if x > 0.0 { *d } else { 0.0 })
                .collect(),
            Self::Random { directions } => {
                let mut d_x = vec![0.0; x.len()];
                for (direction, d) in directions.chunks(x.len()).zip(d_features) {
                    let d_exponent = d * exponent(direction, x).exp();
                    for ((d_x, &w), x) in d_x.iter_mut().zip(direction).zip(x) {
                        *d_x += d_exponent * (f64::from(w) - x);
                    }
                }
                d_x
            }
        }
    }

    /// Factors of queries and keys.
    pub(crate) fn scales(&self, scale: Option<f64>, d_head: usize) -> [f64; 2] {
        match self {
            Self::Elu1 | Self::Relu | Self::Cosine(_) => [scale.unwrap_or(1.0), 1.0],
            Self::Random { .. } | Self::Taylor => {
                let scale = scale.unwrap_or(1.0 / (d_head as f64).sqrt());
                [scale.signum() * scale.abs().sqrt(), scale.abs().sqrt()]
            }
        }
    }

    /// The factor of a weight, for positions at this distance.
    pub(crate) fn distance_factor(&self, distance: usize) -> f64 {
        match self {
            Self::Cosine(length) => {
                (std::f64::consts::FRAC_PI_2 * distance as f64 / *length as f64).cos()
            }
            Self::Elu1 | Self::Relu | Self::Taylor | Self::Random { .. } => 1.0,
        }
    }

    /// The weight of a dot product of features, and its derivative.
    pub(crate) fn weight(&self, product: f64) -> [f64; 2] {
        match self {
            Self::Taylor => [1.0 + product + product * product / 2.0, 1.0 + product],
            Self::Elu1 | Self::Relu | Self::Cosine(_) | Self::Random { .. } => [product, 1.0],
        }
    }

    /// Largest absolute term of an exponent, which bounds the error in `f32`.
    pub(crate) fn max_exponent(&self, x: &[f64]) -> f64 {
        match self {
            Self::Elu1 | Self::Relu | Self::Cosine(_) | Self::Taylor => 0.0,
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
    let product = direction.iter().zip(x).map(|(&w, x)| f64::from(w) * x);
    product.sum::<f64>() - x.iter().map(|x| x * x).sum::<f64>() / 2.0
}
