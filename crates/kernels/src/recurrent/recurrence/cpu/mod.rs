//! The recurrence on slices of `f32`.
//!
//! Rows of a batch are independent: a task processes some of them over the whole sequence, forward
//! or backward, without synchronisation between positions. Rows are sorted by length, and padding
//! is never computed.

mod backward;
mod forward;
mod gates;

use std::cmp::Reverse;

use self::backward::BackwardRow;
use self::forward::Row;
use super::call::{Cell, Settings};
use crate::cpu::{InstructionSet, add, parallel};

/// Multiplications below which one thread is faster than waking others: about 10 µs.
const MIN_PARALLEL_PRODUCTS: usize = 1 << 18;
/// Bytes of matrices that fit into the cache of one core.
const CORE_CACHE: usize = 1 << 20;

/// Elements per row of the batch.
struct Sizes {
    outputs: usize,
    states: usize,
    projected: usize,
    activations: usize,
}

impl Settings {
    /// Activations saved per position and direction.
    fn num_activations(&self) -> usize {
        match self.cell {
            Cell::Gru => 4 * self.d_hidden,
            Cell::Lstm => 5 * self.d_hidden,
        }
    }

    /// The position of a time step in a direction.
    fn position(&self, length: usize, step: usize, dir: usize) -> usize {
        if self.direction.is_reverse(dir) {
            length - 1 - step
        } else {
            step
        }
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            outputs: self.seq * self.width,
            states: self.cell.states() * self.width,
            projected: self.seq * self.gates(),
            activations: self.seq * self.direction.num_directions() * self.num_activations(),
        }
    }

    /// Elements of the matrices of all directions.
    fn matrix_len(&self) -> usize {
        self.gates() * self.d_hidden
    }

    /// Checks the lengths of slices, given as name, expected and actual length: kernels read them
    /// through raw pointers.
    fn check<const N: usize>(&self, lengths: [(&str, usize, usize); N]) {
        for (name, expected, got) in lengths {
            assert!(
                got == expected,
                "{} recurrence: {name} must have {expected} elements, got {got}",
                self.cell
            );
        }
    }

    /// Rows per task: enough to amortise reading the matrix, and few enough to balance the load.
    fn rows_per_task(&self) -> usize {
        let positions: usize = self.lengths.iter().sum();
        if positions * self.matrix_len() < MIN_PARALLEL_PRODUCTS {
            return self.batch;
        }
        let per_thread = self.batch.div_ceil(parallel::threads());
        if size_of::<f32>() * self.matrix_len() <= CORE_CACHE {
            per_thread.div_ceil(4).clamp(12, 48)
        } else {
            per_thread.min(96)
        }
    }
}

pub(super) struct Inputs<'a> {
    /// `[batch, seq, directions * gates]`
    pub(super) projected: &'a [f32],
    /// `[directions * d_hidden, gates]`
    pub(super) recurrent: &'a [f32],
    /// `[2, directions * gates]`
    pub(super) biases: &'a [f32],
    /// `[batch, states * directions * d_hidden]`
    pub(super) initial: &'a [f32],
}

/// Hidden states `[batch, seq, directions * d_hidden]`, last states
/// `[batch, states * directions * d_hidden]`, and activations for the backward pass, if requested.
pub(super) fn forward(
    set: InstructionSet,
    settings: &Settings,
    inputs: &Inputs<'_>,
    save_activations: bool,
) -> [Vec<f32>; 3] {
    let batch = settings.batch;
    let sizes = settings.sizes();
    let (states, initial) = (batch * sizes.states, inputs.initial.len());
    settings.check([
        ("the matrix", settings.matrix_len(), inputs.recurrent.len()),
        ("projected", batch * sizes.projected, inputs.projected.len()),
        ("the biases", 2 * settings.gates(), inputs.biases.len()),
        ("the initial state", states, initial),
    ]);
    let mut outputs = vec![0.0; batch * sizes.outputs];
    let mut last = vec![0.0; states];
    let saved_rows = if save_activations { batch } else { 0 };
    let mut activations = vec![0.0; saved_rows * sizes.activations];
    let mut row_activations = activations.chunks_exact_mut(sizes.activations);
    let rows = (settings.lengths)
        .iter()
        .zip(inputs.projected.chunks_exact(sizes.projected))
        .zip(inputs.initial.chunks_exact(sizes.states))
        .zip(outputs.chunks_exact_mut(sizes.outputs))
        .zip(last.chunks_exact_mut(sizes.states))
        .map(|((((length, projected), initial), outputs), last)| Row {
            length: *length,
            projected,
            initial,
            outputs,
            last,
            activations: row_activations.next(),
        });
    let mut rows: Vec<Row<'_>> = rows.collect();
    rows.sort_by_key(|row| Reverse(row.length));
    let tasks = rows.chunks_mut(settings.rows_per_task()).collect();
    parallel::for_each(tasks, |rows| {
        // SAFETY: the processor supports the set, and all slices have their sizes.
        unsafe { forward::forward(set, settings, inputs.recurrent, inputs.biases, rows) };
    });
    [outputs, last, activations]
}

pub(super) struct BackwardInputs<'a> {
    /// `[directions * d_hidden, gates]`
    pub(super) recurrent: &'a [f32],
    /// `[batch, states * directions * d_hidden]`
    pub(super) initial: &'a [f32],
    /// `[batch, seq, directions * d_hidden]`
    pub(super) outputs: &'a [f32],
    /// The activations saved by [`forward`].
    pub(super) activations: &'a [f32],
    /// `[batch, seq, directions * d_hidden]`: the gradient of the hidden states.
    pub(super) d_outputs: &'a [f32],
    /// `[batch, states * directions * d_hidden]`: the gradient of the last states, if any.
    pub(super) d_last: Option<&'a [f32]>,
}

/// The gradients of projected, the matrices, the biases and the initial states.
pub(super) fn backward(
    set: InstructionSet,
    settings: &Settings,
    inputs: &BackwardInputs<'_>,
) -> [Vec<f32>; 4] {
    let batch = settings.batch;
    let sizes = settings.sizes();
    settings.check([("the matrix", settings.matrix_len(), inputs.recurrent.len())]);
    let mut d_projected = vec![0.0; batch * sizes.projected];
    let mut d_initial = vec![0.0; batch * sizes.states];
    let rows = d_projected
        .chunks_exact_mut(sizes.projected)
        .zip(d_initial.chunks_exact_mut(sizes.states))
        .enumerate()
        .map(|(row, (d_projected, d_initial))| BackwardRow {
            length: settings.lengths[row],
            initial: &inputs.initial[row * sizes.states..][..sizes.states],
            outputs: &inputs.outputs[row * sizes.outputs..][..sizes.outputs],
            activations: &inputs.activations[row * sizes.activations..][..sizes.activations],
            d_outputs: &inputs.d_outputs[row * sizes.outputs..][..sizes.outputs],
            d_last: (inputs.d_last).map(|all| &all[row * sizes.states..][..sizes.states]),
            d_projected,
            d_initial,
        });
    let mut rows: Vec<BackwardRow<'_>> = rows.collect();
    rows.sort_by_key(|row| Reverse(row.length));
    let transposed = transpose(settings, inputs.recurrent);
    let directions = settings.direction.num_directions();
    let d_matrices_len = inputs.recurrent.len() + settings.gates();
    let task = |rows: &mut [BackwardRow<'_>]| {
        let mut d_matrices = vec![0.0; d_matrices_len];
        let mut d_input_biases = vec![0.0; settings.gates()];
        // SAFETY: the processor supports the set, and all slices have their sizes.
        unsafe {
            backward::backward(
                set,
                settings,
                &transposed,
                rows,
                &mut d_matrices,
                &mut d_input_biases,
            );
        }
        (d_matrices, d_input_biases)
    };
    let tasks = rows.chunks_mut(settings.rows_per_task()).collect();
    let parts = parallel::map(tasks, task);
    // In the order of the tasks, so that the sum does not depend on scheduling.
    let sums = parts.into_iter().reduce(|mut sums, part| {
        add(&mut sums.0, &part.0);
        add(&mut sums.1, &part.1);
        sums
    });
    let zeros = || (vec![0.0; d_matrices_len], vec![0.0; settings.gates()]);
    let (mut d_recurrent, mut d_biases) = sums.unwrap_or_else(zeros);
    // The row after each matrix is the gradient of its hidden bias.
    let matrix_len = inputs.recurrent.len() / directions;
    let gates = settings.gates() / directions;
    for dir in 0..directions {
        let first = dir * (matrix_len + gates);
        d_biases.extend_from_slice(&d_recurrent[first + matrix_len..][..gates]);
        d_recurrent.copy_within(first..first + matrix_len, dir * matrix_len);
    }
    d_recurrent.truncate(inputs.recurrent.len());
    [d_projected, d_recurrent, d_biases, d_initial]
}

/// The transposed matrix of each direction: `[directions, gates, d_hidden]`.
fn transpose(settings: &Settings, recurrent: &[f32]) -> Vec<f32> {
    let d = settings.d_hidden;
    let gates = settings.cell.gates() * d;
    let mut transposed = vec![0.0; recurrent.len()];
    let matrices = recurrent.chunks_exact(d * gates);
    for (matrix, transposed) in matrices.zip(transposed.chunks_exact_mut(d * gates)) {
        // In stripes of 16 columns, so that whole cache lines are written.
        for start in (0..d).step_by(16) {
            let rows = start..d.min(start + 16);
            for (column, transposed) in transposed.chunks_exact_mut(d).enumerate() {
                for row in rows.clone() {
                    transposed[row] = matrix[row * gates + column];
                }
            }
        }
    }
    transposed
}

#[cfg(test)]
mod tests;
