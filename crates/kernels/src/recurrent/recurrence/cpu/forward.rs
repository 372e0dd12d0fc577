//! Some rows of a batch on their way through the whole sequence.

use super::gates::{Place, gru, lstm};
use crate::cpu::matmul::{Accumulate, Scalars, matmul};
use crate::cpu::{Simd, dispatch};
use crate::recurrent::recurrence::Cell;
use crate::recurrent::recurrence::call::Settings;

pub(super) struct Row<'a> {
    pub(super) length: usize,
    /// `[seq, passes, gates]`
    pub(super) projected: &'a [f32],
    /// `[states, passes, d_hidden]`
    pub(super) initial: &'a [f32],
    /// `[seq, passes, d_hidden]`; zeros for padding.
    pub(super) outputs: &'a mut [f32],
    /// `[states, passes, d_hidden]`
    pub(super) last: &'a mut [f32],
    /// `[seq, passes, kept]`, if the way back is wanted.
    pub(super) kept: Option<&'a mut [f32]>,
}

dispatch! {
    /// Rows through all their places.
    pub(super) unsafe fn forward(
        settings: &Settings,
        recurrent: &[f32],
        biases: &[f32],
        rows: &mut [Row<'_>],
    ) by forward_rows;
}

/// Takes rows, the longest first, through all their places.
///
/// # Safety
///
/// The instructions of `S` are enabled; slices are as long as the call says.
#[inline(always)]
unsafe fn forward_rows<S: Simd>(
    settings: &Settings,
    recurrent: &[f32],
    biases: &[f32],
    rows: &mut [Row<'_>],
) {
    let d = settings.d_hidden;
    let (gates, kept) = (settings.cell.gates() * d, settings.kept());
    let passes = settings.direction.passes();
    let mut hidden = vec![0.0_f32; rows.len() * d];
    let mut cells = vec![0.0_f32; rows.len() * d];
    let mut products = vec![0.0_f32; rows.len() * gates];
    let longest = rows.first().map_or(0, |row| row.length);
    for pass in 0..passes {
        let recurrent = &recurrent[pass * d * gates..][..d * gates];
        let summed = summed_biases(settings, biases, pass);
        for (at, row) in rows.iter().enumerate() {
            hidden[at * d..][..d].copy_from_slice(&row.initial[pass * d..][..d]);
            if settings.cell == Cell::Lstm {
                cells[at * d..][..d].copy_from_slice(&row.initial[(passes + pass) * d..][..d]);
            }
        }
        for visit in 0..longest {
            let active = rows.partition_point(|row| row.length > visit);
            let a = Scalars {
                start: hidden.as_ptr(),
                row_stride: d,
                column_stride: 1,
            };
            // SAFETY: as many rows as there are states of and room for.
            unsafe {
                matmul::<S, true>(
                    [active, d, gates],
                    a,
                    (recurrent.as_ptr(), gates),
                    (products.as_mut_ptr(), gates),
                    Accumulate::Overwrite,
                );
            }
            for (at, row) in rows[..active].iter_mut().enumerate() {
                let place = settings.place(row.length, visit, pass) * passes + pass;
                let place = Place {
                    input: row.projected[place * gates..][..gates].as_ptr(),
                    product: products[at * gates..][..gates].as_ptr(),
                    hidden: hidden[at * d..][..d].as_mut_ptr(),
                    cell: cells[at * d..][..d].as_mut_ptr(),
                    output: row.outputs[place * d..][..d].as_mut_ptr(),
                    kept: row
                        .kept
                        .as_mut()
                        .map(|numbers| numbers[place * kept..][..kept].as_mut_ptr()),
                };
                // SAFETY: each was cut to its size above; the biases are as many.
                unsafe {
                    match settings.cell {
                        Cell::Gru => gru::<S>(d, summed.as_ptr(), &place),
                        Cell::Lstm => lstm::<S>(d, summed.as_ptr(), &place),
                    }
                }
            }
        }
        for (at, row) in rows.iter_mut().enumerate() {
            row.last[pass * d..][..d].copy_from_slice(&hidden[at * d..][..d]);
            row.outputs[row.length * passes * d..].fill(0.0);
            if settings.cell == Cell::Lstm {
                row.last[(passes + pass) * d..][..d].copy_from_slice(&cells[at * d..][..d]);
            }
        }
    }
}

/// The biases of a pass as its gates take them: of `[2, passes, gates]` the sums of both, but
/// of a GRU's new state, whose product is multiplied before, first one and then the other.
fn summed_biases(settings: &Settings, biases: &[f32], pass: usize) -> Vec<f32> {
    let d = settings.d_hidden;
    let gates = settings.cell.gates() * d;
    let passes = settings.direction.passes();
    let input = &biases[pass * gates..][..gates];
    let hidden = &biases[(passes + pass) * gates..][..gates];
    let mut summed: Vec<f32> = input.iter().zip(hidden).map(|(a, b)| a + b).collect();
    if settings.cell == Cell::Gru {
        summed.truncate(2 * d);
        summed.extend_from_slice(&input[2 * d..]);
        summed.extend_from_slice(&hidden[2 * d..]);
    }
    summed
}
