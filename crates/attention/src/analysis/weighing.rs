//! How each mechanism weighs keys, apart from how it gets by without writing that out.

use burn::tensor::Tensor;
use zoo_spec::Lsh;

use crate::mechanisms::hard::Choice;
use crate::scan::FeatureMap;

pub(crate) enum Weighing {
    Softmax,
    /// The softmax of products through matrices, `[heads, d_head, d_head]`.
    Multiplicative(Tensor<3>),
    /// The softmax of a small network with these vectors, `[heads, d_head]`.
    Additive(Tensor<2>),
    /// Shares of products of features.
    Features(FeatureMap),
    /// Products that fade, by a decay for each key and value head.
    Retention(Vec<f64>),
    /// The softmax of products with the queries made keys, over those that hash alike.
    Hashed(Lsh),
    /// All of one.
    Hard(Choice),
    /// Near places that vectors and matrices predict, within a window.
    Predicted(Box<(Tensor<2>, Tensor<3>)>, usize),
}
