//! Sigmoid attention: the weight of a query-key pair does not depend on the other keys.
//!
//! ```text
//! context_i = Σ_j sigmoid(s_ij) v_j        over the visible keys
//! ```
//!
//! Ramapuram et al., [Theory, Analysis, and Best Practices for Sigmoid
//! Self-Attention](https://arxiv.org/abs/2409.04431), 2024. The paper adds `-ln n` to the
//! scores: pass it as a bias.

use burn::tensor::Tensor;

use super::{FlashKernel, Program, flash_with_program, kernel_of_program};
use crate::AttentionOptions;

/// Attention with the sigmoid of the scores as weights, without normalisation.
///
/// Computed tile by tile like [`flash`](crate::flash()), in O(n) memory. Shapes, options and panics
/// are the same.
pub fn sigmoid_attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let op = "sigmoid attention";
    flash_with_program(op, [query, key, value], options, Program::Sigmoid, None).context
}

/// The kernel that computes such a call of [`sigmoid_attention`]. For tests.
#[doc(hidden)]
pub fn sigmoid_kernel(
    query: &Tensor<4>,
    key: &Tensor<4>,
    value: &Tensor<4>,
    options: &AttentionOptions,
) -> FlashKernel {
    kernel_of_program([query, key, value], options, Program::Sigmoid)
}
