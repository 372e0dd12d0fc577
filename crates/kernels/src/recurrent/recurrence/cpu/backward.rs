//! Some rows of a batch on their way back through the whole sequence.

use super::gates::{PlaceBack, gru_back, lstm_back};
use crate::cpu::matmul::{Accumulate, Scalars, matmul};
use crate::cpu::{Simd, dispatch};
use crate::recurrent::recurrence::Cell;
use crate::recurrent::recurrence::call::Settings;

pub(super) struct RowBack<'a> {
    pub(super) length: usize,
    /// `[states, passes, d_hidden]`
    pub(super) initial: &'a [f32],
    /// `[seq, passes, d_hidden]`
    pub(super) outputs: &'a [f32],
    /// `[seq, passes, kept]`
    pub(super) kept: &'a [f32],
    /// `[seq, passes, d_hidden]`
    pub(super) d_outputs: &'a [f32],
    /// `[states, passes, d_hidden]`, if it was used.
    pub(super) d_last: Option<&'a [f32]>,
    /// `[seq, passes, gates]`; zeros for padding.
    pub(super) d_projected: &'a mut [f32],
    /// `[states, passes, d_hidden]`
    pub(super) d_initial: &'a mut [f32],
}

/// Places whose part in the gradient of the matrix is taken at a time, so that they stay in
/// the nearest cache: 128 by 64 numbers are 32 KiB.
const PLACES: usize = 128;

dispatch! {
    /// Rows back through all their places.
    pub(super) unsafe fn backward(
        settings: &Settings,
        turned: &[f32],
        rows: &mut [RowBack<'_>],
        d_recurrent: &mut [f32],
        d_biases: &mut [f32],
    ) by backward_rows;
}

/// Takes rows, the longest first, back through all their places, and adds to the gradients
/// by the matrices, `[passes * d_hidden, gates]`, and by the biases, `[2, passes, gates]`.
/// `turned` are the matrices with rows for columns, `[passes, gates, d_hidden]`.
///
/// # Safety
///
/// The instructions of `S` are enabled; slices are as long as the call says.
#[inline(always)]
unsafe fn backward_rows<S: Simd>(
    settings: &Settings,
    turned: &[f32],
    rows: &mut [RowBack<'_>],
    d_recurrent: &mut [f32],
    d_biases: &mut [f32],
) {
    let d = settings.d_hidden;
    let (gates, kept) = (settings.cell.gates() * d, settings.kept());
    let passes = settings.direction.passes();
    let places: usize = rows.iter().map(|row| row.length).sum();
    let longest = rows.first().map_or(0, |row| row.length);
    let mut d_hidden = vec![0.0_f32; rows.len() * d];
    let mut d_cells = vec![0.0_f32; rows.len() * d];
    // The hidden state before each place, and a one: the gradient by the bias is that by one
    // row more of the matrix.
    let mut before = vec![1.0_f32; places * (d + 1)];
    let mut d_products = vec![0.0_f32; places * gates];
    let mut d_matrix = vec![0.0_f32; (d + 1) * gates];
    let mut d_new = vec![0.0_f32; d];
    for pass in 0..passes {
        for (at, row) in rows.iter().enumerate() {
            let (hidden, cell) = (&mut d_hidden[at * d..][..d], &mut d_cells[at * d..][..d]);
            match row.d_last {
                None => {
                    hidden.fill(0.0);
                    cell.fill(0.0);
                }
                Some(d_last) => {
                    hidden.copy_from_slice(&d_last[pass * d..][..d]);
                    if settings.cell == Cell::Lstm {
                        cell.copy_from_slice(&d_last[(passes + pass) * d..][..d]);
                    }
                }
            }
        }
        d_new.fill(0.0);
        let mut first = places;
        for visit in (0..longest).rev() {
            let active = rows.partition_point(|row| row.length > visit);
            first -= active;
            for (at, row) in rows[..active].iter_mut().enumerate() {
                let here = settings.place(row.length, visit, pass) * passes + pass;
                let earlier = visit
                    .checked_sub(1)
                    .map(|visit| settings.place(row.length, visit, pass) * passes + pass);
                let hidden_before = match earlier {
                    Some(place) => &row.outputs[place * d..][..d],
                    None => &row.initial[pass * d..][..d],
                };
                before[(first + at) * (d + 1)..][..d].copy_from_slice(hidden_before);
                let state_before = match (settings.cell, earlier) {
                    (Cell::Gru, _) => hidden_before,
                    (Cell::Lstm, Some(place)) => &row.kept[place * kept + 4 * d..][..d],
                    (Cell::Lstm, None) => &row.initial[(passes + pass) * d..][..d],
                };
                let place = PlaceBack {
                    kept: row.kept[here * kept..][..kept].as_ptr(),
                    before: state_before.as_ptr(),
                    d_output: row.d_outputs[here * d..][..d].as_ptr(),
                    d_hidden: d_hidden[at * d..][..d].as_mut_ptr(),
                    d_cell: d_cells[at * d..][..d].as_mut_ptr(),
                    d_input: row.d_projected[here * gates..][..gates].as_mut_ptr(),
                    d_product: d_products[(first + at) * gates..][..gates].as_mut_ptr(),
                    d_new: d_new.as_mut_ptr(),
                };
                // SAFETY: each was cut to its size above.
                unsafe {
                    match settings.cell {
                        Cell::Gru => gru_back::<S>(d, &place),
                        Cell::Lstm => lstm_back::<S>(d, &place),
                    }
                }
            }
            let a = Scalars {
                start: d_products[first * gates..].as_ptr(),
                row_stride: gates,
                column_stride: 1,
            };
            let turned = &turned[pass * d * gates..][..d * gates];
            // SAFETY: as many rows as were computed above, and as there are states of.
            unsafe {
                matmul::<S, true>(
                    [active, gates, d],
                    a,
                    (turned.as_ptr(), d),
                    (d_hidden.as_mut_ptr(), d),
                    Accumulate::Add,
                );
            }
        }
        d_matrix.fill(0.0);
        for start in (0..places).step_by(PLACES) {
            let count = PLACES.min(places - start);
            let a = Scalars {
                start: before[start * (d + 1)..].as_ptr(),
                row_stride: 1,
                column_stride: d + 1,
            };
            // SAFETY: as many places as are left, each with a state, a one and its gates.
            unsafe {
                matmul::<S, true>(
                    [d + 1, count, gates],
                    a,
                    (d_products[start * gates..].as_ptr(), gates),
                    (d_matrix.as_mut_ptr(), gates),
                    Accumulate::Add,
                );
            }
        }
        let (matrix, bias) = d_matrix.split_at(d * gates);
        d_recurrent[pass * d * gates..][..d * gates].copy_from_slice(matrix);
        d_biases[(passes + pass) * gates..][..gates].copy_from_slice(bias);
        let of_input = &mut d_biases[pass * gates..][..gates];
        of_input.copy_from_slice(bias);
        if settings.cell == Cell::Gru {
            of_input[2 * d..].copy_from_slice(&d_new);
        }
        for (at, row) in rows.iter_mut().enumerate() {
            row.d_initial[pass * d..][..d].copy_from_slice(&d_hidden[at * d..][..d]);
            row.d_projected[row.length * passes * gates..].fill(0.0);
            if settings.cell == Cell::Lstm {
                row.d_initial[(passes + pass) * d..][..d].copy_from_slice(&d_cells[at * d..][..d]);
            }
        }
    }
}
