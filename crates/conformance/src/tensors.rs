//! A problem's numbers as Burn tensors, and its mask as a pattern.

use burn::tensor::{Bool, Device, Tensor, TensorData};
use zoo_attention::{AttentionOptions, Pattern};
use zoo_testkit::{Inputs, Mask, Problem};

/// The tensors of a problem, on a device.
#[derive(Debug, Clone)]
pub struct Tensors {
    /// `[batch, heads, seq_q, d_head]`
    pub query: Tensor<4>,
    /// `[batch, kv_heads, seq_k, d_head]`
    pub key: Tensor<4>,
    /// `[batch, kv_heads, seq_k, d_value]`
    pub value: Tensor<4>,
    /// `[batch, heads, seq_q, d_value]`: the gradient that arrives at the result.
    pub upstream: Tensor<4>,
    /// The problem's mask and scale.
    pub options: AttentionOptions,
}

impl Tensors {
    /// Puts `inputs` of `problem` on `device`.
    pub fn new(problem: &Problem, inputs: &Inputs, device: &Device) -> Self {
        let tensor = |numbers: &[f32], shape: [usize; 4]| {
            Tensor::from_data(TensorData::new(numbers.to_vec(), shape), device)
        };
        Self {
            query: tensor(&inputs.query, problem.query_shape()),
            key: tensor(&inputs.key, problem.key_shape()),
            value: tensor(&inputs.value, problem.value_shape()),
            upstream: tensor(&inputs.upstream, problem.context_shape()),
            options: AttentionOptions {
                pattern: pattern(problem, &problem.mask, device),
                scale: problem.scale,
            },
        }
    }
}

/// `mask` in the words of `zoo-attention`.
pub fn pattern(problem: &Problem, mask: &Mask, device: &Device) -> Pattern {
    let join = |parts: &[Mask], by: fn(Pattern, Pattern) -> Pattern| {
        parts
            .iter()
            .map(|part| pattern(problem, part, device))
            .reduce(by)
            .unwrap_or_default()
    };
    match mask {
        Mask::Full => Pattern::Full,
        Mask::Causal => Pattern::Causal,
        Mask::KeyLengths(lengths) => Pattern::key_lengths(*lengths),
        Mask::Scattered { .. } => {
            let hidden = TensorData::new(mask.hidden(problem), problem.scores_shape());
            Pattern::Dense(Tensor::<4, Bool>::from_data(hidden, device))
        }
        Mask::All(parts) => join(parts, Pattern::and),
        Mask::Any(parts) => join(parts, Pattern::or),
    }
}
