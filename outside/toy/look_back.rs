//! A toy: each query sees its own place and so many before it.
//!
//! ```text
//! context = softmax(scale · query · keyᵀ) · value    over the keys i - back ..= i
//! ```
//!
//! No paper: it is here to show what adding a mechanism takes.

use burn::tensor::Tensor;

use crate::mechanism::within;
use crate::{AttentionOptions, Pattern, flash};

/// Attends to the own place and so many before it.
///
/// # Shapes
///
/// As for [`flash`].
///
/// # Panics
///
/// As for [`flash`].
pub fn look_back(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    back: usize,
    options: &AttentionOptions,
) -> Tensor<4> {
    flash(query, key, value, &within(options, pattern(back)))
}

/// What a query sees.
pub(crate) fn pattern(back: usize) -> Pattern {
    Pattern::Window {
        left: back,
        right: 0,
    }
}
