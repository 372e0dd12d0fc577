//! Position-wise feed-forward network.
//!
//! ```text
//! relu, gelu   activation(x W_i + b_i) W_o + b_o
//! swiglu       (swish(x W_g + b_g) · (x W_i + b_i)) W_o + b_o
//! ```

use burn::module::Module;
use burn::nn::{Dropout, Linear};
use burn::tensor::{Tensor, activation};
use zoo_kernels::{Activation as Function, dropout, linear};
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
        let inner = |function, x| linear(&self.inner, function, x);
        let hidden = match (&self.gate, self.activation) {
            (Some(gate), _) => {
                let gate = linear(gate, Function::Identity, x.clone());
                activation::silu(gate) * inner(Function::Identity, x)
            }
            (None, Activation::Relu) => inner(Function::Relu, x),
            (None, Activation::GeluTanh) => inner(Function::GeluTanh, x),
            (None, Activation::Gelu | Activation::Swiglu) => {
                activation::gelu(inner(Function::Identity, x))
            }
        }; // [batch, seq, d_feed_forward]
        linear(
            &self.outer,
            Function::Identity,
            dropout(&self.dropout, hidden),
        )
    }

    /// Floating-point operations of the matmuls for one position.
    pub(crate) fn flops(&self) -> f64 {
        let matrices = [Some(&self.inner), self.gate.as_ref(), Some(&self.outer)];
        let matrices = matrices.into_iter().flatten();
        let elements = matrices.map(|linear| linear.weight.lazy_shape().num_elements());
        2.0 * elements.sum::<usize>() as f64
    }
}
