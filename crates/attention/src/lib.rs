//! Attention mechanisms for Burn, one room each.
//!
//! | room | what it is |
//! |---|---|
//! | [`pattern`] | who may see whom: one vocabulary of masks for every mechanism |
//! | [`mod@standard`] | softmax attention that holds the whole weight matrix and returns it; the readable reference |
//! | [`tiled`] | `flash`: the same result without the matrix, forward and backward |
//!
//! Ops take `[batch, heads, seq, d_head]`, and the same words mean the same
//! everywhere:
//!
//! - a `true` in a bool mask hides (Burn's sense, the opposite of PyTorch's);
//! - a query that sees nothing gets zeros and passes back zero gradients;
//! - causal aligns the last query with the last key;
//! - the default scale is `1/sqrt(d_head)`;
//! - fewer key and value heads than query heads are shared, never copied.
//!
//! No backend is named here: tensors bring their device with them.

mod counter;
mod dropout;
mod mechanism;
mod options;
pub mod pattern;
mod positions;
mod precision;
mod shape;
pub mod standard;
pub mod tiled;

pub use dropout::Dropout;
pub use mechanism::{Mechanism, attend};
pub use options::AttentionOptions;
pub use pattern::Pattern;
pub use positions::alibi_slopes;
pub use shape::AttentionShape;
pub use standard::standard;
pub use tiled::{Flashed, flash, flash_with_log_sum_exp, merge, which_body};
