//! Loading the queries of a chunk.

use super::Saved;
use crate::scan::cpu::call::{Call, Chunk, Head};
use crate::scan::cpu::load::{copy_rows, fill_rows, map_queries, non_finite_rows};
use crate::scan::cpu::rows::{self, OutputGrads, Strided};

/// The features of a chunk's queries, and the gradients of their sums.
pub(super) struct Queries<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) saved: &'a Saved<'a>,
    /// Their key/value head.
    pub(super) head: Head,
    pub(super) features: &'a mut [f32],
    pub(super) grads: &'a mut [f32],
}

impl Queries<'_> {
    /// Loads the queries of a chunk and returns a bit for each that is not finite, or attends to a
    /// key that is not; both are zero in causal order.
    pub(super) fn load(&mut self, query_head: usize, chunk: &Chunk) -> u64 {
        let (call, head) = (self.call, self.head);
        let (widths, count) = (call.widths(), chunk.queries.len());
        let from = [head.example, query_head];
        map_queries(call, from, &chunk.queries, self.features);
        self.load_grads(query_head, chunk);
        if !call.is_causal {
            return 0;
        }
        let features = &mut self.features[..count * widths.wide_features];
        let grads = &mut self.grads[..count * widths.wide_sums];
        let mut bad = non_finite_rows(features, widths.wide_features)
            | non_finite_rows(grads, widths.wide_sums);
        let head_index = head.example * call.shape.kv_heads + head.kv_head;
        if let Some(first_bad) = self.saved.first_bad[head_index]
            && chunk.has_pairs()
        {
            let first = first_bad.saturating_sub(chunk.keys.start);
            bad |= (first..count).fold(0, |bits, i| bits | 1 << i);
        }
        fill_rows(features, widths.wide_features, bad, 0.0);
        fill_rows(grads, widths.wide_sums, bad, 0.0);
        bad
    }

    /// Loads the gradients of the sums only.
    pub(super) fn load_grads(&mut self, query_head: usize, chunk: &Chunk) {
        let (call, saved, head) = (self.call, self.saved, self.head);
        let (widths, count) = (call.widths(), chunk.queries.len());
        let d_context = Strided {
            rows: saved
                .d_context
                .rows([head.example, query_head], &chunk.queries),
            stride: saved.d_context.stride(),
        };
        let into = &mut self.grads[..count * widths.wide_sums];
        if !call.is_normalised() {
            copy_rows(call, d_context, count, into);
            return;
        }
        let rows = head.query_rows(&call.shape, query_head, &chunk.queries);
        let grads = OutputGrads {
            d_context: d_context.rows,
            stride: d_context.stride,
            context: &saved.context[rows.start * widths.d_value..rows.end * widths.d_value],
            denominators: &saved.denominators[rows],
            d_value: widths.d_value,
        };
        rows::sum_grads(grads, count, widths.wide_sums, into);
    }
}
