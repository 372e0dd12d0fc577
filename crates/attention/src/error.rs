//! The error type of this crate.

use crate::mechanisms::Mechanism;

/// A module that cannot be built, an operation that a mechanism does not support, or weights that
/// cannot be loaded.
///
/// Tensors of the wrong shape, dtype or device panic, as in Burn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttentionError {
    /// The heads do not divide the model dimension.
    #[error("d_model = {d_model} must be a multiple of n_heads = {n_heads}, or d_head must be set")]
    Heads {
        /// Model dimension.
        d_model: usize,
        /// Query heads.
        n_heads: usize,
    },
    /// The key and value heads do not divide the query heads.
    #[error("n_heads = {n_heads} must be a multiple of n_heads_kv = {n_heads_kv}")]
    KvHeads {
        /// Query heads.
        n_heads: usize,
        /// Key and value heads.
        n_heads_kv: usize,
    },
    /// The mechanism determines its number of key and value heads.
    #[error(
        "mechanism {mechanism} has n_heads_kv = {expected}, got {n_heads_kv}; leave n_heads_kv \
         unset, or use grouped-query"
    )]
    KvHeadsOfMechanism {
        /// The mechanism.
        mechanism: Mechanism,
        /// The key and value heads that it has.
        expected: usize,
        /// The configured key and value heads.
        n_heads_kv: usize,
    },
    /// Rotary position embedding of whole heads rotates pairs of elements.
    #[error("rotary position embedding needs an even d_head, got {d_head}")]
    OddHead {
        /// Head dimension.
        d_head: usize,
    },
    /// The mechanism has no key projection: its keys are computed from its queries.
    #[error("mechanism {mechanism} computes its keys from its queries: {option} cannot be set")]
    KeysFromQueries {
        /// The mechanism.
        mechanism: Mechanism,
        /// The option.
        option: &'static str,
    },
    /// The mechanism has no projection of the value input: its values are computed from its keys.
    #[error("mechanism {mechanism} computes its values from its keys: {option} cannot be set")]
    ValuesFromKeys {
        /// The mechanism.
        mechanism: Mechanism,
        /// The option.
        option: &'static str,
    },
    /// The mechanism does not support an option.
    #[error("mechanism {mechanism} does not support {option}: {reason}")]
    Unsupported {
        /// The mechanism.
        mechanism: Mechanism,
        /// The option.
        option: &'static str,
        /// The reason, from its capabilities.
        reason: &'static str,
    },
    /// A value is out of range.
    #[error("{name} must be {allowed}, got {got}")]
    Range {
        /// The option.
        name: String,
        /// The allowed values.
        allowed: String,
        /// The value.
        got: String,
    },
    /// The mechanism cannot decode incrementally.
    #[error("mechanism {mechanism} cannot decode token by token: {reason}")]
    CannotDecode {
        /// The mechanism.
        mechanism: Mechanism,
        /// The reason, from its capabilities.
        reason: &'static str,
    },
    /// The cache does not retain the keys that truncation needs.
    #[error(
        "cannot truncate a cache of {mechanism} from {len} to {target} positions: only a cache \
         that retains every key can be truncated, and only to fewer positions"
    )]
    CannotTruncate {
        /// The mechanism.
        mechanism: Mechanism,
        /// Positions in the cache.
        len: usize,
        /// Positions to truncate to.
        target: usize,
    },
    /// A weight of PyTorch's module is missing.
    #[error("{key} is missing; expected shape {expected:?}")]
    MissingWeight {
        /// Name of the weight in the `state_dict`.
        key: &'static str,
        /// Expected shape.
        expected: Vec<usize>,
    },
    /// A weight of PyTorch's module has another shape.
    #[error("{key} must have shape {expected:?}, got {got:?}")]
    WeightShape {
        /// Name of the weight in the `state_dict`.
        key: &'static str,
        /// The shape that this module needs.
        expected: Vec<usize>,
        /// Actual shape.
        got: Vec<usize>,
    },
    /// A weight of PyTorch's module is not a floating-point tensor.
    #[error("{key} must be a floating-point tensor, got {got}")]
    WeightDtype {
        /// Name of the weight in the `state_dict`.
        key: &'static str,
        /// Actual dtype.
        got: String,
    },
    /// PyTorch's module has a bias, this one has not.
    #[error("{key} is present, but the {projection} projection has no bias")]
    UnexpectedBias {
        /// Name of the weight in the `state_dict`.
        key: &'static str,
        /// `query`, `key`, `value` or `output`.
        projection: &'static str,
    },
    /// This module has no such weight.
    #[error("{key} does not correspond to any weight of this module")]
    UnknownWeight {
        /// Name of the weight in the `state_dict`.
        key: String,
    },
}
