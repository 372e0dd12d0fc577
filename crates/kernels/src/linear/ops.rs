//! The linear op for backends with tensors in host memory.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Shape, TensorMetadata, backend_extension};

use crate::autodiff::{Step, record};
use crate::cpu::gemm::{Activation, Finish, column_sums, finish_backward};
use crate::hosts::Host;

/// How a weight is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Orientation {
    /// `[d_input, d_output]`
    Rows,
    /// `[d_output, d_input]`
    Columns,
}

impl Orientation {
    /// `[d_input, d_output]` of a weight.
    pub(super) fn sizes(self, [rows, columns]: [usize; 2]) -> [usize; 2] {
        match self {
            Self::Rows => [rows, columns],
            Self::Columns => [columns, rows],
        }
    }
}

/// Linear layer with bias and activation. All tensors are `f32`.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
)]
pub(crate) trait LinearOp: Backend {
    /// `f(input · weight)` of `input: [.., d_input]`.
    #[allow(unused_variables)] // unused without backends
    fn fused_linear(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        orientation: Orientation,
        activation: Activation,
    ) -> FloatTensor<Self>;

    /// `f(input · weight + bias)`
    #[allow(unused_variables)]
    fn fused_linear_bias(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        orientation: Orientation,
        activation: Activation,
    ) -> FloatTensor<Self>;
}

impl<B: Host> LinearOp for B {
    fn fused_linear(
        input: FloatTensor<B>,
        weight: FloatTensor<B>,
        orientation: Orientation,
        activation: Activation,
    ) -> FloatTensor<B> {
        Layer::<B>::new(input, weight, orientation).forward(None, activation, None)
    }

    fn fused_linear_bias(
        input: FloatTensor<B>,
        weight: FloatTensor<B>,
        bias: FloatTensor<B>,
        orientation: Orientation,
        activation: Activation,
    ) -> FloatTensor<B> {
        Layer::<B>::new(input, weight, orientation).forward(Some(&bias), activation, None)
    }
}

impl<B: Host, C: CheckpointStrategy> LinearOp for Autodiff<B, C> {
    fn fused_linear(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        orientation: Orientation,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let parents = [input.node(), weight.node()];
        let (input, weight) = (input.into_primitive(), weight.into_primitive());
        let layer = Layer::<B>::new(input, weight, orientation);
        let (output, saved) = layer.forward_and_save(None, activation);
        let step = Step::<B, _, 2>(|state, output_grad| {
            let [d_input, d_weight, _] = backward::<B>(state, output_grad);
            [d_input, d_weight]
        });
        record::<B, C, _, 2>(step, parents, (layer, activation, saved), output)
    }

    fn fused_linear_bias(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        orientation: Orientation,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let parents = [input.node(), weight.node(), bias.node()];
        let (input, weight) = (input.into_primitive(), weight.into_primitive());
        let layer = Layer::<B>::new(input, weight, orientation);
        let (output, saved) = layer.forward_and_save(Some(&bias.into_primitive()), activation);
        let state = (layer, activation, saved);
        record::<B, C, _, 3>(Step(backward::<B>), parents, state, output)
    }
}

/// The factors of a product.
#[derive(Debug, Clone)]
struct Layer<B: Backend> {
    /// `[.., d_input]`
    input: FloatTensor<B>,
    weight: FloatTensor<B>,
    orientation: Orientation,
    /// Rows of the input, `d_input` and `d_output`.
    size: [usize; 3],
}

impl<B: Host> Layer<B> {
    fn new(input: FloatTensor<B>, weight: FloatTensor<B>, orientation: Orientation) -> Self {
        let [d_input, d_output] = orientation.sizes(weight.shape().dims());
        let shape = input.shape();
        let rows: usize = shape.iter().take(shape.num_dims() - 1).product();
        Self {
            size: [rows, d_input, d_output],
            input,
            weight,
            orientation,
        }
    }

    fn output_shape(&self) -> Shape {
        let mut shape = self.input.shape();
        let last = shape.num_dims() - 1;
        shape[last] = self.size[2];
        shape
    }

    /// The output, and what the derivative of the activation is computed from.
    fn forward_and_save(
        &self,
        bias: Option<&FloatTensor<B>>,
        activation: Activation,
    ) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
        if activation.needs_input() {
            let mut sums = B::empty(&self.output_shape());
            let output = self.forward(bias, activation, Some(&mut sums));
            return (output, Some(sums));
        }
        let output = self.forward(bias, activation, None);
        let saved = (activation != Activation::Identity).then(|| output.clone());
        (output, saved)
    }

    /// The output; `sums` gets the input of the activation.
    fn forward(
        &self,
        bias: Option<&FloatTensor<B>>,
        activation: Activation,
        sums: Option<&mut FloatTensor<B>>,
    ) -> FloatTensor<B> {
        let bias = bias.map(B::elements);
        let finish = Finish {
            bias: bias.as_deref(),
            activation,
            sums: sums.map(|sums| B::elements_mut(sums)),
        };
        let is_transposed = self.orientation == Orientation::Columns;
        B::matmul(
            self.size,
            (&self.input, false),
            (&self.weight, is_transposed),
            &self.output_shape(),
            finish,
        )
    }
}

/// The gradients of input, weight and bias.
fn backward<B: Host>(
    (layer, activation, saved): (Layer<B>, Activation, Option<FloatTensor<B>>),
    output_grad: FloatTensor<B>,
) -> [FloatTensor<B>; 3] {
    let [rows, d_input, d_output] = layer.size;
    let (gradient, d_bias) = match saved {
        Some(saved) => {
            let mut gradient = B::into_unique(output_grad);
            let elements = B::elements_mut(&mut gradient);
            let d_bias = finish_backward(activation, &B::elements(&saved), elements, d_output);
            (gradient, d_bias)
        }
        None => {
            let d_bias = column_sums(&B::elements(&output_grad), d_output);
            (output_grad, d_bias)
        }
    };
    let (input, weight) = (&layer.input, &layer.weight);
    let is_transposed = layer.orientation == Orientation::Columns;
    let input_grad = B::matmul(
        [rows, d_output, d_input],
        (&gradient, false),
        (weight, !is_transposed),
        &input.shape(),
        Finish::NOTHING,
    );
    let (size, left, right) = match layer.orientation {
        Orientation::Rows => ([d_input, rows, d_output], input, &gradient),
        Orientation::Columns => ([d_output, rows, d_input], &gradient, input),
    };
    let weight_grad = B::matmul(
        size,
        (left, true),
        (right, false),
        &weight.shape(),
        Finish::NOTHING,
    );
    [input_grad, weight_grad, B::from_vec(d_bias, &[d_output])]
}
