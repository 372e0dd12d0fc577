//! Softmax attention with a sink, a score without a value:
//!
//! ```text
//! weight_ij = exp(s_ij) / (exp(sink) + Σ_j exp(s_ij))
//! ```
//!
//! With a window, every query also attends to the first keys of the sequence, and decoding stores
//! those and the window, however long the sequence is.
//!
//! Xiao et al., [Efficient Streaming Language Models with Attention
//! Sinks](https://arxiv.org/abs/2309.17453), 2023; learned sinks: gpt-oss, 2025.

use burn::module::Param;
use burn::tensor::{Device, Tensor};
use zoo_spec::Sink;

use super::{Attention, HeadSizes, Inputs, MechanismParams, Params, Retained};
use crate::analysis::weights::WeightFunction;
pub use crate::flash::flash_with_sink;
use crate::{AttentionOptions, Pattern};

impl Attention for Sink {
    fn pattern(&self, seq_k: usize) -> Option<Pattern> {
        let first: Vec<usize> = (0..self.first.min(seq_k)).collect();
        self.window.map(|window| Pattern::longformer(window, first))
    }

    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        let zeros = || Param::from_tensor(Tensor::zeros([sizes.heads], device));
        MechanismParams {
            sink: self.learned.then(zeros),
            ..MechanismParams::default()
        }
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn attend(&self, inputs: Inputs, params: &Params, options: &AttentionOptions) -> Tensor<4> {
        let sink = params.sink(&inputs.query);
        flash_with_sink(inputs.query, inputs.key, inputs.value, sink, options)
    }

    fn weight_fn(&self, inputs: &Inputs, params: &Params) -> WeightFunction {
        WeightFunction::Sink(params.sink(&inputs.query))
    }

    fn attends_to_all_keys(&self) -> bool {
        self.window.is_none()
    }

    fn retained(&self) -> Option<Retained> {
        let retained = |window| Retained {
            first: self.first,
            ..Retained::window(window)
        };
        self.window.map(retained)
    }
}
