//! Every mechanism by its word.

use std::fmt;

use burn::tensor::Tensor;

use crate::{AttentionOptions, standard};

/// A mechanism, chosen by the word people write for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Mechanism {
    /// [`standard()`]: softmax attention with every weight held in memory.
    #[default]
    Standard,
}

impl Mechanism {
    /// Every mechanism, in the order they are shown.
    pub const ALL: [Self; 1] = [Self::Standard];

    /// The word people write.
    pub fn word(self) -> &'static str {
        match self {
            Self::Standard => "standard",
        }
    }

    /// Attends with this mechanism.
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
        self,
        query: Tensor<4>,
        key: Tensor<4>,
        value: Tensor<4>,
        options: &AttentionOptions,
    ) -> Tensor<4> {
        match self {
            Self::Standard => standard(query, key, value, options).context,
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
