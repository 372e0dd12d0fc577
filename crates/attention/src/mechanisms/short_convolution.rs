//! Short causal convolution of a layer's queries, keys and values, before they are split into heads:
//!
//! ```text
//! y_t = silu(Σ_i w_i ∘ x_(t-i))        i = 0 .. size - 1
//! ```
//!
//! Gu and Dao, [Mamba](https://arxiv.org/abs/2312.00752), 2023.

use burn::module::{Module, Param};
use burn::nn::Initializer;
use burn::tensor::{Device, Tensor};
use zoo_kernels::causal_convolution;

use super::HeadSizes;
use crate::decode::cache::select_batch;

/// The weights of the convolutions: row `i` is that of the position `i` before.
#[derive(Module, Debug)]
pub struct ShortConvolution {
    /// `[size, n_heads * d_head]`
    pub query: Param<Tensor<2>>,
    /// `[size, n_heads_kv * d_head]`
    pub key: Param<Tensor<2>>,
    /// `[size, n_heads_kv * d_head]`
    pub value: Param<Tensor<2>>,
}

impl ShortConvolution {
    pub(crate) fn init(size: usize, sizes: HeadSizes, device: &Device) -> Self {
        let HeadSizes {
            heads,
            kv_heads,
            d_head,
            ..
        } = sizes;
        // As PyTorch initialises a convolution of each element.
        let bound = 1.0 / (size as f64).sqrt();
        let uniform = Initializer::Uniform {
            min: -bound,
            max: bound,
        };
        let weight = |heads: usize| uniform.init([size, heads * d_head], device);
        Self {
            query: weight(heads),
            key: weight(kv_heads),
            value: weight(kv_heads),
        }
    }

    /// Convolves queries, keys and values, `[batch, seq, heads * d_head]`.
    pub(crate) fn forward(&self, projected: [Tensor<3>; 3]) -> [Tensor<3>; 3] {
        let [query, key, value] = projected;
        [
            causal_convolution(query, self.query.val()),
            causal_convolution(key, self.key.val()),
            causal_convolution(value, self.value.val()),
        ]
    }

    /// [`forward`](Self::forward) for positions after earlier ones, and the inputs that the next
    /// positions need.
    pub(crate) fn continue_from(
        &self,
        before: Option<ConvolutionInputs>,
        projected: [Tensor<3>; 3],
    ) -> ([Tensor<3>; 3], ConvolutionInputs) {
        let [size, _] = self.query.dims();
        let [_, new, _] = projected[0].dims();
        let inputs = match before {
            Some(ConvolutionInputs(before)) => join(before, projected),
            None => projected,
        };
        let [_, count, _] = inputs[0].dims();
        let last = |tensor: &Tensor<3>, positions: usize| {
            tensor.clone().slice_dim(1, count - positions..count)
        };
        let kept = inputs
            .each_ref()
            .map(|tensor| last(tensor, count.min(size - 1)));
        let outputs = self.forward(inputs).map(|tensor| last(&tensor, new));
        (outputs, ConvolutionInputs(kept))
    }
}

fn join(before: [Tensor<3>; 3], after: [Tensor<3>; 3]) -> [Tensor<3>; 3] {
    let [a, b, c] = before;
    let [x, y, z] = after;
    [[a, x], [b, y], [c, z]].map(|pair| Tensor::cat(pair.to_vec(), 1))
}

/// The last inputs of the convolutions of queries, keys and values: up to `size - 1` positions.
#[derive(Debug, Clone)]
pub(crate) struct ConvolutionInputs([Tensor<3>; 3]);

impl ConvolutionInputs {
    /// The inputs of the sequences with these batch indices, in this order.
    pub(crate) fn select(&self, batch: &[usize]) -> Self {
        Self(self.0.clone().map(|inputs| select_batch(inputs, batch)))
    }

    /// Number of elements.
    pub(crate) fn num_elements(&self) -> usize {
        self.0.iter().map(|x| x.shape().num_elements()).sum()
    }
}
