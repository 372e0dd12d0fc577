//! The backward pass of some rows of a batch over the whole sequence.

use super::gates::{StepGradients, gru_step_backward, lstm_step_backward};
use crate::cpu::matmul::{Accumulate, Scalars, matmul};
use crate::cpu::{Simd, dispatch};
use crate::recurrent::recurrence::Cell;
use crate::recurrent::recurrence::call::Settings;

pub(super) struct BackwardRow<'a> {
    pub(super) length: usize,
    /// `[states, directions, d_hidden]`
    pub(super) initial: &'a [f32],
    /// `[seq, directions, d_hidden]`
    pub(super) outputs: &'a [f32],
    /// `[seq, directions, activations]`
    pub(super) activations: &'a [f32],
    /// `[seq, directions, d_hidden]`
    pub(super) d_outputs: &'a [f32],
    /// `[states, directions, d_hidden]`, if it was used.
    pub(super) d_last: Option<&'a [f32]>,
    /// `[seq, directions, gates]`; zeros for padding.
    pub(super) d_projected: &'a mut [f32],
    /// `[states, directions, d_hidden]`
    pub(super) d_initial: &'a mut [f32],
}

/// Positions per block of the matrix gradient, so that a block fits into the L1 cache: 128 by 64
/// elements are 32 KiB.
const POSITION_BLOCK: usize = 128;

dispatch! {
    pub(super) unsafe fn backward(
        settings: &Settings,
        transposed: &[f32],
        rows: &mut [BackwardRow<'_>],
        d_matrices: &mut [f32],
        d_input_biases: &mut [f32],
    ) by backward_rows;
}

/// Backpropagates rows, the longest first, and writes the gradients of the matrices, each followed by
/// that of the hidden bias, `[directions, d_hidden + 1, gates]`, and of the input biases, `[directions,
/// gates]`. `transposed` are the transposed matrices, `[directions, gates, d_hidden]`.
///
/// # Safety
///
/// The instructions of `S` are enabled; slices have the lengths given by the settings.
#[inline(always)]
unsafe fn backward_rows<S: Simd>(
    settings: &Settings,
    transposed: &[f32],
    rows: &mut [BackwardRow<'_>],
    d_matrices: &mut [f32],
    d_input_biases: &mut [f32],
) {
    let d = settings.d_hidden;
    let (gates, saved) = (settings.cell.gates() * d, settings.num_activations());
    let directions = settings.direction.num_directions();
    let positions: usize = rows.iter().map(|row| row.length).sum();
    let longest = rows.first().map_or(0, |row| row.length);
    let mut d_hidden = vec![0.0_f32; rows.len() * d];
    let mut d_cells = vec![0.0_f32; rows.len() * d];
    // The hidden state before each position and a one: the bias gradient is that of an additional
    // row of the matrix.
    let mut before = vec![1.0_f32; positions * (d + 1)];
    let mut d_products = vec![0.0_f32; positions * gates];
    let mut d_new = vec![0.0_f32; d];
    for dir in 0..directions {
        d_hidden.fill(0.0);
        d_cells.fill(0.0);
        d_new.fill(0.0);
        for (i, row) in rows.iter().enumerate() {
            let Some(d_last) = row.d_last else { continue };
            d_hidden[i * d..][..d].copy_from_slice(&d_last[dir * d..][..d]);
            if settings.cell == Cell::Lstm {
                d_cells[i * d..][..d].copy_from_slice(&d_last[(directions + dir) * d..][..d]);
            }
        }
        let mut first = positions;
        for step in (0..longest).rev() {
            let active = rows.partition_point(|row| row.length > step);
            first -= active;
            for (i, row) in rows[..active].iter_mut().enumerate() {
                let current = settings.position(row.length, step, dir) * directions + dir;
                let previous = (step.checked_sub(1))
                    .map(|step| settings.position(row.length, step, dir) * directions + dir);
                let hidden_before = match previous {
                    Some(previous) => &row.outputs[previous * d..][..d],
                    None => &row.initial[dir * d..][..d],
                };
                before[(first + i) * (d + 1)..][..d].copy_from_slice(hidden_before);
                let state_before = match (settings.cell, previous) {
                    (Cell::Gru, _) => hidden_before,
                    (Cell::Lstm, Some(previous)) => {
                        &row.activations[previous * saved + 4 * d..][..d]
                    }
                    (Cell::Lstm, None) => &row.initial[(directions + dir) * d..][..d],
                };
                let gradients = StepGradients {
                    activations: row.activations[current * saved..][..saved].as_ptr(),
                    before: state_before.as_ptr(),
                    d_output: row.d_outputs[current * d..][..d].as_ptr(),
                    d_hidden: d_hidden[i * d..][..d].as_mut_ptr(),
                    d_cell: d_cells[i * d..][..d].as_mut_ptr(),
                    d_input: row.d_projected[current * gates..][..gates].as_mut_ptr(),
                    d_product: d_products[(first + i) * gates..][..gates].as_mut_ptr(),
                    d_new: d_new.as_mut_ptr(),
                };
                // SAFETY: each slice has its size.
                unsafe {
                    match settings.cell {
                        Cell::Gru => gru_step_backward::<S>(d, &gradients),
                        Cell::Lstm => lstm_step_backward::<S>(d, &gradients),
                    }
                }
            }
            let a = Scalars {
                start: d_products[first * gates..].as_ptr(),
                row_stride: gates,
                column_stride: 1,
            };
            let transposed = &transposed[dir * d * gates..][..d * gates];
            // SAFETY: `active` rows of products were computed above, and there are as many states.
            unsafe {
                matmul::<S, true>(
                    [active, gates, d],
                    a,
                    (transposed.as_ptr(), d),
                    (d_hidden.as_mut_ptr(), d),
                    Accumulate::Add,
                );
            }
        }
        let d_matrix = &mut d_matrices[dir * (d + 1) * gates..][..(d + 1) * gates];
        if positions == 0 {
            d_matrix.fill(0.0);
        }
        for start in (0..positions).step_by(POSITION_BLOCK) {
            let count = POSITION_BLOCK.min(positions - start);
            let a = Scalars {
                start: before[start * (d + 1)..].as_ptr(),
                row_stride: 1,
                column_stride: d + 1,
            };
            // SAFETY: `count` positions remain, each with a state, a one and its gates.
            unsafe {
                matmul::<S, true>(
                    [d + 1, count, gates],
                    a,
                    (d_products[start * gates..].as_ptr(), gates),
                    (d_matrix.as_mut_ptr(), gates),
                    match start {
                        0 => Accumulate::Overwrite,
                        _ => Accumulate::Add,
                    },
                );
            }
        }
        let input_bias = &mut d_input_biases[dir * gates..][..gates];
        input_bias.copy_from_slice(&d_matrix[d * gates..]);
        if settings.cell == Cell::Gru {
            input_bias[2 * d..].copy_from_slice(&d_new);
        }
        for (i, row) in rows.iter_mut().enumerate() {
            row.d_initial[dir * d..][..d].copy_from_slice(&d_hidden[i * d..][..d]);
            row.d_projected[row.length * directions * gates..].fill(0.0);
            if settings.cell == Cell::Lstm {
                row.d_initial[(directions + dir) * d..][..d]
                    .copy_from_slice(&d_cells[i * d..][..d]);
            }
        }
    }
}
