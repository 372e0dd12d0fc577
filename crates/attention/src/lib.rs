//! Attention mechanisms for Burn.
//!
//! | module | contents |
//! |---|---|
//! | [`mechanisms`] | the mechanisms, a file or folder each, and their registry |
//! | [`mod@flash`] | the tiled engine: exact softmax attention without the n x n matrix, forward and backward |
//! | [`scan`] | linear attention: chunked recurrences and recurrent states |
//! | [`pattern`] | masks and the tile plan: which keys a query may attend to |
//! | [`module`] | [`MultiHeadAttention`]: projections around any mechanism |
//! | [`decode`] | incremental decoding: caches and recurrent states |
//! | [`analysis`] | attention weights of chosen queries, entropy |
//!
//! Functions take tensors of shape `[batch, heads, seq, d_head]`. These conventions hold everywhere:
//!
//! - `true` in a bool mask means masked, as in Burn and opposite to PyTorch;
//! - the output and the gradients of a fully masked query are zero;
//! - causal attention aligns the last query with the last key;
//! - the default scale is `1/sqrt(d_head)`;
//! - key and value heads may be fewer than query heads (MQA, GQA).
//!
//! The crate enables no backend: tensors carry their device.

pub mod analysis;
mod counter;
#[cfg(all(test, unix))]
mod cpu;
#[cfg(feature = "cube")]
mod cube;
pub mod decode;
mod dropout;
mod error;
mod finite;
pub mod flash;
mod matmul;
pub mod mechanisms;
mod memo;
pub mod module;
mod options;
mod output;
pub mod pattern;
mod positions;
mod precision;
mod relative_buckets;
mod rotary;
pub mod scan;
mod score_mod;
mod seed;
mod shape;

pub use analysis::{entropy, entropy_penalty, explain};
#[cfg(feature = "cube")]
#[doc(hidden)]
pub use cube::launch::kernel_launches;
pub use decode::DecodeCache;
pub use dropout::Dropout;
pub use error::AttentionError;
pub use flash::flash;
pub use mechanisms::standard::standard;
pub use mechanisms::{Mechanism, MechanismConfig, attend};
pub use module::{
    AttentionInput, MultiHeadAttention, MultiHeadAttentionConfig, ProjectedMemory, PytorchWeights,
};
pub use options::AttentionOptions;
pub use output::AttentionOutput;
pub use pattern::Pattern;
pub use positions::{Positions, alibi_slopes};
pub use relative_buckets::RelativeBuckets;
pub use rotary::rotate;
pub use score_mod::ScoreMod;
pub use seed::{next_seed, with_seed};
pub use shape::AttentionShape;
pub use zoo_spec::{Llama3Scaling, PairLayout, Rotary, RotaryScaling, ScalingFactor, YarnScaling};

/// The README, whose example is a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
