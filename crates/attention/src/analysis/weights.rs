//! The weight function of each mechanism, independent of how the mechanism is computed.

use burn::tensor::Tensor;
use zoo_spec::Lsh;

use crate::mechanisms::hard::HardSelection;
use crate::scan::FeatureMap;

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
    /// Softmax over keys with the same hash, the keys being normalised queries.
    Hashed(Lsh),
    /// A one-hot selection.
    Hard(HardSelection),
    /// Softmax with a Gaussian around a predicted position, within a window. The position is
    /// predicted by vectors and matrices.
    Predicted(Box<(Tensor<2>, Tensor<3>)>, usize),
}
