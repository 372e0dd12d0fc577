//! Embedding of tokens, scaled.
//!
//! ```text
//! y_i = s · W[token_i]
//! dW[t] = s · Σ dy_i over the positions of token t
//! ```
//!
//! Saved for the backward pass are the tokens.

#[allow(deprecated)] // Burn 0.22 is the last release with NdArray and LibTorch
mod ops;

use burn::backend::Dispatch;
use burn::nn::Embedding;
use burn::tensor::{Int, Tensor};

use self::ops::EmbeddingOp;
use crate::hosts::location::is_host_f32;

/// Applies an [`Embedding`] module and multiplies by `scale`, in one pass if the table is `f32` in host
/// memory.
///
/// # Shapes
///
/// - tokens: `[batch, seq]`
/// - output: `[batch, seq, d_model]`
///
/// # Panics
///
/// If the devices differ, or a token is not in the table. Tables of other types or on other devices are read
/// by Burn's operation, which may return unspecified elements for such a token.
pub fn embedding(module: &Embedding, tokens: Tensor<2, Int>, scale: f64) -> Tensor<3> {
    let table = module.weight.val();
    let (expected, device) = (table.device(), tokens.device());
    assert!(
        expected == device,
        "embedding: the tokens must be on the device of the table, {expected:?}, got {device:?}"
    );
    if is_host_f32(&table) {
        let (table, tokens) = (table.into_dispatch(), tokens.into_dispatch());
        return Tensor::from_dispatch(Dispatch::fused_embedding(table, tokens, scale));
    }
    let output = module.forward(tokens);
    match scale {
        1.0 => output,
        _ => output.mul_scalar(scale),
    }
}
