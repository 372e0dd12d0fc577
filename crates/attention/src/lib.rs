//! Attention mechanisms for Burn.
//!
//! | module | contents |
//! |---|---|
//! | [`mechanisms`] | every mechanism: a file or folder each, and the registry |
//! | [`mod@flash`] | the tiled engine: exact softmax attention without the n x n matrix, forward and backward |
//! | [`scan`] | the engine of linear attention: chunked recurrences |
//! | [`pattern`] | masks and the tile plan: which keys a query may attend to |
//! | [`module`] | [`MultiHeadAttention`]: projections around any mechanism |
//! | [`decode`] | incremental decoding: caches and recurrent states |
//! | [`analysis`] | attention weights of chosen queries, entropy |
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

pub mod analysis;
mod counter;
pub mod decode;
mod dropout;
mod finite;
pub mod flash;
mod kept;
pub mod mechanisms;
pub mod module;
mod options;
pub mod pattern;
mod positions;
mod precision;
pub mod scan;
mod seed;
mod shape;

pub use analysis::{entropy, entropy_penalty, explain};
pub use decode::{CannotDecode, CannotRewind, DecodeCache, KvCache};
pub use dropout::Dropout;
pub use flash::{Body, Flashed, flash, flash_with_log_sum_exp, merge, which_body};
pub use mechanisms::additive::additive;
pub use mechanisms::hard::{Choice, hard};
pub use mechanisms::linear::linear;
pub use mechanisms::local_m::local_monotonic;
pub use mechanisms::local_p::local_predictive;
pub use mechanisms::multiplicative::multiplicative;
pub use mechanisms::performer::RedrawnFeatures;
pub use mechanisms::retention::{retention, retention_decays};
pub use mechanisms::standard::standard;
pub use mechanisms::{
    Hashing, LinearFeatures, Lsh, Mechanism, MechanismConfig, MechanismParams, attend,
    drawn_matrix, drawn_vector, fixed, lsh, strided, which_body_of,
};
pub use module::{
    Memory, MultiHeadAttention, MultiHeadAttentionConfig, MultiHeadError, NoEntropy, NoWeights,
    Positions, PytorchWeights, PytorchWeightsError,
};
pub use options::AttentionOptions;
pub use pattern::Pattern;
pub use positions::{alibi_slopes, rotate};
pub use scan::{FeatureMap, LinearState, RandomFeatures};
pub use seed::{next_seed, with_seed};
pub use shape::AttentionShape;

/// The README, whose example is compiled with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
