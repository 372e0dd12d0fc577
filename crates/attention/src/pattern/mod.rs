//! Attention masks: which keys each query may attend to.
//!
//! A [`Pattern`] is built from named masks (`causal`, `key_lengths`, ...) that are combined with
//! [`and`](Pattern::and) and [`or`](Pattern::or). Mechanisms that materialise the score matrix use
//! its [dense mask](Pattern::dense_mask); tiled ones use a [plan](Pattern::plan) of the tiles that
//! are not fully masked.

mod check;
mod coverage;
mod dense;
mod documents;
#[cfg_attr(
    not(any(feature = "flex", feature = "ndarray", feature = "tch")),
    allow(dead_code)
)]
pub(crate) mod gather;
mod plan;
mod predicate;
pub(crate) mod rule;
mod split;
mod summary;
mod svg;

use burn::tensor::{Bool, Tensor};
pub(crate) use check::is_broadcastable;
pub(crate) use dense::{mask_union, select_rows_broadcast};
pub(crate) use plan::{Examples, cached_plan};
pub use plan::{TilePlan, TileRun};
pub use predicate::Predicate;
pub(crate) use summary::BlockCausal;

/// An attention mask: the keys that each query attends to.
///
/// Queries and keys are aligned at the end: a query's position is the index of the key it is
/// aligned with, the last query being aligned with the last key. With more queries than keys, the
/// first queries have negative positions.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Pattern {
    /// Every query attends to every key.
    #[default]
    Full,
    /// A query attends to the keys up to its own position.
    Causal,
    /// A query attends to the keys from `left` before its own position to `right` after it.
    Window {
        /// Number of keys before the query's position.
        left: usize,
        /// Number of keys after the query's position.
        right: usize,
    },
    /// The sequence is split into blocks of `size`; a query attends to the keys of its own block.
    Block {
        /// Block size; the last block may be shorter.
        size: usize,
    },
    /// The sequence is split into blocks of `size`; a query in block `b` attends to the keys of
    /// the blocks `visible[b]`.
    Blocks {
        /// Block size; the last block may be shorter.
        size: usize,
        /// For each query block, the indices of its key blocks, in any order.
        visible: Vec<Vec<usize>>,
    },
    /// A query attends to the keys whose distance to its own position, in either direction, is a
    /// multiple of `stride`.
    Strided {
        /// Stride in positions.
        stride: usize,
    },
    /// The sequence is split into blocks of `block`; every query attends to the last `summary`
    /// keys of each block: the summary columns of Sparse Transformers. An incomplete last block
    /// has fewer of them, or none.
    SummaryColumns {
        /// Block size.
        block: usize,
        /// Number of summary columns in each block; all keys of a block if there are no more.
        summary: usize,
    },
    /// A query attends to the keys at most `window` away from the key with its own index. Queries
    /// and keys are aligned at the start, which differs from `Window` if their numbers differ.
    Monotonic {
        /// Number of keys on either side.
        window: usize,
    },
    /// Global tokens: every query attends to the keys at these positions, and the queries at them
    /// attend to every key.
    Global(Vec<usize>),
    /// `ids[b][j]` is the document of position `j` of example `b`; a query attends to the keys of
    /// its own document.
    Documents(Vec<Vec<usize>>),
    /// Only the first `lengths[b]` keys of example `b` are valid.
    KeyLengths(Vec<usize>),
    /// A query attends to the keys for which a function returns `true`.
    Predicate(Predicate),
    /// `[batch, seq_k]`: keys that are `true` are padding and masked for every query.
    KeyPadding(Tensor<2, Bool>),
    /// `[batch, heads, seq_q, seq_k]`, where any dimension may be 1 (broadcast): `true` masks.
    Dense(Tensor<4, Bool>),
    /// A key is visible if both patterns allow it.
    And(Box<Pattern>, Box<Pattern>),
    /// A key is visible if either pattern allows it.
    Or(Box<Pattern>, Box<Pattern>),
}

impl Pattern {
    /// A short description for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Full => "a full pattern",
            Self::Causal => "a causal pattern",
            Self::Window { .. } => "a window",
            Self::Block { .. } | Self::Blocks { .. } => "blocks",
            Self::Strided { .. } => "a stride",
            Self::SummaryColumns { .. } => "summary columns",
            Self::Monotonic { .. } => "a monotonic window",
            Self::Global(_) => "global positions",
            Self::Documents(_) => "documents",
            Self::KeyLengths(_) => "key lengths",
            Self::Predicate(_) => "a predicate",
            Self::KeyPadding(_) => "key padding",
            Self::Dense(_) => "a dense mask",
            Self::And(..) => "patterns joined by and",
            Self::Or(..) => "patterns joined by or",
        }
    }

    /// Only the first `lengths[b]` keys of example `b` are valid.
    pub fn key_lengths(lengths: impl Into<Vec<usize>>) -> Self {
        Self::KeyLengths(lengths.into())
    }

    /// The mask of a prefix language model: the first `lengths[b]` keys of example `b` are visible
    /// to every query, the others causally.
    pub fn prefix(lengths: impl Into<Vec<usize>>) -> Self {
        Self::Causal.or(Self::key_lengths(lengths))
    }

    /// Several documents packed into one sequence, each attending only to itself: `ids[b][j]` is
    /// the document of position `j` of example `b`.
    ///
    /// ```
    /// # use zoo_attention::Pattern;
    /// // Two documents of 3 and 4 tokens, packed into one causal sequence.
    /// let packed = Pattern::documents([[0, 0, 0, 1, 1, 1, 1]]).and(Pattern::Causal);
    /// ```
    pub fn documents(ids: impl IntoIterator<Item = impl Into<Vec<usize>>>) -> Self {
        Self::Documents(ids.into_iter().map(Into::into).collect())
    }

    /// A window of `window` keys on either side, and the global tokens `global`:
    /// Beltagy et al., [Longformer](https://arxiv.org/abs/2004.05150), 2020.
    pub fn longformer(window: usize, global: impl Into<Vec<usize>>) -> Self {
        Self::window(window).or(Self::Global(global.into()))
    }

    /// A window of `size` keys on either side.
    pub(crate) fn window(size: usize) -> Self {
        let (left, right) = (size, size);
        Self::Window { left, right }
    }

    /// The `stride` keys up to the query's position, and every `stride`-th key before it:
    /// Child et al., [Sparse Transformers](https://arxiv.org/abs/1904.10509), 2019.
    ///
    /// # Panics
    ///
    /// If the stride is zero.
    pub fn sparse_transformer(stride: usize) -> Self {
        assert!(stride > 0, "a stride must be at least 1, got 0");
        let window = Self::Window {
            left: stride - 1,
            right: 0,
        };
        window.or(Self::Strided { stride }.and(Self::Causal))
    }

    /// The keys of the query's own block of `block` positions, and the last `summary` keys of
    /// every block: Child et al., [Sparse Transformers](https://arxiv.org/abs/1904.10509), 2019.
    pub fn fixed(block: usize, summary: usize) -> Self {
        Self::Block { size: block }.or(Self::SummaryColumns { block, summary })
    }

    /// A query attends to the keys for which a function of the query's and the key's position
    /// returns `true`.
    ///
    /// Queries and keys are aligned at the end: with more queries than keys, the first queries
    /// have negative positions. The function must be pure.
    ///
    /// It is called once for every pair to build a plan, and again for the pairs of partially
    /// masked tiles whenever these are computed. It is not called for tiles that another pattern,
    /// joined by [`and`](Self::and), masks: a window around a sparse function makes long sequences
    /// cheap.
    ///
    /// Plans are cached. A closure that captures nothing is recognised by its type, so it may be
    /// created in every forward pass. One that captures values is recognised by its address: create
    /// the pattern once and clone it.
    ///
    /// ```
    /// # use zoo_attention::Pattern;
    /// // The preceding keys at distances 0, 1, 2, 4, 8, ...
    /// let log_sparse = Pattern::from_fn(|query, key| {
    ///     let distance = query - key;
    ///     distance == 0 || (distance > 0 && distance.unsigned_abs().is_power_of_two())
    /// });
    /// let near = log_sparse.and(Pattern::Window { left: 512, right: 0 });
    /// ```
    pub fn from_fn(is_visible: impl Fn(i64, i64) -> bool + Send + Sync + 'static) -> Self {
        Self::Predicate(Predicate::new(is_visible))
    }

    /// [`from_fn`](Self::from_fn) with a function of the batch index, the query head, and the
    /// positions of query and key: PyTorch's `mask_mod`.
    ///
    /// Mechanisms that compute their scores in tiles need O(n) memory; the others materialise the mask.
    /// The function is called for every example and head to build a plan,
    /// which is cached as for `from_fn`. Use `from_fn` for a function that depends on the
    /// positions only.
    ///
    /// ```
    /// # use zoo_attention::Pattern;
    /// // Heads with windows of 64, 128, 256, ... keys.
    /// let windows = Pattern::mask_fn(|_batch, head, query, key| {
    ///     (0..64_i64 << head).contains(&(query - key))
    /// });
    /// ```
    pub fn mask_fn<F>(is_visible: F) -> Self
    where
        F: Fn(usize, usize, i64, i64) -> bool + Send + Sync + 'static,
    {
        Self::Predicate(Predicate::per_head(is_visible))
    }

    /// The intersection: a key is visible if both patterns allow it.
    ///
    /// Two tensor masks are broadcast and stored as one.
    ///
    /// ```
    /// # use zoo_attention::Pattern;
    /// // A causal batch of two sequences with 5 and 3 tokens.
    /// let pattern = Pattern::Causal.and(Pattern::key_lengths([5, 3]));
    /// ```
    pub fn and(self, other: Self) -> Self {
        Self::And(Box::new(self), Box::new(other))
    }

    /// The union: a key is visible if either pattern allows it.
    ///
    /// If a part is a tensor (`KeyPadding`, `Dense`), the union is stored as a dense mask over all
    /// queries and keys. Key lengths are not a tensor and need no such memory.
    ///
    /// ```
    /// # use zoo_attention::Pattern;
    /// // A window, and the first position as a global token.
    /// let pattern = Pattern::Window { left: 8, right: 8 }.or(Pattern::Global(vec![0]));
    /// ```
    pub fn or(self, other: Self) -> Self {
        Self::Or(Box::new(self), Box::new(other))
    }
}
