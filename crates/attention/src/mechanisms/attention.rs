//! The trait that every mechanism implements, with its inputs and outputs.

use burn::tensor::{Device, Tensor};

use super::params::{HeadSizes, MechanismParams, Params};
use crate::analysis::weights::WeightFunction;
use crate::flash::{FlashKernel, selected_kernel};
use crate::scan::{FeatureMap, LinearState};
use crate::{AttentionOptions, AttentionOutput, AttentionShape, Pattern};

/// Queries, keys and values by head: `[batch, heads, seq, d]`.
pub(crate) struct Inputs {
    pub(crate) query: Tensor<4>,
    pub(crate) key: Tensor<4>,
    pub(crate) value: Tensor<4>,
}

/// Parameters and options of a call.
pub(crate) struct Call<'a> {
    pub(crate) params: &'a Params,
    pub(crate) options: &'a AttentionOptions,
}

/// A mechanism. By default it is [`flash`](crate::flash()) with the mechanism's pattern.
pub(crate) trait Attention {
    /// The mask of the mechanism, intersected with that of the options; `None` if there is none.
    fn pattern(&self, _seq_k: usize) -> Option<Pattern> {
        None
    }

    /// The scale of the scores if the options set none.
    fn default_scale(&self, d_head: usize) -> f64 {
        1.0 / (d_head as f64).sqrt()
    }

    /// Initialises its parameters, besides the projections of a module.
    fn init_params(&self, _sizes: HeadSizes, _device: &Device) -> MechanismParams {
        MechanismParams::default()
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs { query, key, value } = inputs;
        let options = self.options(call.options, key.dims()[2], query.dims()[3]);
        crate::flash(query, key, value, &options).into()
    }

    /// The options with which `flash` computes this mechanism.
    fn options(&self, options: &AttentionOptions, seq_k: usize, d_head: usize) -> AttentionOptions {
        let mut options = match self.pattern(seq_k) {
            Some(pattern) => options.restricted_to(pattern),
            None => options.clone(),
        };
        let scale = self.default_scale(d_head);
        if options.scale.is_none() && scale != 1.0 / (d_head as f64).sqrt() {
            options.scale = Some(scale);
        }
        options
    }

    /// Whether it is a single call of [`flash`](crate::flash()).
    fn is_flash(&self) -> bool {
        true
    }

    /// The kernel that computes it, `None` if it is not a single call of the tiled kernels.
    fn kernel(&self, tensors: [&Tensor<4>; 3], options: &AttentionOptions) -> Option<FlashKernel> {
        self.is_flash().then(|| {
            let [query, key, value] = tensors;
            let [.., seq_k, d_head] = key.dims();
            selected_kernel(query, key, value, &self.options(options, seq_k, d_head))
        })
    }

    /// Its weight function, to compute the weights of chosen queries.
    fn weight_fn(
        &self,
        params: &Params,
        _query: &Tensor<4>,
        _shape: &AttentionShape,
    ) -> WeightFunction {
        match params.features.clone().or(self.features()) {
            Some(features) => WeightFunction::Features(features),
            None => WeightFunction::Softmax,
        }
    }

    /// Whether every query attends to all keys that the options allow, by one call of
    /// [`flash`](crate::flash()) that can read a decoding cache in place.
    fn attends_to_all_keys(&self) -> bool {
        false
    }

    /// Its window size on either side, if decoding needs no other keys.
    fn window(&self) -> Option<usize> {
        None
    }

    /// Its feature map, if it is linear attention.
    fn features(&self) -> Option<FeatureMap> {
        None
    }

    /// The number of its features, if it is a chunked recurrence of [`scan`](crate::scan).
    fn scan_features(&self, _d_head: usize) -> Option<usize> {
        None
    }

    /// An empty recurrent state, if it decodes with one instead of a key/value cache.
    fn state(&self, _kv_heads: usize) -> Option<LinearState> {
        self.features().map(LinearState::from_features)
    }

    /// Post-processes the context of each head before the output projection of a module.
    fn finish(&self, context: Tensor<4>) -> Tensor<4> {
        context
    }

    /// Floating-point operations of its matmuls in one forward pass.
    fn flops(&self, shape: &AttentionShape, options: &AttentionOptions) -> f64 {
        pair_flops(shape, &self.options(options, shape.seq_k, shape.d_head))
    }
}

/// Operations of scores and weighted sums over the visible pairs.
pub(crate) fn pair_flops(shape: &AttentionShape, options: &AttentionOptions) -> f64 {
    let density = |head| options.pattern.at_head(head).plan(shape, [1, 1]).density();
    let density = if options.pattern.depends_on_head() {
        (0..shape.heads).map(density).sum::<f64>() / shape.heads as f64
    } else {
        density(0)
    };
    let pairs = density * (shape.heads * shape.seq_q * shape.seq_k) as f64;
    pairs * 2.0 * (shape.d_head + shape.d_value) as f64
}

/// Operations of the queries times one matrix for each head.
pub(crate) fn projection_flops(shape: &AttentionShape) -> f64 {
    2.0 * (shape.heads * shape.seq_q * shape.d_head * shape.d_head) as f64
}
