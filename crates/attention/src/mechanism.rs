//! Every mechanism by its word: one call, any of them.

use burn::tensor::Tensor;
pub use zoo_words::Mechanism;

use crate::{AttentionOptions, flash, standard};

/// Attends with the mechanism of that word.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - value: `[batch, kv_heads, seq_k, d_value]`
/// - result: `[batch, heads, seq_q, d_value]`
///
/// # Panics
///
/// If the tensors or the pattern do not fit together.
pub fn attend(
    mechanism: Mechanism,
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> Tensor<4> {
    match mechanism {
        Mechanism::Standard => standard(query, key, value, options).context,
        Mechanism::Flash => flash(query, key, value, options),
    }
}
