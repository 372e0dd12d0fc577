//! The portable kernel: a loop over the backend's operations.
//!
//! Both directions run together: tensors are first rearranged to time steps, `[seq, directions,
//! batch, ..]`, with the backward direction reversed. Padding then comes last in the forward
//! direction and first in the backward one, and leaves the state unchanged in both.

mod backward;
mod step;
mod time_steps;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Shape};

pub(super) use self::backward::backward;
use self::step::{States, step};
use self::time_steps::{TimeSteps, cat, dims, slice_dim};
use super::call::{Activations, ForwardOutput, Settings};

pub(super) fn forward<B: Backend>(
    [projected, recurrent, biases, initial]: [FloatTensor<B>; 4],
    settings: &Settings,
    save_activations: bool,
) -> ForwardOutput<B> {
    let (batch, seq, d_hidden) = (settings.batch, settings.seq, settings.d_hidden);
    let (cell, directions) = (settings.cell, settings.direction.num_directions());
    let steps = TimeSteps::<B>::new(settings, &projected);
    let gates = cell.gates() * d_hidden;
    let biases = B::float_reshape(biases, Shape::from([2, directions, 1, gates]));
    let [input_bias, hidden_bias] = [0, 1].map(|i: usize| {
        let bias = slice_dim::<B>(&biases, 0, i..i + 1);
        B::float_reshape(bias, Shape::from([directions, 1, gates]))
    });
    let recurrent = B::float_reshape(recurrent, Shape::from([directions, d_hidden, gates]));
    let projected = steps.split_steps(projected, gates); // [seq, directions, batch, gates]
    let mut states = States::<B>::from_rows(initial, settings);
    let (mut hidden, mut saved) = (Vec::with_capacity(seq), Vec::new());
    for time in 0..seq {
        let input = slice_dim::<B>(&projected, 0, time..time + 1);
        let input = B::float_reshape(input, Shape::from([directions, batch, gates]));
        let input = B::float_add(input, input_bias.clone());
        let product = B::float_matmul(states.hidden.clone(), recurrent.clone());
        let product = B::float_add(product, hidden_bias.clone()); // [directions, batch, gates]
        let (next, activations) = step::<B>(cell, input, product, &states, save_activations);
        if let Some(activations) = activations {
            let [_, _, width] = dims(&activations);
            saved.push(B::float_reshape(
                activations,
                Shape::from([1, directions, batch, width]),
            ));
        }
        states = states.update(next, steps.padding(time));
        let state = states.hidden.clone();
        hidden.push(B::float_reshape(
            state,
            Shape::from([1, directions, batch, d_hidden]),
        ));
    }
    let outputs = steps.zero_padding(cat::<B>(hidden, 0));
    ForwardOutput {
        outputs: steps.merge_steps(outputs),
        last: states.into_rows(settings),
        // [seq, directions, batch, ..]
        activations: save_activations.then(|| Activations::Tensor(cat::<B>(saved, 0))),
    }
}
