//! The forward pass of some rows of a batch over the whole sequence.

use super::gates::{Step, gru_step, lstm_step};
use crate::cpu::matmul::{Accumulate, Scalars, matmul};
use crate::cpu::{Simd, dispatch};
use crate::recurrent::recurrence::Cell;
use crate::recurrent::recurrence::call::Settings;

pub(super) struct Row<'a> {
    pub(super) length: usize,
    /// `[seq, directions, gates]`
    pub(super) projected: &'a [f32],
    /// `[states, directions, d_hidden]`
    pub(super) initial: &'a [f32],
    /// `[seq, directions, d_hidden]`; zeros for padding.
    pub(super) outputs: &'a mut [f32],
    /// `[states, directions, d_hidden]`
    pub(super) last: &'a mut [f32],
    /// `[seq, directions, activations]`, if a backward pass follows.
    pub(super) activations: Option<&'a mut [f32]>,
}

dispatch! {
    pub(super) unsafe fn forward(
        settings: &Settings,
        recurrent: &[f32],
        biases: &[f32],
        rows: &mut [Row<'_>],
    ) by forward_rows;
}

/// Processes rows, the longest first.
///
/// # Safety
///
/// The instructions of `S` are enabled; slices have the lengths given by the settings.
#[inline(always)]
unsafe fn forward_rows<S: Simd>(
    settings: &Settings,
    recurrent: &[f32],
    biases: &[f32],
    rows: &mut [Row<'_>],
) {
    let d = settings.d_hidden;
    let (gates, saved) = (settings.cell.gates() * d, settings.num_activations());
    let directions = settings.direction.num_directions();
    let mut hidden = vec![0.0_f32; rows.len() * d];
    let mut cells = vec![0.0_f32; rows.len() * d];
    let mut products = vec![0.0_f32; rows.len() * gates];
    let longest = rows.first().map_or(0, |row| row.length);
    for dir in 0..directions {
        let recurrent = &recurrent[dir * d * gates..][..d * gates];
        let biases = gate_biases(settings, biases, dir);
        for (i, row) in rows.iter().enumerate() {
            hidden[i * d..][..d].copy_from_slice(&row.initial[dir * d..][..d]);
            if settings.cell == Cell::Lstm {
                cells[i * d..][..d].copy_from_slice(&row.initial[(directions + dir) * d..][..d]);
            }
        }
        for step in 0..longest {
            let active = rows.partition_point(|row| row.length > step);
            let a = Scalars {
                start: hidden.as_ptr(),
                row_stride: d,
                column_stride: 1,
            };
            // SAFETY: there are at least `active` rows of states and products.
            unsafe {
                matmul::<S, true>(
                    [active, d, gates],
                    a,
                    (recurrent.as_ptr(), gates),
                    (products.as_mut_ptr(), gates),
                    Accumulate::Overwrite,
                );
            }
            for (i, row) in rows[..active].iter_mut().enumerate() {
                let current = settings.position(row.length, step, dir) * directions + dir;
                let step = Step {
                    input: row.projected[current * gates..][..gates].as_ptr(),
                    product: products[i * gates..][..gates].as_ptr(),
                    hidden: hidden[i * d..][..d].as_mut_ptr(),
                    cell: cells[i * d..][..d].as_mut_ptr(),
                    output: row.outputs[current * d..][..d].as_mut_ptr(),
                    activations: row
                        .activations
                        .as_mut()
                        .map(|all| all[current * saved..][..saved].as_mut_ptr()),
                };
                // SAFETY: each slice has its size, and so have the biases.
                unsafe {
                    match settings.cell {
                        Cell::Gru => gru_step::<S>(d, biases.as_ptr(), &step),
                        Cell::Lstm => lstm_step::<S>(d, biases.as_ptr(), &step),
                    }
                }
            }
        }
        for (i, row) in rows.iter_mut().enumerate() {
            row.last[dir * d..][..d].copy_from_slice(&hidden[i * d..][..d]);
            row.outputs[row.length * directions * d..].fill(0.0);
            if settings.cell == Cell::Lstm {
                row.last[(directions + dir) * d..][..d].copy_from_slice(&cells[i * d..][..d]);
            }
        }
    }
}

/// The biases of a direction from `[2, directions, gates]`: the sum of both, except for the new
/// gate of a GRU, whose product is multiplied by the reset gate first; there, one after the other.
fn gate_biases(settings: &Settings, biases: &[f32], dir: usize) -> Vec<f32> {
    let d = settings.d_hidden;
    let gates = settings.cell.gates() * d;
    let directions = settings.direction.num_directions();
    let input = &biases[dir * gates..][..gates];
    let hidden = &biases[(directions + dir) * gates..][..gates];
    let mut summed: Vec<f32> = input.iter().zip(hidden).map(|(a, b)| a + b).collect();
    if settings.cell == Cell::Gru {
        summed.truncate(2 * d);
        summed.extend_from_slice(&input[2 * d..]);
        summed.extend_from_slice(&hidden[2 * d..]);
    }
    summed
}
