//! One time step of all directions and rows.

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, Shape, TensorMetadata};

use super::time_steps::{cat, select, slice_dim};
use crate::recurrent::Cell;
use crate::recurrent::recurrence::call::Settings;

/// States of all directions and rows, `[directions, batch, d_hidden]` each.
#[derive(Debug, Clone)]
pub(super) struct States<B: Backend> {
    pub(super) hidden: FloatTensor<B>,
    /// Only for LSTM.
    pub(super) cell: Option<FloatTensor<B>>,
}

impl<B: Backend> States<B> {
    /// Splits `[batch, states * directions * d_hidden]`.
    pub(super) fn from_rows(rows: FloatTensor<B>, settings: &Settings) -> Self {
        let (batch, d_hidden) = (settings.batch, settings.d_hidden);
        let directions = settings.direction.num_directions();
        let states = settings.cell.states();
        let rows = B::float_reshape(rows, Shape::from([batch, states, directions, d_hidden]));
        let rows = B::float_permute(rows, &[1, 2, 0, 3]); // [states, directions, batch, d_hidden]
        Self {
            hidden: select::<B>(&rows, 0),
            cell: (settings.cell == Cell::Lstm).then(|| select::<B>(&rows, 1)),
        }
    }

    /// The inverse of [`from_rows`](Self::from_rows).
    pub(super) fn into_rows(self, settings: &Settings) -> FloatTensor<B> {
        let (batch, d_hidden) = (settings.batch, settings.d_hidden);
        let directions = settings.direction.num_directions();
        let states = std::iter::once(self.hidden).chain(self.cell);
        let row = |state| {
            let state: FloatTensor<B> = B::float_permute(state, &[1, 0, 2]);
            B::float_reshape(state, Shape::from([batch, directions * d_hidden]))
        };
        cat::<B>(states.map(row).collect(), 1)
    }

    /// Replaces the states by the next ones, except in padding.
    pub(super) fn update(self, next: Self, padding: Option<BoolTensor<B>>) -> Self {
        let Some(padding) = padding else {
            return next;
        };
        let padding = B::bool_expand(padding, self.hidden.shape());
        let keep = |next, own| B::float_mask_where(next, padding.clone(), own);
        Self {
            hidden: keep(next.hidden, self.hidden),
            cell: next.cell.zip(self.cell).map(|(next, own)| keep(next, own)),
        }
    }
}

/// The next states, from `W x + b` and `U h + c`, `[directions, batch, gates]` each. Optionally
/// also the activations for the backward pass, concatenated, with the previous states:
///
/// - GRU: `r, z, n, U_n h + c_n, h`
/// - LSTM: `i, f, g, o, h, cell`
pub(super) fn step<B: Backend>(
    cell: Cell,
    input: FloatTensor<B>,
    product: FloatTensor<B>,
    states: &States<B>,
    save_activations: bool,
) -> (States<B>, Option<FloatTensor<B>>) {
    match (cell, &states.cell) {
        (Cell::Lstm, Some(cell_state)) => {
            let sum = B::float_add(input, product);
            let i = B::sigmoid(gate::<B>(&sum, 0, 4));
            let f = B::sigmoid(gate::<B>(&sum, 1, 4));
            let g = B::float_tanh(gate::<B>(&sum, 2, 4));
            let o = B::sigmoid(gate::<B>(&sum, 3, 4));
            let new = B::float_mul(i.clone(), g.clone());
            let next = B::float_add(B::float_mul(f.clone(), cell_state.clone()), new);
            let hidden = B::float_mul(o.clone(), B::float_tanh(next.clone()));
            let activations = [i, f, g, o, states.hidden.clone(), cell_state.clone()];
            let activations = save_activations.then(|| cat::<B>(activations.into(), 2));
            let next = States {
                hidden,
                cell: Some(next),
            };
            (next, activations)
        }
        _ => {
            let before = &states.hidden;
            let sum = |i| B::float_add(gate::<B>(&input, i, 3), gate::<B>(&product, i, 3));
            let (r, z) = (B::sigmoid(sum(0)), B::sigmoid(sum(1)));
            let inner = gate::<B>(&product, 2, 3);
            let reset = B::float_mul(r.clone(), inner.clone());
            let n = B::float_tanh(B::float_add(gate::<B>(&input, 2, 3), reset));
            // (1 - z) · n + z · h
            let difference = B::float_sub(before.clone(), n.clone());
            let hidden = B::float_add(n.clone(), B::float_mul(z.clone(), difference));
            let activations = vec![r, z, n, inner, before.clone()];
            let activations = save_activations.then(|| cat::<B>(activations, 2));
            let next = States { hidden, cell: None };
            (next, activations)
        }
    }
}

/// One of `count` gates in `[directions, batch, count * width]`.
pub(super) fn gate<B: Backend>(
    gates: &FloatTensor<B>,
    index: usize,
    count: usize,
) -> FloatTensor<B> {
    let [_, _, width] = gates.shape().dims();
    let width = width / count;
    slice_dim::<B>(gates, 2, index * width..(index + 1) * width)
}
