//! What a mechanism can be used for.

use super::{Mechanism, MechanismConfig};

/// Whether something is supported; the error is the reason why not, a clause that follows
/// "because" or a colon.
pub type Support = Result<(), &'static str>;

/// What a mechanism can be used for. Mechanisms outside of the families [`dense`](Self::dense) and
/// [`from_pattern`](Self::from_pattern) state every field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// How many key and value heads it has.
    pub kv_heads: KvHeads,
    /// Attention from one sequence to another.
    pub cross_attention: Support,
    /// Attention to later positions, as in an encoder.
    pub bidirectional: Support,
    /// Attention to earlier positions only, as in a decoder.
    pub causal: Support,
    /// Decoding token by token.
    pub decoding: Support,
    /// An odd number of elements per head.
    pub odd_d_head: Support,
    /// What padding at the end of a sequence does to the positions before it.
    pub padding: Padding,
    /// The options of a call that it supports.
    pub options: SupportedOptions,
    /// Whether it computes its weights as a matrix and can return them.
    pub returns_weights: bool,
    /// What distinguishes it from full softmax attention.
    pub difference: Difference,
    /// The longest sequence that it supports, if that is limited.
    pub max_length: Option<usize>,
}

/// How many key and value heads a mechanism has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvHeads {
    /// Any divisor of the number of query heads, by default as many.
    Any,
    /// This many.
    Exactly(usize),
    /// One for every four query heads: the largest divisor of their number up to a quarter of it.
    Quarter,
    /// As many as query heads, since the keys are the normalised queries.
    FromQueries,
}

impl KvHeads {
    /// Their number for `heads` query heads, if the mechanism determines it.
    pub fn count(self, heads: usize) -> Option<usize> {
        match self {
            Self::Any | Self::FromQueries => None,
            Self::Exactly(kv_heads) => Some(kv_heads),
            Self::Quarter => {
                let divides = |kv_heads: &usize| heads.is_multiple_of(*kv_heads);
                (1..=heads / 4).rev().find(divides).or(Some(1))
            }
        }
    }
}

/// What padding at the end of a sequence does to the positions before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Nothing if a causal mask or key lengths mask it.
    Masked,
    /// Nothing if key lengths are given; a causal mask is not enough, because all keys contribute.
    NeedsKeyLengths,
    /// It changes the result, for this reason; such sequences are batched by length.
    ChangesResult(&'static str),
}

/// The options of a call that a mechanism supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupportedOptions {
    /// A cap on the scores.
    pub softcap: Support,
    /// ALiBi.
    pub alibi: Support,
    /// A bias added to the scores.
    pub bias: Support,
    /// Dropout of attention weights.
    pub dropout: Support,
    /// A dense mask.
    pub dense_mask: Support,
    /// A temperature or another scale of the scores.
    pub temperature: Support,
    /// The entropy of the weights: they are a distribution over the keys.
    pub entropy: Support,
}

impl SupportedOptions {
    /// All of them.
    pub const ALL: Self = Self {
        softcap: Ok(()),
        alibi: Ok(()),
        bias: Ok(()),
        dropout: Ok(()),
        dense_mask: Ok(()),
        temperature: Ok(()),
        entropy: Ok(()),
    };

    /// None of them: the mechanism computes no scores that they could change.
    pub const NO_SCORES: Self = Self {
        softcap: NO_SCORES,
        alibi: NO_SCORES,
        bias: NO_SCORES,
        dropout: NO_SCORES,
        dense_mask: Err("it accepts full and causal patterns, key lengths and key padding only"),
        temperature: NO_SCORES,
        entropy: Ok(()),
    };
}

/// The options of a mechanism without a score for each pair of a query and a key.
pub(super) const WITHOUT_SCORES_OF_PAIRS: SupportedOptions = SupportedOptions {
    softcap: NO_PAIRS,
    alibi: NO_PAIRS,
    bias: NO_PAIRS,
    dropout: NO_PAIRS,
    dense_mask: Err("it accepts the full pattern, key lengths and key padding only"),
    temperature: NO_PAIRS,
    entropy: Ok(()),
};

const NO_PAIRS: Support = Err("it computes no scores or weights of pairs of queries and keys");

/// Why the entropy of a mechanism is undefined.
pub(super) const NO_DISTRIBUTION: Support = Err("its weights do not sum to one");

const NO_SCORES: Support = Err("it computes no scores or weights");

/// What distinguishes a mechanism from full softmax attention over the same queries, keys and
/// values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// Nothing: it is full attention.
    None,
    /// Query heads share key and value heads.
    SharedHeads,
    /// It masks further keys.
    MaskedKeys,
    /// It weights the same keys differently.
    Weights,
}

impl From<Mechanism> for Difference {
    fn from(mechanism: Mechanism) -> Self {
        MechanismConfig::from(mechanism).capabilities().difference
    }
}

impl Capabilities {
    /// The capabilities of softmax attention over all keys, without returned weights.
    pub const fn dense(kv_heads: KvHeads, difference: Difference) -> Self {
        Self {
            kv_heads,
            cross_attention: Ok(()),
            bidirectional: Ok(()),
            causal: Ok(()),
            decoding: Ok(()),
            odd_d_head: Ok(()),
            padding: Padding::Masked,
            options: SupportedOptions::ALL,
            returns_weights: false,
            difference,
            max_length: None,
        }
    }

    /// The same, with returned weights.
    pub const fn with_weights(mut self) -> Self {
        self.returns_weights = true;
        self
    }

    /// The capabilities of a causal recurrence, whose weights are no distribution.
    pub const fn recurrent() -> Self {
        Self {
            kv_heads: KvHeads::Any,
            cross_attention: Err("its state is that of earlier positions of the same sequence"),
            bidirectional: Err("it is causal"),
            causal: Ok(()),
            decoding: Ok(()),
            odd_d_head: Ok(()),
            padding: Padding::Masked,
            options: SupportedOptions {
                entropy: NO_DISTRIBUTION,
                ..SupportedOptions::NO_SCORES
            },
            returns_weights: false,
            difference: Difference::Weights,
            max_length: None,
        }
    }

    /// The capabilities of exact softmax attention over the visible keys of a sparse pattern on a
    /// single sequence.
    pub const fn from_pattern(decoding: Support, padding: Padding) -> Self {
        Self {
            cross_attention: Err(
                "its pattern is defined on a single sequence, and cross-attention has two",
            ),
            decoding,
            padding,
            ..Self::dense(KvHeads::Any, Difference::MaskedKeys)
        }
    }
}
