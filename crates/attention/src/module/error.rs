//! Why a multi-head attention cannot be made.

use crate::mechanisms::Mechanism;

/// What cannot be made, and why.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MultiHeadError {
    /// The heads do not divide the model.
    #[error("d_model = {d_model} must be a multiple of heads = {heads}, or d_head must be given")]
    Heads {
        /// Numbers for each place.
        d_model: usize,
        /// Query heads.
        heads: usize,
    },
    /// The key and value heads do not divide the query heads.
    #[error("heads = {heads} must be a multiple of kv_heads = {kv_heads}")]
    KvHeads {
        /// Query heads.
        heads: usize,
        /// Key and value heads.
        kv_heads: usize,
    },
    /// The mechanism has another number of key and value heads.
    #[error("kv_heads = {kv_heads} was given to mechanism {mechanism}, which has {own} of them")]
    KvHeadsOfMechanism {
        /// Those that were given.
        kv_heads: usize,
        /// The mechanism.
        mechanism: Mechanism,
        /// Those it has.
        own: usize,
    },
    /// A head of odd size cannot be turned.
    #[error("rotary positions turn pairs of numbers: d_head = {d_head} must be even")]
    OddHead {
        /// Numbers in a head.
        d_head: usize,
    },
    /// There are no keys to be shared.
    #[error(
        "mechanism {mechanism} makes a key of each query: kv_heads = {kv_heads} must be \
         heads = {heads}"
    )]
    OwnKeys {
        /// The mechanism.
        mechanism: Mechanism,
        /// Query heads.
        heads: usize,
        /// Key and value heads.
        kv_heads: usize,
    },
    /// And of each query, not of anything else.
    #[error("mechanism {mechanism} makes its keys of its queries: kdim = {kdim} has no use")]
    NoKeySize {
        /// The mechanism.
        mechanism: Mechanism,
        /// Numbers for each key.
        kdim: usize,
    },
    /// The mechanism does not support an option.
    #[error("mechanism {mechanism} does not support {option}: {reason}")]
    Unsupported {
        /// The mechanism.
        mechanism: Mechanism,
        /// The option.
        option: &'static str,
        /// Why it does not.
        reason: &'static str,
    },
    /// A number is out of range.
    #[error("{name} must be {allowed}, got {got}")]
    Range {
        /// What it is called.
        name: String,
        /// What it may be.
        allowed: String,
        /// What it is.
        got: String,
    },
}
