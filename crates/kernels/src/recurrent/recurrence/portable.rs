//! The bodies that any backend has: a loop over its own operations.
//!
//! Both passes go together: all tensors are first put into the order in which places are
//! visited, `[seq, passes, batch, ..]`, what goes backward turned round. Padding then comes
//! last in a pass forward and first in one backward, and leaves the state alone in either.

mod backward;
mod order;
mod step;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Shape};

pub(super) use self::backward::backward;
use self::order::{Order, join};
use self::step::{States, step};
use super::call::{Kept, Remembered, Settings};

/// Hidden states and the last state, with nothing kept.
pub(super) fn forward<B: Backend>(
    projected: FloatTensor<B>,
    recurrent: FloatTensor<B>,
    biases: FloatTensor<B>,
    initial: FloatTensor<B>,
    settings: &Settings,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let (outputs, last, _) = run::<B>([projected, recurrent, biases, initial], settings, false);
    (outputs, last)
}

/// The same, and what the way back needs: gates and states of each place, in the order in
/// which they are visited.
pub(super) fn remembering<B: Backend>(
    projected: FloatTensor<B>,
    recurrent: FloatTensor<B>,
    biases: FloatTensor<B>,
    initial: FloatTensor<B>,
    settings: &Settings,
) -> Remembered<B> {
    let (outputs, last, kept) = run::<B>([projected, recurrent, biases, initial], settings, true);
    Remembered {
        outputs,
        last,
        kept: Kept::Tensor(join::<B>(kept, 0)), // [seq, passes, batch, ..]
    }
}

type Ran<B> = (FloatTensor<B>, FloatTensor<B>, Vec<FloatTensor<B>>);

fn run<B: Backend>(
    [projected, recurrent, biases, initial]: [FloatTensor<B>; 4],
    settings: &Settings,
    remembers: bool,
) -> Ran<B> {
    let &Settings {
        cell,
        direction,
        batch,
        seq,
        d_hidden,
        ..
    } = settings;
    let passes = direction.passes();
    let order = Order::<B>::new(settings, &projected);
    let gates = cell.gates() * d_hidden;
    let biases = B::float_reshape(biases, Shape::from([2, passes, 1, gates]));
    let [input_bias, hidden_bias] = [0, 1].map(|at: usize| {
        let bias = order::taken::<B>(&biases, 0, at..at + 1);
        B::float_reshape(bias, Shape::from([passes, 1, gates]))
    });
    let recurrent = B::float_reshape(recurrent, Shape::from([passes, d_hidden, gates]));
    let projected = order.visited(projected, gates); // [seq, passes, batch, gates]
    let mut states = States::<B>::from_rows(initial, settings);
    let (mut hidden, mut kept) = (Vec::with_capacity(seq), Vec::new());
    for at in 0..seq {
        let input = order::taken::<B>(&projected, 0, at..at + 1);
        let input = B::float_reshape(input, Shape::from([passes, batch, gates]));
        let input = B::float_add(input, input_bias.clone());
        let product = B::float_matmul(states.hidden.clone(), recurrent.clone());
        let product = B::float_add(product, hidden_bias.clone()); // [passes, batch, gates]
        let (next, seen) = step::<B>(cell, input, product, &states, remembers);
        if let Some(seen) = seen {
            let [_, _, width] = order::dims(&seen);
            kept.push(B::float_reshape(
                seen,
                Shape::from([1, passes, batch, width]),
            ));
        }
        states = states.unless_padding(next, order.padding(at));
        let state = states.hidden.clone();
        hidden.push(B::float_reshape(
            state,
            Shape::from([1, passes, batch, d_hidden]),
        ));
    }
    let outputs = order.cleared(join::<B>(hidden, 0));
    (order.unvisited(outputs), states.into_rows(settings), kept)
}
