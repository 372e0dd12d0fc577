//! Arguments and results of the tiled attention op, shared by all kernels.

use std::ops::Range;
use std::sync::Arc;

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, ExtensionType};

use crate::analysis::weights::HardSelection;
use crate::pattern::gather::GatherPlan;
use crate::pattern::rule::Rule;
use crate::pattern::{Examples, TilePlan, cached_plan};
use crate::score_mod::ScoreMod;
use crate::{AttentionShape, Dropout};

/// The score of masked keys, instead of minus infinity: WGSL does not guarantee infinities, and
/// the difference of two is NaN. About half of `f32::MIN`, so that a difference of two scores is
/// finite.
pub(crate) const MASKED_SCORE: f32 = -2e38;

/// The lower bound for the score of a visible key, however negative its bias is.
pub(crate) const MIN_VISIBLE_SCORE: f32 = -1e38;

/// `0..length` in ranges of `size`; the last may be shorter.
pub(crate) fn tiles(length: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length)
        .step_by(size)
        .map(move |start| start..length.min(start + size))
}

/// Arguments of the op besides its tensors.
#[derive(Debug, Clone)]
pub(crate) struct TiledSettings {
    pub(crate) shape: AttentionShape,
    pub(crate) rule: Arc<Rule>,
    /// The visible pairs of the rule as gathered tiles, for the kernels of the CPU and LibTorch.
    #[cfg_attr(
        not(any(feature = "flex", feature = "ndarray", feature = "tch")),
        allow(dead_code)
    )]
    pub(crate) gather: Option<Arc<GatherPlan>>,
    pub(crate) scale: f64,
    pub(crate) softcap: Option<f64>,
    /// A slope for each query head.
    pub(crate) alibi: Option<Arc<[f32]>>,
    /// Whether the bias is given for each relative position of query and key, as
    /// `[1, heads, 1, seq_q + seq_k - 1]`. Not for ATen kernels.
    pub(crate) has_relative_bias: bool,
    pub(crate) dropout: Option<Dropout>,
    /// Whether masked keys and values may be assumed to be finite, and scores of ordinary size.
    /// Only LibTorch's CUDA kernels benefit from it.
    #[cfg_attr(not(feature = "tch"), allow(dead_code))]
    pub(crate) assume_finite: bool,
    /// How scores and weights are computed.
    pub(crate) program: Program,
    /// Index of the first head of the tensors among the heads of the call.
    pub(crate) first_head: usize,
    /// Whether statistics are saved that only the backward pass needs, by CPU and CubeCL kernels.
    #[cfg_attr(
        not(any(
            feature = "flex",
            feature = "ndarray",
            feature = "tch",
            feature = "cube"
        )),
        allow(dead_code)
    )]
    pub(crate) is_tracked: bool,
    /// A function of the scaled dot products, before all other options.
    pub(crate) score_mod: Option<ScoreMod>,
    /// Use the tile loops even where there are GPU kernels. For tests that compare the two.
    pub(crate) is_portable: bool,
}

impl TiledSettings {
    /// The tile plan, cached.
    pub(crate) fn plan(&self, tile: [usize; 2], examples: Examples) -> Arc<TilePlan> {
        cached_plan(&self.rule, &self.shape, tile, examples)
    }

    /// A rule with a scale of 0.3 and no other options.
    #[cfg(all(test, any(feature = "tch", feature = "cube")))]
    pub(crate) fn from_rule(shape: AttentionShape, rule: Rule) -> Self {
        Self {
            shape,
            rule: Arc::new(rule),
            gather: None,
            scale: 0.3,
            softcap: None,
            alibi: None,
            has_relative_bias: false,
            dropout: None,
            assume_finite: false,
            program: Program::Softmax,
            first_head: 0,
            is_tracked: false,
            score_mod: None,
            is_portable: false,
        }
    }
}

/// How the scores of a tile are computed, and its weights from the scores. The options of a call
/// (softcap, ALiBi, bias, mask, dropout) apply to all of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Program {
    /// Softmax of scaled dot products.
    Softmax,
    /// Softmax of `scale · vector · tanh(query + key)`. The parameter is the vector of each head,
    /// `[1, heads, 1, d_head]`.
    Additive,
    /// Softmax of scaled dot products over the keys within `window` of a position, multiplied by
    /// `exp(-2 (key - position)² / window²)`. The parameter is the position of each query,
    /// `[batch, heads, seq_q, 1]`. For the CPU kernels it may have a second column, the last key
    /// that the query may attend to: then queries can be in any order.
    Gaussian { window: f32 },
    /// The sigmoid of scaled dot products, without normalisation.
    Sigmoid,
    /// The value of a single key, with the straight-through gradient if it is sampled.
    Hard(HardSelection),
}

/// The input tensors of a call.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) struct Inputs<B: Backend> {
    pub(crate) query: FloatTensor<B>,
    pub(crate) key: FloatTensor<B>,
    pub(crate) value: FloatTensor<B>,
    #[extension_type]
    pub(crate) mask: DenseMask<B>,
    #[extension_type]
    pub(crate) bias: Optional<B>,
    /// The parameter of the [`Program`].
    #[extension_type]
    pub(crate) parameter: Optional<B>,
}

impl<B: Backend> Inputs<B> {
    pub(crate) fn new(
        qkv: [FloatTensor<B>; 3],
        mask: DenseMask<B>,
        [bias, parameter]: [Optional<B>; 2],
    ) -> Self {
        let [query, key, value] = qkv;
        Self {
            query,
            key,
            value,
            mask,
            bias,
            parameter,
        }
    }
}

/// Context, log-sum-exp and [softmax statistics](Saved::stats).
pub(crate) type Outputs<B> = (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>);

/// An optional boolean mask in addition to the rule of the settings.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) enum DenseMask<B: Backend> {
    None,
    /// Broadcasts to `[batch, heads, seq_q, seq_k]`; `true` masks.
    Bool(BoolTensor<B>),
}

/// An optional tensor: a bias that broadcasts to `[batch, heads, seq_q, seq_k]`, or the parameter of
/// a program.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) enum Optional<B: Backend> {
    None,
    Tensor(FloatTensor<B>),
}

impl<B: Backend> DenseMask<B> {
    pub(crate) fn as_ref(&self) -> Option<&BoolTensor<B>> {
        match self {
            Self::None => None,
            Self::Bool(mask) => Some(mask),
        }
    }
}

impl<B: Backend> Optional<B> {
    pub(crate) fn as_ref(&self) -> Option<&FloatTensor<B>> {
        match self {
            Self::None => None,
            Self::Tensor(tensor) => Some(tensor),
        }
    }
}

/// Tensors saved for backward.
#[derive(Debug, Clone)]
pub(crate) struct Saved<B: Backend> {
    pub(crate) inputs: Inputs<B>,
    pub(crate) context: FloatTensor<B>,
    /// Softmax statistics: for each row, the maximum of its scores and the sum of
    /// `exp(score - maximum)`, which is zero for a fully masked row. The log-sum-exp alone would
    /// have no precision left for the sum if scores are large. The maximum is in base 2
    /// on the CPU and in base e elsewhere. [`Program::Hard`] appends the index of the
    /// selected key and, if it is sampled in training, the context of the soft weights.
    pub(crate) stats: FloatTensor<B>,
}

/// Output gradients, and whether the bias needs a gradient.
#[derive(Debug, Clone)]
pub(crate) struct OutputGrads<B: Backend> {
    pub(crate) d_context: FloatTensor<B>,
    pub(crate) d_log_sum_exp: Option<FloatTensor<B>>,
    pub(crate) needs_bias_grad: bool,
}

/// Input gradients; that of the bias only if it was requested, that of the parameter if there is
/// one.
#[derive(Debug, Clone)]
pub(crate) struct InputGrads<B: Backend> {
    /// Of query, key and value.
    pub(crate) qkv: [FloatTensor<B>; 3],
    pub(crate) bias: Option<FloatTensor<B>>,
    pub(crate) parameter: Option<FloatTensor<B>>,
}
