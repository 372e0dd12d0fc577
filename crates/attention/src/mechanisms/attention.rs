//! The trait that every mechanism implements, with its inputs and outputs.

use burn::tensor::{Device, Tensor};

use super::gates::Gates;
use super::params::{HeadSizes, MechanismParams, Params};
use crate::analysis::weights::WeightFunction;
use crate::flash::{FlashKernel, selected_kernel};
use crate::scan::{FeatureMap, LinearState, RecurrentState, ScanKernel};
use crate::{AttentionOptions, AttentionOutput, AttentionShape, Pattern};

/// Queries, keys and values by head: `[batch, heads, seq, d]`.
#[derive(Clone)]
pub(crate) struct Inputs {
    pub(crate) query: Tensor<4>,
    pub(crate) key: Tensor<4>,
    pub(crate) value: Tensor<4>,
    /// Gates of the keys' positions, if the mechanism has them; `None` is their initial values.
    pub(crate) gates: Option<Gates>,
}

impl Inputs {
    /// Without gates.
    pub(crate) fn new([query, key, value]: [Tensor<4>; 3]) -> Self {
        Self {
            query,
            key,
            value,
            gates: None,
        }
    }
}

/// Parameters and options of a call.
#[derive(Clone, Copy)]
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

    /// The gates of the positions of `x`, `[batch, seq, d_input]`, which decay or weight the keys.
    fn gates(&self, _params: &MechanismParams, _sizes: HeadSizes, _x: Tensor<3>) -> Option<Gates> {
        None
    }

    /// The gates of the first `seq` positions if no layer computes them, for a recurrent state.
    fn initial_gates(&self, _key: &Tensor<4>, _seq: usize) -> Option<Gates> {
        None
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let options = self.options(&inputs, call);
        self.attend(inputs, call.params, &options).into()
    }

    /// Attention with these options, to which nothing is added.
    fn attend(&self, inputs: Inputs, _params: &Params, options: &AttentionOptions) -> Tensor<4> {
        crate::flash(inputs.query, inputs.key, inputs.value, options)
    }

    /// The options with which `flash` computes this mechanism.
    fn options(&self, inputs: &Inputs, call: Call<'_>) -> AttentionOptions {
        let [.., seq_k, d_head] = inputs.key.dims();
        let mut options = self.restricted(call.options, seq_k);
        let scale = self.default_scale(d_head);
        if options.scale.is_none() && scale != 1.0 / (d_head as f64).sqrt() {
            options.scale = Some(scale);
        }
        options
    }

    /// The options with the pattern of the mechanism.
    fn restricted(&self, options: &AttentionOptions, seq_k: usize) -> AttentionOptions {
        match self.pattern(seq_k) {
            Some(pattern) => options.restricted_to(pattern),
            None => options.clone(),
        }
    }

    /// Whether it is a single call of [`flash`](crate::flash()).
    fn is_flash(&self) -> bool {
        true
    }

    /// The kernel that computes it, `None` if it is not a single call of the tiled kernels.
    fn kernel(&self, tensors: [&Tensor<4>; 3], options: &AttentionOptions) -> Option<FlashKernel> {
        self.is_flash().then(|| {
            let [query, key, value] = tensors;
            let inputs = Inputs::new(tensors.map(Tensor::clone));
            let params = &Params::default();
            let options = self.options(&inputs, Call { params, options });
            selected_kernel(query, key, value, &options)
        })
    }

    /// Its weight function, to compute the weights of chosen queries.
    fn weight_fn(&self, _inputs: &Inputs, params: &Params) -> WeightFunction {
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

    /// The keys that decoding needs, if not all.
    fn retained(&self) -> Option<Retained> {
        None
    }

    /// The pattern of a single query that is aligned with the last key.
    fn step_pattern(&self, seq_k: usize) -> Option<Pattern> {
        self.pattern(seq_k)
    }

    /// Its feature map, if it is linear attention.
    fn features(&self) -> Option<FeatureMap> {
        None
    }

    /// The kernel of a call, if it is a chunked recurrence of [`scan`](crate::scan).
    fn scan_kernel(&self, _query: &Tensor<4>, _shape: &AttentionShape) -> Option<ScanKernel> {
        None
    }

    /// An empty recurrent state, if it decodes with one instead of a key/value cache.
    fn state(&self, _kv_heads: usize) -> Option<RecurrentState> {
        let state = self.features().map(LinearState::from_features);
        state.map(RecurrentState::Linear)
    }

    /// Post-processes the context of each head before the output projection of a module.
    fn finish(&self, _params: &MechanismParams, context: Tensor<4>) -> Tensor<4> {
        context
    }

    /// Floating-point operations of its matmuls in one forward pass.
    fn flops(&self, shape: &AttentionShape, options: &AttentionOptions) -> f64 {
        pair_flops(shape, &self.restricted(options, shape.seq_k))
    }
}

/// The keys that decoding needs: some at the start of the sequence, and the last ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retained {
    pub(crate) first: usize,
    pub(crate) last: usize,
}

impl Retained {
    /// The query's own position and `window` before it.
    pub(crate) fn window(window: usize) -> Self {
        Self {
            first: 0,
            last: window.saturating_add(1),
        }
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
