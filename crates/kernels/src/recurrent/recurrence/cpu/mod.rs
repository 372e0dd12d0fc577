//! The recurrence on a CPU, on plain slices of `f32`.
//!
//! Rows of a batch have nothing to do with each other: a task takes some of them through
//! the whole sequence, forward or back, so that no thread waits for another between places.
//! Rows are sorted by their lengths, and what is padding is never looked at.

mod backward;
mod call;
mod forward;
mod gates;

use self::backward::RowBack;
pub(super) use self::call::Call;
use self::forward::Row;
use crate::cpu::{InstructionSet, add, parallel};

/// What goes in.
pub(super) struct Given<'a> {
    /// `[batch, seq, passes * gates]`
    pub(super) projected: &'a [f32],
    /// `[2, passes * gates]`
    pub(super) biases: &'a [f32],
    /// `[batch, states * passes * d_hidden]`
    pub(super) initial: &'a [f32],
}

/// Where what comes out is written to, whatever is there before.
pub(super) struct Results<'a> {
    /// `[batch, seq, passes * d_hidden]`
    pub(super) outputs: &'a mut [f32],
    /// `[batch, states * passes * d_hidden]`
    pub(super) last: &'a mut [f32],
}

/// All rows through all their places; returns what the way back needs, if it is wanted.
pub(super) fn forward(
    call: &Call<'_>,
    given: &Given<'_>,
    results: Results<'_>,
    remembers: bool,
) -> Vec<f32> {
    forward_as(InstructionSet::detect(), call, given, results, remembers)
}

fn forward_as(
    set: InstructionSet,
    call: &Call<'_>,
    given: &Given<'_>,
    results: Results<'_>,
    remembers: bool,
) -> Vec<f32> {
    let batch = call.lengths.len();
    let sizes = call.sizes();
    call.check([
        ("the matrix", call.matrix(), call.recurrent.len()),
        ("projected", batch * sizes.projected, given.projected.len()),
        (
            "the biases",
            2 * sizes.projected / call.seq,
            given.biases.len(),
        ),
        (
            "the initial state",
            batch * sizes.states,
            given.initial.len(),
        ),
        ("the outputs", batch * sizes.outputs, results.outputs.len()),
        ("the last state", batch * sizes.states, results.last.len()),
    ]);
    let mut kept = vec![0.0; if remembers { batch * sizes.kept } else { 0 }];
    let mut keeping = kept.chunks_exact_mut(sizes.kept);
    let rows = call
        .lengths
        .iter()
        .zip(given.projected.chunks_exact(sizes.projected))
        .zip(given.initial.chunks_exact(sizes.states))
        .zip(results.outputs.chunks_exact_mut(sizes.outputs))
        .zip(results.last.chunks_exact_mut(sizes.states))
        .map(|((((length, projected), initial), outputs), last)| Row {
            length: *length,
            projected,
            initial,
            outputs,
            last,
            kept: keeping.next(),
        });
    let mut rows = sorted(rows.collect(), &call.order());
    let tasks = rows.chunks_mut(call.rows_of_a_task()).collect();
    parallel::for_each(tasks, |rows| {
        // SAFETY: the processor has the set; rows were cut to their sizes.
        unsafe { forward::forward(set, call, given.biases, rows) };
    });
    kept
}

/// What the way back starts from.
pub(super) struct Known<'a> {
    /// `[batch, states * passes * d_hidden]`
    pub(super) initial: &'a [f32],
    /// `[batch, seq, passes * d_hidden]`
    pub(super) outputs: &'a [f32],
    /// What [`forward`] kept.
    pub(super) kept: &'a [f32],
    /// `[batch, seq, passes * d_hidden]`: the gradient that arrives at the hidden states.
    pub(super) d_outputs: &'a [f32],
    /// `[batch, states * passes * d_hidden]`: the one that arrives at the last states, if any.
    pub(super) d_last: Option<&'a [f32]>,
}

/// Where gradients are written to, shaped like what went in, whatever is there before.
pub(super) struct Gradients<'a> {
    pub(super) projected: &'a mut [f32],
    pub(super) initial: &'a mut [f32],
}

/// All rows back through all their places; returns the gradients by the matrices and by the
/// biases.
pub(super) fn backward(
    call: &Call<'_>,
    known: &Known<'_>,
    gradients: Gradients<'_>,
) -> (Vec<f32>, Vec<f32>) {
    backward_as(InstructionSet::detect(), call, known, gradients)
}

fn backward_as(
    set: InstructionSet,
    call: &Call<'_>,
    known: &Known<'_>,
    gradients: Gradients<'_>,
) -> (Vec<f32>, Vec<f32>) {
    let batch = call.lengths.len();
    let sizes = call.sizes();
    call.check([
        ("the matrix", call.matrix(), call.recurrent.len()),
        (
            "projected",
            batch * sizes.projected,
            gradients.projected.len(),
        ),
        (
            "the initial state",
            batch * sizes.states,
            gradients.initial.len(),
        ),
    ]);
    let rows = gradients
        .projected
        .chunks_exact_mut(sizes.projected)
        .zip(gradients.initial.chunks_exact_mut(sizes.states))
        .enumerate()
        .map(|(row, (d_projected, d_initial))| RowBack {
            length: call.lengths[row],
            initial: &known.initial[row * sizes.states..][..sizes.states],
            outputs: &known.outputs[row * sizes.outputs..][..sizes.outputs],
            kept: &known.kept[row * sizes.kept..][..sizes.kept],
            d_outputs: &known.d_outputs[row * sizes.outputs..][..sizes.outputs],
            d_last: known
                .d_last
                .map(|d_last| &d_last[row * sizes.states..][..sizes.states]),
            d_projected,
            d_initial,
        });
    let mut rows = sorted(rows.collect(), &call.order());
    let turned = turned(call);
    let biases = 2 * call.direction.passes() * call.cell.gates() * call.d_hidden;
    let task = |rows: &mut [RowBack<'_>]| {
        let mut d_recurrent = vec![0.0; call.recurrent.len()];
        let mut d_biases = vec![0.0; biases];
        // SAFETY: the processor has the set; rows were cut to their sizes.
        unsafe { backward::backward(set, call, &turned, rows, &mut d_recurrent, &mut d_biases) };
        (d_recurrent, d_biases)
    };
    let tasks = rows.chunks_mut(call.rows_of_a_task()).collect();
    let parts = parallel::map(tasks, task);
    // In the order of the tasks, so that a sum does not depend on who was first.
    let sums = parts.into_iter().reduce(|mut sums, part| {
        add(&mut sums.0, &part.0);
        add(&mut sums.1, &part.1);
        sums
    });
    sums.unwrap_or_default()
}

/// The matrix of each pass with rows for columns: `[passes, gates, d_hidden]`.
fn turned(call: &Call<'_>) -> Vec<f32> {
    let d = call.d_hidden;
    let gates = call.cell.gates() * d;
    let mut turned = vec![0.0; call.recurrent.len()];
    let passes = call.recurrent.chunks_exact(d * gates);
    for (matrix, turned) in passes.zip(turned.chunks_exact_mut(d * gates)) {
        // By stripes of 16 columns: what is written is then a line of the cache at a time.
        for start in (0..d).step_by(16) {
            let rows = start..d.min(start + 16);
            for (column, turned) in turned.chunks_exact_mut(d).enumerate() {
                for row in rows.clone() {
                    turned[row] = matrix[row * gates + column];
                }
            }
        }
    }
    turned
}

/// Rows in the given order.
fn sorted<T>(rows: Vec<T>, order: &[usize]) -> Vec<T> {
    let mut rows: Vec<Option<T>> = rows.into_iter().map(Some).collect();
    order.iter().filter_map(|row| rows[*row].take()).collect()
}

#[cfg(test)]
mod tests;
