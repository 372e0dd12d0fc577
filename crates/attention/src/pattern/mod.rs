//! Who may see whom: one vocabulary for every mechanism.
//!
//! A [`Pattern`] is said in words (`causal`, `key_lengths`, ...) and combined
//! with [`and`](Pattern::and) and [`or`](Pattern::or). Mechanisms that hold the
//! whole score matrix ask it for a [dense mask](Pattern::hidden); tiled ones for a
//! [plan](Pattern::plan) of the tiles that anybody sees.

mod check;
mod coverage;
mod dense;
mod documents;
mod picture;
mod plan;
mod rows;
pub(crate) mod rule;
mod sees;
mod split;
mod summary;

use burn::tensor::{Bool, Tensor};
pub(crate) use check::fits;
pub(crate) use dense::either;
pub(crate) use plan::{Examples, kept};
pub use plan::{TilePlan, TileRun};
pub(crate) use rows::{rows_of, taken};
pub use sees::Sees;
pub(crate) use summary::{Stairs, Steps};

/// A rule for which keys each query sees.
///
/// A query's place is the key it is level with, the last query being level with the
/// last key. With more queries than keys, the first ones have no place among the keys.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Pattern {
    /// Every query sees every key.
    #[default]
    Full,
    /// A query sees the keys up to its own place.
    Causal,
    /// A query sees the keys from `left` before its own place to `right` after it.
    Window {
        /// Keys before its own place.
        left: usize,
        /// Keys after it.
        right: usize,
    },
    /// The sequence is cut into blocks of `size`; a query sees the keys of its own.
    Block {
        /// Places in a block; the last may have fewer.
        size: usize,
    },
    /// The sequence is cut into blocks of `size`; a query in block `b` sees the keys
    /// of the blocks `seen[b]`.
    Blocks {
        /// Places in a block; the last may have fewer.
        size: usize,
        /// For each block, the blocks that are seen from it, in any order.
        seen: Vec<Vec<usize>>,
    },
    /// A query sees the keys that are a multiple of `stride` away from its own place,
    /// on either side.
    Strided {
        /// Places from one to the next.
        stride: usize,
    },
    /// The sequence is cut into blocks of `block`; everyone sees the last `summary` keys of
    /// each. A last block that is cut short has fewer of these, or none.
    Summaries {
        /// Places in a block.
        block: usize,
        /// Keys seen of each; all of them, if there are no more.
        summary: usize,
    },
    /// A query sees the keys from `window` before the key of its own number to `window`
    /// after it, the first query being level with the first key: not a window like the
    /// others where there are more queries than keys, or fewer.
    Monotonic {
        /// Keys on either side.
        window: usize,
    },
    /// The keys at these places are seen by everyone, and the queries at them see
    /// everything.
    Global(Vec<usize>),
    /// `ids[b][j]` is the document that place `j` of example `b` belongs to; a query
    /// sees the keys of its own.
    Documents(Vec<Vec<usize>>),
    /// Example `b` has only its first `lengths[b]` keys.
    KeyLengths(Vec<usize>),
    /// A query sees the keys for which a function says so.
    Sees(Sees),
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
    /// What it is, in a few words, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Full => "a full pattern",
            Self::Causal => "a causal pattern",
            Self::Window { .. } => "a window",
            Self::Block { .. } | Self::Blocks { .. } => "blocks",
            Self::Strided { .. } => "a stride",
            Self::Summaries { .. } => "summaries of blocks",
            Self::Monotonic { .. } => "a monotonic window",
            Self::Global(_) => "global places",
            Self::Documents(_) => "documents",
            Self::KeyLengths(_) => "key lengths",
            Self::Sees(_) => "a function",
            Self::KeyPadding(_) => "key padding",
            Self::Dense(_) => "a dense mask",
            Self::And(..) => "patterns joined by and",
            Self::Or(..) => "patterns joined by or",
        }
    }

    /// Example `b` has only its first `lengths[b]` keys.
    pub fn key_lengths(lengths: impl Into<Vec<usize>>) -> Self {
        Self::KeyLengths(lengths.into())
    }

    /// A prefix language model: everyone sees the first `lengths[b]` keys of example
    /// `b`, and the others causally.
    pub fn prefix(lengths: impl Into<Vec<usize>>) -> Self {
        Self::Causal.or(Self::key_lengths(lengths))
    }

    /// Several documents in one sequence, none of which sees another: `ids[b][j]` is
    /// the document of place `j` of example `b`.
    ///
    /// ```
    /// # use zoo_attention::Pattern;
    /// // Two documents of 3 and 4 words, packed into one sequence and read causally.
    /// let packed = Pattern::documents([[0, 0, 0, 1, 1, 1, 1]]).and(Pattern::Causal);
    /// ```
    pub fn documents(ids: impl IntoIterator<Item = impl Into<Vec<usize>>>) -> Self {
        Self::Documents(ids.into_iter().map(Into::into).collect())
    }

    /// A window of `reach` keys on either side, and `global` places that see and are
    /// seen by all: Beltagy et al., [Longformer](https://arxiv.org/abs/2004.05150), 2020.
    pub fn longformer(reach: usize, global: impl Into<Vec<usize>>) -> Self {
        let window = Self::Window {
            left: reach,
            right: reach,
        };
        window.or(Self::Global(global.into()))
    }

    /// The `stride` keys up to its own place, and every `stride`-th key before it:
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

    /// The keys of the own block of `block` places, and the last `summary` keys of every
    /// block: Child et al., [Sparse Transformers](https://arxiv.org/abs/1904.10509), 2019.
    pub fn fixed(block: usize, summary: usize) -> Self {
        Self::Block { size: block }.or(Self::Summaries { block, summary })
    }

    /// A query sees the keys for which a function of its place and theirs says so.
    ///
    /// The last query is level with the last key: with more queries than keys, the first ones
    /// have places below zero. The same two places must have the same answer each time.
    ///
    /// The function is asked about every pair once for a plan, and about the pairs of tiles that
    /// are seen in part whenever they are computed. What another pattern beside it, joined by
    /// [`and`](Self::and), shows to nobody, it is not asked about: a window around a sparse
    /// function makes a long sequence cheap. A plan is kept for as long as the pattern is cloned
    /// and not made anew.
    ///
    /// ```
    /// # use zoo_attention::Pattern;
    /// // The neighbours at distances 0, 1, 2, 4, 8, ..., behind.
    /// let log_sparse = Pattern::sees(|query, key| {
    ///     let behind = query - key;
    ///     behind == 0 || (behind > 0 && behind.unsigned_abs().is_power_of_two())
    /// });
    /// let near = log_sparse.and(Pattern::Window { left: 512, right: 0 });
    /// ```
    pub fn sees(sees: impl Fn(i64, i64) -> bool + Send + Sync + 'static) -> Self {
        Self::Sees(Sees::new(sees))
    }

    /// Sees only what both see.
    ///
    /// Two masks that are tensors are held as one, spread to the sizes of both.
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
    /// Where a part is a tensor (`KeyPadding`, `Dense`), the whole is held as a mask of
    /// every query and key: key lengths, which are not, cost no memory.
    ///
    /// ```
    /// # use zoo_attention::Pattern;
    /// // Neighbours, and the first place for everyone.
    /// let pattern = Pattern::Window { left: 8, right: 8 }.or(Pattern::Global(vec![0]));
    /// ```
    pub fn or(self, other: Self) -> Self {
        Self::Or(Box::new(self), Box::new(other))
    }
}
