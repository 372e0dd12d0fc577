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

/// Hidden states and the last state; and, if the way back is wanted, gates and states of each
/// place, in the order in which they are visited.
pub(super) fn forward<B: Backend>(
    [projected, recurrent, biases, initial]: [FloatTensor<B>; 4],
    settings: &Settings,
    remembers: bool,
) -> Remembered<B> {
    let (batch, seq, d_hidden) = (settings.batch, settings.seq, settings.d_hidden);
    let (cell, passes) = (settings.cell, settings.direction.passes());
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
    Remembered {
        outputs: order.unvisited(outputs),
        last: states.into_rows(settings),
        kept: remembers.then(|| Kept::Tensor(join::<B>(kept, 0))), // [seq, passes, batch, ..]
    }
}
