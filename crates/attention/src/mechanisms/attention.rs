//! What every mechanism implements, and what it is given and returns.

use burn::tensor::{Device, Tensor};

use super::params::{HeadSizes, MechanismParams, Params};
use crate::analysis::weighing::Weighing;
use crate::scan::{FeatureMap, LinearState};
use crate::{AttentionOptions, AttentionShape, Pattern};

/// Queries, keys and values by head: `[batch, heads, seq, d]`.
pub(crate) struct Inputs {
    pub(crate) query: Tensor<4>,
    pub(crate) key: Tensor<4>,
    pub(crate) value: Tensor<4>,
}

pub(crate) struct Output {
    /// `[batch, heads, seq_q, d_value]`
    pub(crate) context: Tensor<4>,
    /// `[batch, heads, seq_q, seq_k]`, if the mechanism computes them as a matrix.
    pub(crate) weights: Option<Tensor<4>>,
}

/// What a mechanism returns that computes its weights as a matrix.
#[derive(Debug, Clone)]
pub struct Attended {
    /// `[batch, heads, seq_q, d_value]`: for each query, the mean of the values it attends to.
    pub context: Tensor<4>,
    /// `[batch, heads, seq_q, seq_k]`: how much each query attends to each key, before
    /// any are dropped.
    pub weights: Tensor<4>,
}

impl From<Tensor<4>> for Output {
    fn from(context: Tensor<4>) -> Self {
        Self {
            context,
            weights: None,
        }
    }
}

impl From<Attended> for Output {
    fn from(attended: Attended) -> Self {
        Self {
            context: attended.context,
            weights: Some(attended.weights),
        }
    }
}

/// What a mechanism computes. The defaults are those of [`flash`](crate::flash()) over the
/// mechanism's pattern.
pub(crate) trait Attention {
    /// The keys that it attends to, of those that the options show; `None` for all of them.
    fn pattern(&self, _seq_k: usize) -> Option<Pattern> {
        None
    }

    /// What scores are multiplied by if the options give no scale.
    fn default_scale(&self, d_head: usize) -> f64 {
        1.0 / (d_head as f64).sqrt()
    }

    /// Its parameters as they are initialised, besides the projections of a module.
    fn init_params(&self, _sizes: HeadSizes, _device: &Device) -> MechanismParams {
        MechanismParams::none()
    }

    fn forward(&self, inputs: Inputs, _params: &Params, options: &AttentionOptions) -> Output {
        let Inputs { query, key, value } = inputs;
        let options = self.options(options, key.dims()[2], query.dims()[3]);
        crate::flash(query, key, value, &options).into()
    }

    /// The options with which softmax attention computes the same.
    fn options(&self, options: &AttentionOptions, seq_k: usize, d_head: usize) -> AttentionOptions {
        let mut options = match self.pattern(seq_k) {
            Some(pattern) => within(options, pattern),
            None => options.clone(),
        };
        let scale = self.default_scale(d_head);
        if options.scale.is_none() && scale != 1.0 / (d_head as f64).sqrt() {
            options.scale = Some(scale);
        }
        options
    }

    /// Which kernel computes it: `Some` if it is a single call of [`flash`](crate::flash()).
    fn is_flash(&self) -> bool {
        true
    }

    /// How it weights keys, to be written out for chosen queries.
    fn weighing(&self, _params: &Params, _query: &Tensor<4>, _shape: &AttentionShape) -> Weighing {
        Weighing::Softmax
    }

    /// Whether every query attends to all keys that the options show, by one call of
    /// [`flash`](crate::flash()) that may read a decoding cache in place.
    fn sees_all_keys(&self) -> bool {
        false
    }

    /// The keys on either side that suffice for decoding, if it is a window.
    fn window(&self) -> Option<usize> {
        None
    }

    /// Whether its window aligns the first query with the first key, not the last with the last.
    fn is_aligned_at_start(&self) -> bool {
        false
    }

    /// Its feature map, if it is linear attention.
    fn features(&self) -> Option<FeatureMap> {
        None
    }

    /// An empty recurrent state, if it decodes with one instead of a cache of keys and values.
    fn state(&self, _kv_heads: usize) -> Option<LinearState> {
        None
    }

    /// What a module does to the context of each head before the output projection.
    fn finish(&self, context: Tensor<4>) -> Tensor<4> {
        context
    }

    /// Floating-point operations of its matmuls in one forward pass.
    fn flops(&self, shape: &AttentionShape, options: &AttentionOptions) -> f64 {
        flops_of_pairs(shape, &self.options(options, shape.seq_k, shape.d_head))
    }
}

/// The options, with no more keys visible than `pattern` shows.
pub(crate) fn within(options: &AttentionOptions, pattern: Pattern) -> AttentionOptions {
    let pattern = match options.pattern.clone() {
        Pattern::Full => pattern,
        given => given.and(pattern),
    };
    options.clone().with_pattern(pattern)
}

/// Operations of scores and weighted sums over the pairs that the options show.
pub(crate) fn flops_of_pairs(shape: &AttentionShape, options: &AttentionOptions) -> f64 {
    let share = options.pattern.plan(shape, [1, 1]).density();
    let pairs = share * (shape.heads * shape.seq_q * shape.seq_k) as f64;
    pairs * 2.0 * (shape.d_head + shape.d_value) as f64
}

/// Operations of queries through a matrix for each head.
pub(crate) fn flops_of_matrix(shape: &AttentionShape) -> f64 {
    2.0 * (shape.heads * shape.seq_q * shape.d_head * shape.d_head) as f64
}
