//! The weight function of each mechanism, independent of how the mechanism is computed.

use burn::tensor::Tensor;
use zoo_spec::{Lsh, Moba, NativeSparse, Nystrom};

use crate::mechanisms::Gates;
use crate::scan::{FeatureMap, Update};

pub(crate) enum WeightFunction {
    /// Softmax of dot products.
    Softmax,
    /// Softmax of bilinear scores with matrices `[heads, d_head, d_head]`.
    Multiplicative(Tensor<3>),
    /// Softmax of MLP scores with vectors `[heads, d_head]`.
    Additive(Tensor<2>),
    /// Normalised dot products of features.
    Features(FeatureMap),
    /// Dot products with exponential decay, one decay for each key/value head.
    Retention(Vec<f64>),
    /// The weights of a gated recurrence.
    Gated(Box<GatedWeights>),
    /// Softmax over keys with the same hash, the keys being normalised queries.
    Hashed(Lsh),
    /// Softmax over the keys of selected blocks.
    Blocks(Moba),
    /// The gated sum of softmax over means of blocks, the keys of selected blocks, and a window, with the
    /// gates `[batch, heads, seq_k, 3]`.
    Branches(NativeSparse, Tensor<4>),
    /// Softmax over the keys and a sink, `[heads]`.
    Sink(Tensor<1>),
    /// The sigmoid of dot products.
    Sigmoid,
    /// The difference of the softmax of two halves, with a factor `[1]` for the second.
    Differential(Tensor<1>),
    /// Products of three softmax matrices through landmarks.
    Landmarks(Nystrom),
    /// Softmax over projected keys, times the projection of values, with projections
    /// `[2, rank, length]`.
    Projected(Tensor<3>),
    /// A one-hot selection.
    Hard(HardSelection),
    /// Softmax with a Gaussian around a predicted position, within a window. The position is
    /// predicted by vectors and matrices.
    Predicted(Box<(Tensor<2>, Tensor<3>)>, usize),
}

/// A gated recurrence and the gates of its keys.
pub(crate) struct GatedWeights {
    pub(crate) op: &'static str,
    pub(crate) gates: Gates,
    pub(crate) update: Update,
}

/// How hard attention selects its key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HardSelection {
    /// The key with the largest score, the first of several. Only the values have a gradient; that
    /// of queries and keys is zero.
    Best,
    /// A key sampled from the softmax of the scores.
    Sampled {
        /// Temperature of the softmax in the straight-through gradient. Small values have a high
        /// variance, large ones a high bias.
        temperature: f64,
        /// Random seed of the Gumbel noise, which depends only on the seed and the position and is
        /// the same on every backend. Use a new seed for each training step.
        seed: u64,
    },
}
