//! Who may see whom: one vocabulary for every mechanism.
//!
//! A [`Pattern`] is said in words (`causal`, `key_lengths`, ...) and combined
//! with [`and`](Pattern::and) and [`or`](Pattern::or). Mechanisms that hold the
//! whole score matrix ask it for a [dense mask](Pattern::hidden); tiled ones ask of
//! each tile whether anybody sees it.

mod dense;
mod split;

use burn::tensor::{Bool, Tensor};

/// A rule for which keys each query sees.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Pattern {
    /// Every query sees every key.
    #[default]
    Full,
    /// A query sees the keys up to its own place, the last query being level
    /// with the last key. With more queries than keys, the first ones see nothing.
    Causal,
    /// A query sees the keys from `left` before its own place to `right` after it,
    /// the last query being level with the last key.
    Window {
        /// Keys before its own place.
        left: usize,
        /// Keys after it.
        right: usize,
    },
    /// Example `b` has only its first `lengths[b]` keys.
    KeyLengths(Vec<usize>),
    /// `[batch, seq_k]`: a key that is `true` is padding, hidden from every query.
    KeyPadding(Tensor<2, Bool>),
    /// `[batch, heads, seq_q, seq_k]`, any of them 1 to stand for all: `true` hides.
    Dense(Tensor<4, Bool>),
    /// A key is seen if both sides see it.
    And(Box<Pattern>, Box<Pattern>),
    /// A key is seen if either side sees it.
    Or(Box<Pattern>, Box<Pattern>),
}

impl Pattern {
    /// Example `b` has only its first `lengths[b]` keys.
    pub fn key_lengths(lengths: impl Into<Vec<usize>>) -> Self {
        Self::KeyLengths(lengths.into())
    }

    /// Sees only what both see.
    ///
    /// ```
    /// # use zoo_attention::Pattern;
    /// // A causal batch of one sentence of 5 words and one of 3.
    /// let pattern = Pattern::Causal.and(Pattern::key_lengths([5, 3]));
    /// ```
    pub fn and(self, other: Self) -> Self {
        Self::And(Box::new(self), Box::new(other))
    }

    /// Sees what either sees.
    ///
    /// ```
    /// # use zoo_attention::Pattern;
    /// // Prefix language model: everyone sees the prompt, then causally.
    /// let pattern = Pattern::Causal.or(Pattern::key_lengths([7, 4]));
    /// ```
    pub fn or(self, other: Self) -> Self {
        Self::Or(Box::new(self), Box::new(other))
    }
}
