//! Sigmoid attention: the weight of a query-key pair does not depend on the other keys.
//!
//! ```text
//! context_i = Σ_j sigmoid(s_ij - ln n) v_j        over the visible keys
//! ```
//!
//! Ramapuram et al., [Theory, Analysis, and Best Practices for Sigmoid
//! Self-Attention](https://arxiv.org/abs/2409.04431), 2024.

use burn::tensor::{DType, Tensor};
use zoo_spec::Sigmoid;

use super::{Attention, Call, Inputs, Params};
use crate::AttentionOptions;
use crate::analysis::weights::WeightFunction;
pub use crate::flash::sigmoid_attention;
use crate::flash::{FlashKernel, Program, kernel_of_program};
use crate::precision::widen;

impl Attention for Sigmoid {
    fn is_flash(&self) -> bool {
        false
    }

    fn options(&self, inputs: &Inputs, call: Call<'_>) -> AttentionOptions {
        let [_, _, seq_k, _] = inputs.key.dims();
        with_term(self.length.unwrap_or(seq_k), &inputs.query, call.options)
    }

    fn attend(&self, inputs: Inputs, _: &Params, options: &AttentionOptions) -> Tensor<4> {
        sigmoid_attention(inputs.query, inputs.key, inputs.value, options)
    }

    fn kernel(&self, tensors: [&Tensor<4>; 3], options: &AttentionOptions) -> Option<FlashKernel> {
        let [_, _, seq_k, _] = tensors[1].dims();
        let options = with_term(self.length.unwrap_or(seq_k), tensors[0], options);
        Some(kernel_of_program(tensors, &options, Program::Sigmoid))
    }

    fn weight_fn(&self, _: &Inputs, _: &Params) -> WeightFunction {
        WeightFunction::Sigmoid
    }
}

/// The options with `-ln n` added to all scores.
fn with_term(n: usize, query: &Tensor<4>, options: &AttentionOptions) -> AttentionOptions {
    let term = -(n as f32).ln();
    let bias = match options.bias.clone() {
        Some(bias) => widen(bias).add_scalar(term),
        None => Tensor::full([1, 1, 1, 1], term, (&query.device(), DType::F32)),
    };
    options.clone().with_bias(bias)
}
