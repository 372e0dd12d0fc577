//! What a call of tiled attention is given and what it returns, whichever kernel computes it.

use std::sync::Arc;

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, ExtensionType};

use crate::pattern::rule::Rule;
use crate::{AttentionShape, Dropout};

/// Arguments of the op besides its tensors.
#[derive(Debug, Clone)]
pub(crate) struct TiledSettings {
    pub(crate) shape: AttentionShape,
    pub(crate) rule: Arc<Rule>,
    pub(crate) scale: f64,
    pub(crate) softcap: Option<f64>,
    /// A slope for each query head.
    pub(crate) alibi: Option<Arc<[f32]>>,
    pub(crate) dropout: Option<Dropout>,
    /// Whether masked keys and values may be assumed to be finite, and scores of ordinary size.
    /// Only LibTorch's kernels for CUDA gain by it.
    #[cfg_attr(not(feature = "tch"), allow(dead_code))]
    pub(crate) assume_finite: bool,
    /// Computed by the portable body even where there are kernels: for tests that compare
    /// the two.
    pub(crate) is_portable: bool,
}

#[cfg(all(test, feature = "tch"))]
impl TiledSettings {
    /// What a rule shows, at a scale of 0.3, with no other option.
    pub(crate) fn of_rule(shape: AttentionShape, rule: Rule) -> Self {
        Self {
            shape,
            rule: Arc::new(rule),
            scale: 0.3,
            softcap: None,
            alibi: None,
            dropout: None,
            assume_finite: false,
            is_portable: false,
        }
    }
}

/// The tensors of a call.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) struct Inputs<B: Backend> {
    pub(crate) query: FloatTensor<B>,
    pub(crate) key: FloatTensor<B>,
    pub(crate) value: FloatTensor<B>,
    #[extension_type]
    pub(crate) hidden: MoreHidden<B>,
    #[extension_type]
    pub(crate) bias: Bias<B>,
}

/// Context, log-sum-exp and [softmax statistics](Saved::stats).
pub(crate) type Outputs<B> = (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>);

/// A mask beyond what the settings say, if there is one.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) enum MoreHidden<B: Backend> {
    Nothing,
    /// `[batch, heads, seq_q, seq_k]`, any of them 1 to stand for all: `true` hides.
    Where(BoolTensor<B>),
}

/// What is added to the scores, if anything.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) enum Bias<B: Backend> {
    Nothing,
    /// `[batch, heads, seq_q, seq_k]`, any of them 1 to stand for all.
    Added(FloatTensor<B>),
}

impl<B: Backend> Bias<B> {
    pub(crate) fn as_ref(&self) -> Option<&FloatTensor<B>> {
        match self {
            Self::Nothing => None,
            Self::Added(bias) => Some(bias),
        }
    }
}

/// What the backward pass starts from.
#[derive(Debug, Clone)]
pub(crate) struct Saved<B: Backend> {
    pub(crate) inputs: Inputs<B>,
    pub(crate) context: FloatTensor<B>,
    /// For each row, the maximum of its scores and the sum of the exponentials of what they
    /// are below it; a sum of zero if the row is fully masked. One number, the log-sum-exp,
    /// would have no digits left for the sum where scores are large. The maximum is in the
    /// units of the kernel that computed it: of log 2 on the CPU, natural elsewhere.
    pub(crate) stats: FloatTensor<B>,
}

/// Output gradients, and which input gradients are requested.
#[derive(Debug, Clone)]
pub(crate) struct Arrived<B: Backend> {
    pub(crate) d_context: FloatTensor<B>,
    /// The gradient by the log-sum-exp, if that was used.
    pub(crate) d_log_sum_exp: Option<FloatTensor<B>>,
    /// Whether the gradient by the bias is wanted.
    pub(crate) wants_bias: bool,
}

/// The gradients by query, key and value, and by the bias if that was wanted.
#[derive(Debug, Clone)]
pub(crate) struct InputGradients<B: Backend> {
    pub(crate) query: FloatTensor<B>,
    pub(crate) key: FloatTensor<B>,
    pub(crate) value: FloatTensor<B>,
    pub(crate) bias: Option<FloatTensor<B>>,
}
