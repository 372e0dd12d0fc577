//! The portable kernel: a loop over the backend's operations.
//!
//! Both directions run together: tensors are first rearranged to time steps, `[seq, directions,
//! batch, ..]`, with the backward direction reversed. Padding then comes last in the forward
//! direction and first in the backward one, and leaves the state unchanged in both.

mod backward;
mod step;
mod time_steps;

use burn::backend::Shape;
use burn::backend::tensor::FloatTensor;

pub(super) use self::backward::backward;
use self::step::{States, step};
use self::time_steps::{TimeSteps, select, stack};
use super::call::{Activations, ForwardOutput, Settings};
use crate::matmul::{MatmulOps, layer_matmul};

pub(super) fn forward<B: MatmulOps>(
    [projected, recurrent, biases, initial]: [FloatTensor<B>; 4],
    settings: &Settings,
    save_activations: bool,
) -> ForwardOutput<B> {
    let (seq, d_hidden) = (settings.seq, settings.d_hidden);
    let (cell, directions) = (settings.cell, settings.direction.num_directions());
    let steps = TimeSteps::<B>::new(settings, &projected);
    let gates = cell.gates() * d_hidden;
    let biases = B::float_reshape(biases, Shape::from([2, directions, 1, gates]));
    let [input_bias, hidden_bias] = [0, 1].map(|index| select::<B>(&biases, index));
    let recurrent = B::float_reshape(recurrent, Shape::from([directions, d_hidden, gates]));
    let projected = steps.split_steps(projected, gates); // [seq, directions, batch, gates]
    let mut states = States::<B>::from_rows(initial, settings);
    let (mut hidden, mut saved) = (Vec::with_capacity(seq), Vec::new());
    for time in 0..seq {
        let input = B::float_add(select::<B>(&projected, time), input_bias.clone());
        let product = layer_matmul::<B>(states.hidden.clone(), recurrent.clone());
        let product = B::float_add(product, hidden_bias.clone()); // [directions, batch, gates]
        let (next, activations) = step::<B>(cell, input, product, &states, save_activations);
        saved.extend(activations);
        states = states.update(next, steps.padding(time));
        hidden.push(states.hidden.clone());
    }
    let outputs = steps.zero_padding(stack::<B>(hidden));
    ForwardOutput {
        outputs: steps.merge_steps(outputs),
        last: states.into_rows(settings),
        // [seq, directions, batch, ..]
        activations: save_activations.then(|| Activations::Tensor(stack::<B>(saved))),
    }
}
