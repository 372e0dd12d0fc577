//! Attention over gathered tiles.
//!
//! Forward: a pass merges its tiles with the results of the passes before it. Backward: all rows are
//! independent, as the statistics are those of all passes.

use std::cell::Cell;

use rayon::prelude::*;
use zoo_kernels::cpu::{InstructionSet, add};

use super::backward as row_gradients;
use super::call::{BackwardInputs, Call, GradSlices, STATS};
use super::forward::{self, Start};
use super::kernel::{KEYS, QUERIES};
use super::parts;
use crate::flash::call::Program;
use crate::pattern::gather::{GatherPlan, Indices, MAX_KEYS, MAX_QUERIES};
use zoo_kernels::cpu::scratch::Scratch;

const _: () = assert!(MAX_QUERIES <= QUERIES && MAX_KEYS <= KEYS);

/// As [`forward`](super::forward).
pub(super) fn forward(call: &Call<'_>, plan: &GatherPlan) -> (Vec<f32>, Vec<f32>) {
    let shape = call.shape;
    assert!(call.program == Program::Softmax && plan.seq() == [shape.seq_q, shape.seq_k]);
    let heads = shape.batch * shape.heads;
    let mut context = vec![0.0; heads * shape.seq_q * shape.d_value];
    let mut stats = vec![0.0; heads * shape.seq_q * STATS];
    let set = InstructionSet::detect();
    context
        .par_chunks_mut(shape.seq_q * shape.d_value)
        .zip(stats.par_chunks_mut(shape.seq_q * STATS))
        .enumerate()
        .for_each(|(head, (context, stats))| {
            let example_and_head = [head / shape.heads, head % shape.heads];
            let rows = plan.head(&shape, example_and_head);
            let context = SharedRows::new(context, shape.d_value);
            let stats = SharedRows::new(stats, STATS);
            for (pass, range) in rows.passes().enumerate() {
                let start = if pass == 0 {
                    Start::Empty
                } else {
                    Start::Partial
                };
                range.into_par_iter().for_each(|row| {
                    let queries = rows.queries(row);
                    let mut scratch = Scratch::take();
                    let widths = [shape.d_value, STATS];
                    let [row_context, row_stats] =
                        scratch.split(widths.map(|width| queries.len() * width));
                    // SAFETY: no pass of a plan contains a query twice, and all are below `seq_q`. The
                    // CPU supports the instruction set.
                    unsafe {
                        if start == Start::Partial {
                            context.read(&queries, row_context);
                            stats.read(&queries, row_stats);
                        }
                        forward::forward(set, call, head, row, start, row_context, row_stats);
                        context.write(&queries, row_context);
                        stats.write(&queries, row_stats);
                    }
                });
            }
        });
    (context, stats)
}

/// Tasks of the backward pass per thread. Few, since all heads take about the same time, and each task
/// of a head but the first needs copies of all its gradients.
const TASKS_PER_THREAD: usize = 2;

/// The gradients of query, key and value of a key and value head.
pub(super) fn backward(
    call: &Call<'_>,
    saved: &BackwardInputs<'_>,
    kv_head: usize,
    grads: [&mut [f32]; 3],
) {
    let lens = grads.each_ref().map(|grad| grad.len());
    let copy_len = lens.iter().sum();
    let parts = parts(call, kv_head, copy_len, TASKS_PER_THREAD);
    let set = InstructionSet::detect();
    let run = |rows, [d_query, d_key, d_value]: [&mut [f32]; 3]| {
        let grads = GradSlices {
            d_query,
            d_key,
            d_value,
            d_parameter: &mut [],
        };
        // SAFETY: the CPU supports the instruction set.
        unsafe { row_gradients::backward(set, call, saved, kv_head, rows, grads) };
    };
    // Each part but the first writes to a copy; the copies are added in order.
    let mut scratch = Scratch::take();
    let [copies] = scratch.split([(parts.len() - 1) * copy_len]);
    let copied = copies.chunks_exact_mut(copy_len).map(|copy| {
        let (d_query, rest) = copy.split_at_mut(lens[0]);
        let (d_key, d_value) = rest.split_at_mut(lens[1]);
        [d_query, d_key, d_value]
    });
    let [d_query, d_key, d_value] = grads;
    let first = [&mut *d_query, &mut *d_key, &mut *d_value];
    let targets = std::iter::once(first).chain(copied);
    let tasks: Vec<_> = parts.into_iter().zip(targets).collect();
    tasks
        .into_par_iter()
        .for_each(|(rows, grads)| run(rows, grads));
    for copy in copies.chunks_exact(copy_len) {
        let (d_query_copy, rest) = copy.split_at(lens[0]);
        add(d_query, d_query_copy);
        add(d_key, &rest[..lens[1]]);
        add(d_value, &rest[lens[1]..]);
    }
}

/// Rows of a slice, of which every thread accesses its own.
struct SharedRows<'a> {
    elements: &'a [Cell<f32>],
    width: usize,
}

// SAFETY: the functions require that no two threads access the same row at the same time.
unsafe impl Sync for SharedRows<'_> {}

impl<'a> SharedRows<'a> {
    fn new(elements: &'a mut [f32], width: usize) -> Self {
        Self {
            elements: Cell::from_mut(elements).as_slice_of_cells(),
            width,
        }
    }

    /// Copies the rows of some queries.
    ///
    /// # Safety
    ///
    /// No other thread writes to these rows at the same time.
    unsafe fn read(&self, queries: &Indices<'_>, rows: &mut [f32]) {
        for (query, row) in queries.iter().zip(rows.chunks_exact_mut(self.width)) {
            let from = &self.elements[query * self.width..];
            for (into, from) in row.iter_mut().zip(from) {
                *into = from.get();
            }
        }
    }

    /// Overwrites the rows of some queries.
    ///
    /// # Safety
    ///
    /// No other thread accesses these rows at the same time.
    unsafe fn write(&self, queries: &Indices<'_>, rows: &[f32]) {
        for (query, row) in queries.iter().zip(rows.chunks_exact(self.width)) {
            let into = &self.elements[query * self.width..];
            for (into, from) in into.iter().zip(row) {
                into.set(*from);
            }
        }
    }
}
