//! Attention mechanisms for Burn, one room each.
//!
//! | room | what it is |
//! |---|---|
//! | [`mod@additive`] | the first attention: a small network scores query and key; returns its weights |
//! | [`mod@entropy`] | how spread out attention is, without the matrix; a regulariser |
//! | [`mod@explain`] | where chosen queries look, for every mechanism |
//! | [`mod@hard`] | one key alone: the best, or one drawn; returns its weights |
//! | [`local`] | neighbours of a query's own number, or of a place that is predicted |
//! | [`multi_head`] | the module: projections around any mechanism, chosen by its word |
//! | [`mod@multiplicative`] | products through a matrix that is learned |
//! | [`pattern`] | who may see whom: one vocabulary of masks for every mechanism |
//! | [`sparse`] | scattered keys brought together: `strided`, `fixed`, `lsh` |
//! | [`mod@standard`] | softmax attention that holds the whole weight matrix and returns it; the readable reference |
//! | [`mod@linear`] | products of features instead of a softmax: time and memory grow with the length alone; and `retention`, which forgets |
//! | [`tiled`] | `flash`: the same result without the matrix, forward and backward |
//!
//! Ops take `[batch, heads, seq, d_head]`, and the same words mean the same
//! everywhere:
//!
//! - a `true` in a bool mask hides (Burn's sense, the opposite of PyTorch's);
//! - a query that sees nothing gets zeros and passes back zero gradients;
//! - causal aligns the last query with the last key;
//! - the default scale is `1/sqrt(d_head)`;
//! - fewer key and value heads than query heads are shared.
//!
//! No backend is named here: tensors bring their device with them.

pub mod additive;
mod cache;
mod counter;
mod decode;
mod dropout;
pub mod entropy;
pub mod explain;
mod finite;
pub mod hard;
mod kept;
pub mod linear;
pub mod local;
mod mechanism;
pub mod multi_head;
pub mod multiplicative;
mod options;
pub mod pattern;
mod positions;
mod precision;
mod reference;
mod seed;
mod shape;
pub mod sparse;
pub mod standard;
pub mod tiled;
mod weighing;

pub use additive::additive;
pub use cache::KvCache;
pub use decode::{CannotDecode, CannotRewind, DecodeCache};
pub use dropout::Dropout;
pub use entropy::{entropy, entropy_penalty};
pub use explain::explain;
pub use hard::{Choice, hard};
pub use linear::{
    FeatureMap, LinearState, RandomFeatures, RedrawnFeatures, linear, retention, retention_decays,
};
pub use local::{local_monotonic, local_predictive};
pub use mechanism::{
    LinearFeatures, Mechanism, MechanismConfig, attend, drawn_matrix, drawn_vector, which_body_of,
};
pub use multi_head::{
    Memory, MultiHeadAttention, MultiHeadAttentionConfig, MultiHeadError, NoEntropy, NoWeights,
    Positions, PytorchWeights, PytorchWeightsError,
};
pub use multiplicative::multiplicative;
pub use options::AttentionOptions;
pub use pattern::Pattern;
pub use positions::{alibi_slopes, rotate};
#[doc(hidden)]
pub use reference::without_kernels;
pub use seed::with_seed;
pub use shape::AttentionShape;
pub use sparse::{Lsh, fixed, lsh, strided};
pub use standard::standard;
pub use tiled::{Body, Flashed, flash, flash_with_log_sum_exp, merge, which_body};

/// The README, whose example is compiled with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
