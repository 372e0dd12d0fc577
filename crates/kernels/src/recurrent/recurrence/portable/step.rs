//! What a place does to the states of all passes and rows.

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, Shape, TensorMetadata};

use super::order::{join, taken};
use crate::recurrent::Cell;
use crate::recurrent::recurrence::call::Settings;

/// States of all passes and rows, `[passes, batch, d_hidden]` each.
#[derive(Debug, Clone)]
pub(super) struct States<B: Backend> {
    pub(super) hidden: FloatTensor<B>,
    /// An LSTM's.
    pub(super) cell: Option<FloatTensor<B>>,
}

impl<B: Backend> States<B> {
    /// Of `[batch, states * passes * d_hidden]`.
    pub(super) fn from_rows(rows: FloatTensor<B>, settings: &Settings) -> Self {
        let (batch, d_hidden) = (settings.batch, settings.d_hidden);
        let passes = settings.direction.passes();
        let states = settings.cell.states();
        let rows = B::float_reshape(rows, Shape::from([batch, states, passes, d_hidden]));
        let rows = B::float_permute(rows, &[1, 2, 0, 3]); // [states, passes, batch, d_hidden]
        let state = |at: usize| {
            let own = taken::<B>(&rows, 0, at..at + 1);
            B::float_reshape(own, Shape::from([passes, batch, d_hidden]))
        };
        Self {
            hidden: state(0),
            cell: (settings.cell == Cell::Lstm).then(|| state(1)),
        }
    }

    /// The other way.
    pub(super) fn into_rows(self, settings: &Settings) -> FloatTensor<B> {
        let (batch, d_hidden) = (settings.batch, settings.d_hidden);
        let passes = settings.direction.passes();
        let states = std::iter::once(self.hidden).chain(self.cell);
        let row = |state| {
            let state: FloatTensor<B> = B::float_permute(state, &[1, 0, 2]);
            B::float_reshape(state, Shape::from([batch, passes * d_hidden]))
        };
        join::<B>(states.map(row).collect(), 1)
    }

    /// These where there is padding, else the next ones.
    pub(super) fn unless_padding(self, next: Self, padding: Option<BoolTensor<B>>) -> Self {
        let Some(padding) = padding else {
            return next;
        };
        let padding = B::bool_expand(padding, self.hidden.shape());
        let chosen = |next, own| B::float_mask_where(next, padding.clone(), own);
        Self {
            hidden: chosen(next.hidden, self.hidden),
            cell: next
                .cell
                .zip(self.cell)
                .map(|(next, own)| chosen(next, own)),
        }
    }
}

/// The states after a place, from `W x + b` and `U h + c`, `[passes, batch, gates]` each. If
/// it is to remember, also what the way back needs, side by side:
///
/// - GRU: `r, z, n, U_n h + c_n, h`
/// - LSTM: `i, f, g, o, h, cell`
///
/// with the states from before.
pub(super) fn step<B: Backend>(
    cell: Cell,
    input: FloatTensor<B>,
    product: FloatTensor<B>,
    states: &States<B>,
    remembers: bool,
) -> (States<B>, Option<FloatTensor<B>>) {
    match (cell, &states.cell) {
        (Cell::Lstm, Some(memory)) => {
            let sum = B::float_add(input, product);
            let i = B::sigmoid(gate::<B>(&sum, 0, 4));
            let f = B::sigmoid(gate::<B>(&sum, 1, 4));
            let g = B::float_tanh(gate::<B>(&sum, 2, 4));
            let o = B::sigmoid(gate::<B>(&sum, 3, 4));
            let new = B::float_mul(i.clone(), g.clone());
            let next = B::float_add(B::float_mul(f.clone(), memory.clone()), new);
            let hidden = B::float_mul(o.clone(), B::float_tanh(next.clone()));
            let seen = [i, f, g, o, states.hidden.clone(), memory.clone()];
            let seen = remembers.then(|| join::<B>(seen.into(), 2));
            let next = States {
                hidden,
                cell: Some(next),
            };
            (next, seen)
        }
        _ => {
            let before = &states.hidden;
            let sum = |at| B::float_add(gate::<B>(&input, at, 3), gate::<B>(&product, at, 3));
            let (r, z) = (B::sigmoid(sum(0)), B::sigmoid(sum(1)));
            let inner = gate::<B>(&product, 2, 3);
            let reset = B::float_mul(r.clone(), inner.clone());
            let n = B::float_tanh(B::float_add(gate::<B>(&input, 2, 3), reset));
            // (1 - z) · n + z · h
            let further = B::float_sub(before.clone(), n.clone());
            let hidden = B::float_add(n.clone(), B::float_mul(z.clone(), further));
            let seen = remembers.then(|| join::<B>(vec![r, z, n, inner, before.clone()], 2));
            let next = States { hidden, cell: None };
            (next, seen)
        }
    }
}

/// One of `count` parts that lie side by side in `[passes, batch, ..]`.
pub(super) fn gate<B: Backend>(gates: &FloatTensor<B>, at: usize, count: usize) -> FloatTensor<B> {
    let [_, _, width] = gates.shape().dims();
    let width = width / count;
    taken::<B>(gates, 2, at * width..(at + 1) * width)
}
