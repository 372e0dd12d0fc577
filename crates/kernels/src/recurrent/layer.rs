//! One recurrent layer: its parameters, and the way of a sequence through it.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;

use crate::recurrent::recurrence::{Given, recurrence};
use crate::recurrent::{Cell, Direction, LayerState};

/// A layer of a [`Recurrent`](crate::recurrent::Recurrent).
#[derive(Module, Debug)]
pub struct RecurrentLayer {
    /// What goes forward, unless all goes backward.
    pub forward: Option<DirectedWeights>,
    /// What goes backward, if anything does: PyTorch's `_reverse`.
    pub reverse: Option<DirectedWeights>,
    #[module(skip)]
    pub(crate) cell: Cell,
}

/// The parameters of a layer in one direction; gates lie side by side as in PyTorch.
#[derive(Module, Debug)]
pub struct DirectedWeights {
    /// `d_input -> gates * d_hidden`: PyTorch's `weight_ih` and `bias_ih`.
    pub input: Linear,
    /// `d_hidden -> gates * d_hidden`: PyTorch's `weight_hh` and `bias_hh`.
    pub hidden: Linear,
}

impl RecurrentLayer {
    /// The way of sequences through the layer: results `[batch, seq, passes * d_hidden]`,
    /// and the state after the last place of each.
    pub(crate) fn forward(
        &self,
        input: Tensor<3>,
        lengths: Option<&[usize]>,
        state: Option<LayerState>,
    ) -> (Tensor<3>, LayerState) {
        let [batch, seq, d_input] = input.dims();
        let passes: Vec<&DirectedWeights> = self.forward.iter().chain(&self.reverse).collect();
        let side_by_side = |weights: fn(&DirectedWeights) -> Tensor<2>, dim: usize| {
            let mut tensors: Vec<_> = passes.iter().map(|pass| weights(pass)).collect();
            match tensors.len() {
                1 => tensors.remove(0),
                _ => Tensor::cat(tensors, dim),
            }
        };
        let weight = side_by_side(|pass| pass.input.weight.val(), 1);
        let [_, gates] = weight.dims();
        let projected = input.reshape([batch * seq, d_input]).matmul(weight);
        let has_bias = passes.iter().all(|pass| pass.input.bias.is_some());
        let given = Given {
            projected: projected.reshape([batch, seq, gates]),
            recurrent: side_by_side(|pass| pass.hidden.weight.val(), 0),
            input_bias: has_bias.then(|| side_by_side(|pass| row(&pass.input), 1)),
            hidden_bias: has_bias.then(|| side_by_side(|pass| row(&pass.hidden), 1)),
            state,
        };
        recurrence(given, self.cell, self.direction(), lengths)
    }

    fn direction(&self) -> Direction {
        match (&self.forward, &self.reverse) {
            (Some(_), Some(_)) => Direction::Both,
            (None, Some(_)) => Direction::Backward,
            _ => Direction::Forward,
        }
    }
}

/// A bias as a row: `[1, gates * d_hidden]`.
fn row(linear: &Linear) -> Tensor<2> {
    let [_, gates] = linear.weight.dims();
    match &linear.bias {
        Some(bias) => bias.val().reshape([1, gates]),
        None => Tensor::zeros([1, gates], &linear.weight.device()),
    }
}
