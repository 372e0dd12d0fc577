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
use self::forward::Row;
use super::call::Settings;
use crate::cpu::{InstructionSet, add, parallel};

pub(super) struct Given<'a> {
    /// `[batch, seq, passes * gates]`
    pub(super) projected: &'a [f32],
    /// `[passes * d_hidden, gates]`
    pub(super) recurrent: &'a [f32],
    /// `[2, passes * gates]`
    pub(super) biases: &'a [f32],
    /// `[batch, states * passes * d_hidden]`
    pub(super) initial: &'a [f32],
}

/// All rows through all their places: hidden states `[batch, seq, passes * d_hidden]`, last states
/// `[batch, states * passes * d_hidden]`, and what the way back needs, if it is wanted.
pub(super) fn forward(settings: &Settings, given: &Given<'_>, remembers: bool) -> [Vec<f32>; 3] {
    forward_as(InstructionSet::detect(), settings, given, remembers)
}

fn forward_as(
    set: InstructionSet,
    settings: &Settings,
    given: &Given<'_>,
    remembers: bool,
) -> [Vec<f32>; 3] {
    let batch = settings.batch;
    let sizes = settings.sizes();
    settings.check([
        ("the matrix", settings.matrix(), given.recurrent.len()),
        ("projected", batch * sizes.projected, given.projected.len()),
        ("the biases", 2 * settings.gates(), given.biases.len()),
        (
            "the initial state",
            batch * sizes.states,
            given.initial.len(),
        ),
    ]);
    let (mut outputs, mut last) = (
        vec![0.0; batch * sizes.outputs],
        vec![0.0; batch * sizes.states],
    );
    let mut kept = vec![0.0; if remembers { batch * sizes.kept } else { 0 }];
    let mut keeping = kept.chunks_exact_mut(sizes.kept);
    let rows = settings
        .lengths
        .iter()
        .zip(given.projected.chunks_exact(sizes.projected))
        .zip(given.initial.chunks_exact(sizes.states))
        .zip(outputs.chunks_exact_mut(sizes.outputs))
        .zip(last.chunks_exact_mut(sizes.states))
        .map(|((((length, projected), initial), outputs), last)| Row {
            length: *length,
            projected,
            initial,
            outputs,
            last,
            kept: keeping.next(),
        });
    let mut rows = sorted(rows.collect(), &settings.order());
    let tasks = rows.chunks_mut(settings.rows_of_a_task()).collect();
    parallel::for_each(tasks, |rows| {
        // SAFETY: the processor has the set; rows were cut to their sizes.
        unsafe { forward::forward(set, settings, given.recurrent, given.biases, rows) };
    });
    [outputs, last, kept]
}

/// What the way back starts from.
pub(super) struct Known<'a> {
    /// `[passes * d_hidden, gates]`
    pub(super) recurrent: &'a [f32],
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

/// All rows back through all their places: the gradients by projected, by the matrices, by the
/// biases and by the initial states.
pub(super) fn backward(settings: &Settings, known: &Known<'_>) -> [Vec<f32>; 4] {
    backward_as(InstructionSet::detect(), settings, known)
}

fn backward_as(set: InstructionSet, settings: &Settings, known: &Known<'_>) -> [Vec<f32>; 4] {
    let batch = settings.batch;
    let sizes = settings.sizes();
    settings.check([("the matrix", settings.matrix(), known.recurrent.len())]);
    let (mut d_projected, mut d_initial) = (
        vec![0.0; batch * sizes.projected],
        vec![0.0; batch * sizes.states],
    );
    let rows = d_projected
        .chunks_exact_mut(sizes.projected)
        .zip(d_initial.chunks_exact_mut(sizes.states))
        .enumerate()
        .map(|(row, (d_projected, d_initial))| RowBack {
            length: settings.lengths[row],
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
    let mut rows = sorted(rows.collect(), &settings.order());
    let turned = turned(settings, known.recurrent);
    let task = |rows: &mut [RowBack<'_>]| {
        let mut d_recurrent = vec![0.0; known.recurrent.len()];
        let mut d_biases = vec![0.0; 2 * settings.gates()];
        // SAFETY: the processor has the set; rows were cut to their sizes.
        unsafe {
            backward::backward(
                set,
                settings,
                &turned,
                rows,
                &mut d_recurrent,
                &mut d_biases,
            );
        }
        (d_recurrent, d_biases)
    };
    let tasks = rows.chunks_mut(settings.rows_of_a_task()).collect();
    let parts = parallel::map(tasks, task);
    // In the order of the tasks, so that a sum does not depend on who was first.
    let sums = parts.into_iter().reduce(|mut sums, part| {
        add(&mut sums.0, &part.0);
        add(&mut sums.1, &part.1);
        sums
    });
    let (d_recurrent, d_biases) = sums.unwrap_or_default();
    [d_projected, d_recurrent, d_biases, d_initial]
}

/// The matrix of each pass with rows for columns: `[passes, gates, d_hidden]`.
fn turned(settings: &Settings, recurrent: &[f32]) -> Vec<f32> {
    let d = settings.d_hidden;
    let gates = settings.cell.gates() * d;
    let mut turned = vec![0.0; recurrent.len()];
    let passes = recurrent.chunks_exact(d * gates);
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

fn sorted<T>(rows: Vec<T>, order: &[usize]) -> Vec<T> {
    let mut rows: Vec<Option<T>> = rows.into_iter().map(Some).collect();
    order.iter().filter_map(|row| rows[*row].take()).collect()
}

#[cfg(test)]
mod tests;
