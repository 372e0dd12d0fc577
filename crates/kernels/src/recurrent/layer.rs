//! A recurrent layer and its state.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;

use crate::linear::product;
use crate::recurrent::recurrence::{RecurrenceInputs, recurrence};
use crate::recurrent::{Cell, Direction};

/// A layer of a [`Recurrent`](crate::recurrent::Recurrent).
#[derive(Module, Debug)]
pub struct RecurrentLayer {
    /// Weights of the forward direction, if there is one.
    pub forward: Option<DirectedWeights>,
    /// Weights of the backward direction, if there is one: PyTorch's `_reverse`.
    pub reverse: Option<DirectedWeights>,
    #[module(skip)]
    pub(crate) cell: Cell,
}

/// The parameters of one direction of a layer; gates are concatenated as in PyTorch.
#[derive(Module, Debug)]
pub struct DirectedWeights {
    /// `d_input -> gates * d_hidden`: PyTorch's `weight_ih` and `bias_ih`.
    pub input: Linear,
    /// `d_hidden -> gates * d_hidden`: PyTorch's `weight_hh` and `bias_hh`.
    pub hidden: Linear,
}

/// The state of a layer.
#[derive(Debug, Clone)]
pub struct LayerState {
    /// Hidden state `[batch, directions * d_hidden]`, the forward direction first.
    pub hidden: Tensor<2>,
    /// Cell state of an LSTM, of the same shape; `None` for a GRU.
    pub cell: Option<Tensor<2>>,
}

impl RecurrentLayer {
    /// Outputs `[batch, seq, directions * d_hidden]` and the final states.
    pub(crate) fn forward(
        &self,
        input: Tensor<3>,
        lengths: Option<&[usize]>,
        state: Option<LayerState>,
    ) -> (Tensor<3>, LayerState) {
        let [batch, seq, d_input] = input.dims();
        let directions: Vec<&DirectedWeights> = self.forward.iter().chain(&self.reverse).collect();
        let cat = |weights: fn(&DirectedWeights) -> Tensor<2>, dim: usize| {
            let mut tensors: Vec<_> = directions.iter().map(|d| weights(d)).collect();
            match tensors.len() {
                1 => tensors.remove(0),
                _ => Tensor::cat(tensors, dim),
            }
        };
        let weight = cat(|d| d.input.weight.val(), 1);
        let [_, gates] = weight.dims();
        let projected = product(input.reshape([batch * seq, d_input]), weight);
        let has_bias = directions.iter().all(|d| d.input.bias.is_some());
        let inputs = RecurrenceInputs {
            projected: projected.reshape([batch, seq, gates]),
            recurrent: cat(|d| d.hidden.weight.val(), 0),
            input_bias: has_bias.then(|| cat(|d| bias_row(&d.input), 1)),
            hidden_bias: has_bias.then(|| cat(|d| bias_row(&d.hidden), 1)),
            state,
        };
        recurrence(inputs, self.cell, self.direction(), lengths)
    }

    fn direction(&self) -> Direction {
        match (&self.forward, &self.reverse) {
            (Some(_), Some(_)) => Direction::Both,
            (None, Some(_)) => Direction::Backward,
            _ => Direction::Forward,
        }
    }
}

/// The bias as `[1, gates * d_hidden]`.
fn bias_row(linear: &Linear) -> Tensor<2> {
    let [_, gates] = linear.weight.dims();
    match &linear.bias {
        Some(bias) => bias.val().reshape([1, gates]),
        None => Tensor::zeros([1, gates], &linear.weight.device()),
    }
}
