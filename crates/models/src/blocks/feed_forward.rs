//! Position-wise feed-forward network.
//!
//! ```text
//! relu, gelu   activation(x W_i + b_i) W_o + b_o
//! swiglu       (swish(x W_g + b_g) · (x W_i + b_i)) W_o + b_o
//! ```

use burn::module::Module;
use burn::nn::{Dropout, Linear};
use burn::tensor::{Tensor, activation};
use zoo_kernels::{dropout, relu_dropout};
use zoo_spec::Activation;

/// Position-wise feed-forward network with one hidden layer.
#[derive(Module, Debug)]
pub struct FeedForward {
    /// `d_model -> d_feed_forward`
    pub inner: Linear,
    /// `d_model -> d_feed_forward`: the gate of `swiglu`.
    pub gate: Option<Linear>,
    /// `d_feed_forward -> d_model`
    pub outer: Linear,
    /// Dropout of the hidden layer.
    pub dropout: Dropout,
    #[module(skip)]
    pub(crate) activation: Activation,
}

impl FeedForward {
    /// # Shapes
    ///
    /// - x: `[batch, seq, d_model]`
    /// - output: `[batch, seq, d_model]`
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, seq, d_model] = x.dims();
        // One matmul for the whole batch: Burn would run a batched matmul, one per sequence.
        let x = x.reshape([batch * seq, d_model]);
        let inner = self.inner.forward(x.clone()); // [batch * seq, d_feed_forward]
        let inner = match (&self.gate, self.activation) {
            (Some(gate), _) => {
                let gated = activation::silu(gate.forward(x)) * inner;
                dropout(&self.dropout, gated)
            }
            (None, Activation::Relu) => relu_dropout(&self.dropout, inner),
            (None, Activation::GeluTanh) => dropout(&self.dropout, gelu_tanh(inner)),
            (None, Activation::Gelu | Activation::Swiglu) => {
                dropout(&self.dropout, activation::gelu(inner))
            }
        };
        let outer = self.outer.forward(inner); // [batch * seq, d_model]
        outer.reshape([batch, seq, d_model])
    }

    /// Floating-point operations of the matmuls for one position.
    pub(crate) fn flops(&self) -> f64 {
        let matrices = [Some(&self.inner), self.gate.as_ref(), Some(&self.outer)];
        let matrices = matrices.into_iter().flatten();
        let elements = matrices.map(|linear| linear.weight.lazy_shape().num_elements());
        2.0 * elements.sum::<usize>() as f64
    }
}

/// `x/2 · (1 + tanh(sqrt(2/π) · (x + 0.044715 x³)))`, by `(1 + tanh y) / 2 = sigmoid(2y)`:
/// fewer operations, and no power of a negative number.
fn gelu_tanh(x: Tensor<2>) -> Tensor<2> {
    let slope = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
    let factor = x
        .clone()
        .square()
        .mul_scalar(0.044715 * slope)
        .add_scalar(slope);
    x.clone() * activation::sigmoid(x * factor)
}
