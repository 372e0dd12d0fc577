//! The backward pass of a head.

use std::ops::Range;

use super::chunk::Chunk;
use super::forward::decay_state;
use super::products::Side;
use super::rows;
use super::solve;
use super::{CHUNK, Call, Heads, Update, Widths};
use crate::scan::cpu::{
    Factor, Head, Output, lower_products, lower_transposed_times, multiply, multiply_by, transpose,
};
use zoo_kernels::cpu::InstructionSet;
use zoo_kernels::cpu::matmul::Accumulate;
use zoo_kernels::cpu::scratch::Scratch;

/// Where the gradients of the inputs go.
pub(super) struct Outputs<'a> {
    pub(super) query: Output<'a>,
    pub(super) key: Output<'a>,
    pub(super) value: Output<'a>,
    pub(super) log_decay: Output<'a>,
    pub(super) strength: Output<'a>,
}

/// Computes the gradients of a head. `states` are those before each chunk.
pub(super) fn backward(
    call: &Call<'_>,
    head: Head,
    states: &[f32],
    d_context: Heads<'_>,
    outputs: &Outputs<'_>,
) {
    let widths = call.widths();
    let state_len = widths.state_len();
    let (mut chunk_scratch, mut scratch) = (Scratch::take(), Scratch::take());
    let mut chunk = Chunk::new(call, &mut chunk_scratch);
    let mut pass = Pass::new(call, head, d_context, &mut scratch);
    pass.d_state.fill(0.0);
    for (i, at) in call.chunk_ranges().enumerate().rev() {
        let state = |i: usize| states.get(i * state_len..(i + 1) * state_len);
        let before = if i == 0 { None } else { state(i) };
        let bad = chunk.load(call, head, &at, before.unwrap_or_default());
        pass.chunk(&mut chunk, &at, before, state(i + 1), outputs);
        if bad.is_some() {
            pass.clear_non_finite(&at, outputs);
        }
    }
}

/// The buffers of a backward pass.
struct Pass<'a> {
    call: &'a Call<'a>,
    head: Head,
    widths: Widths,
    d_context: Heads<'a>,
    /// The gradient of the state after the chunk: `[d_head, wide_value]`.
    d_state: &'a mut [f32],
    /// Transposes of states: `[wide_value, wide_head]`.
    state_columns: &'a mut [f32],
    /// `Uᵀ`: `[wide_value, CHUNK]`.
    update_columns: &'a mut [f32],
    query: &'a mut [f32],
    query_factors: &'a mut [f32],
    /// Gradients of contexts, times the scale of queries.
    grads: &'a mut [f32],
    scores: &'a mut [f32],
    d_scores: &'a mut [f32],
    d_update: &'a mut [f32],
    /// `D`, the gradient of the values.
    d_value: &'a mut [f32],
    d_query: &'a mut [f32],
    /// The gradient of keys as they are written to the state.
    d_written: &'a mut [f32],
    /// The gradient of keys as they read the state.
    d_read: &'a mut [f32],
    /// `[CHUNK, wide_head]`
    product: &'a mut [f32],
    d_decay: &'a mut [f32],
    d_strength: &'a mut [f32],
}

impl<'a> Pass<'a> {
    fn new(call: &'a Call<'a>, head: Head, d_context: Heads<'a>, scratch: &'a mut Scratch) -> Self {
        let widths = call.widths();
        let (rows, values) = (CHUNK * widths.wide_head, CHUNK * widths.wide_value);
        let [
            d_state,
            state_columns,
            update_columns,
            query,
            query_factors,
            grads,
            scores,
            d_scores,
            d_update,
            d_value,
            d_query,
            d_written,
            d_read,
            product,
            d_decay,
            d_strength,
        ] = scratch.split([
            widths.state_len(),
            widths.wide_value * widths.wide_head,
            values,
            rows,
            CHUNK,
            values,
            CHUNK * CHUNK,
            CHUNK * CHUNK,
            values,
            values,
            rows,
            rows,
            rows,
            rows,
            CHUNK * widths.wide_decays,
            CHUNK,
        ]);
        // The padding of their rows stays zero.
        state_columns.fill(0.0);
        Self {
            call,
            head,
            widths,
            d_context,
            d_state,
            state_columns,
            update_columns,
            query,
            query_factors,
            grads,
            scores,
            d_scores,
            d_update,
            d_value,
            d_query,
            d_written,
            d_read,
            product,
            d_decay,
            d_strength,
        }
    }

    /// The gradients of a chunk, for the states before and after it, if they are not zero or not
    /// needed.
    fn chunk(
        &mut self,
        chunk: &mut Chunk<'_>,
        at: &Range<usize>,
        before: Option<&[f32]>,
        after: Option<&[f32]>,
        outputs: &Outputs<'_>,
    ) {
        let Widths {
            d_head,
            d_value,
            wide_head,
            wide_value,
            wide_decays,
        } = self.widths;
        let (call, head) = (self.call, self.head);
        let (set, count) = (call.set, chunk.keys.count);
        let (rows, values) = (..count * wide_head, ..count * wide_value);
        let decays = ..count * wide_decays;
        self.d_decay[decays].fill(0.0);
        if let Some(after) = after {
            let d_total = &mut self.d_decay[(count - 1) * wide_decays..][..wide_decays];
            rows::add_row_products(after, self.d_state, wide_value, d_total);
        }

        // The keys as they are written to the state.
        let from = (&*self.d_state, wide_value);
        let columns = (&mut *self.state_columns, wide_head);
        transpose(set, [d_head, d_value], from, columns);
        multiply(
            set,
            [count, d_head, wide_value],
            Factor::rows(chunk.key_to_end, wide_head),
            (self.d_state, wide_value),
            (self.d_update, wide_value),
            Accumulate::Overwrite,
        );
        self.widths
            .times_columns(set, count, chunk.update, self.state_columns, self.product);
        let (to_end, product) = (&chunk.to_end[decays], &self.product[rows]);
        rows::scale(to_end, product, wide_head, &mut self.d_written[rows]);

        let update = (&*chunk.update, wide_value);
        transpose(set, [count, d_value], update, (self.update_columns, CHUNK));
        if let Some(before) = before {
            let from = (before, wide_value);
            let columns = (&mut *self.state_columns, wide_head);
            transpose(set, [d_head, d_value], from, columns);
        }
        let mut accumulate = decay_state(&self.widths, chunk, self.d_state);
        for query_head in head.query_heads(&call.shape) {
            self.queries(chunk, query_head, at, before.is_some(), accumulate, outputs);
            accumulate = Accumulate::Add;
        }

        let strength = &chunk.strength[..count];
        match call.update {
            Update::Add => {
                let d_update = &self.d_update[values];
                rows::scale(strength, d_update, wide_value, &mut self.d_value[values]);
            }
            Update::Delta => {
                solve::backward(
                    set,
                    [count, wide_value],
                    chunk.erasing,
                    strength,
                    &mut self.d_update[values],
                    &mut self.d_value[values],
                );
                self.erasing_keys(chunk, before.is_some());
            }
        }
        let (value, d_update) = (&chunk.value[values], &self.d_update[values]);
        let d_strength = &mut self.d_strength[..count];
        d_strength.fill(0.0);
        rows::add_products(1.0, value, d_update, wide_value, d_strength);
        let keys = &chunk.keys.rows[rows];
        let d_written = &mut self.d_written[rows];
        rows::add_products(-1.0, keys, d_written, wide_head, &mut self.d_decay[decays]);
        if call.update == Update::Delta {
            let d_read = &self.d_read[rows];
            rows::add_products(1.0, keys, d_read, wide_head, &mut self.d_decay[decays]);
            rows::add(d_read, d_written);
            rows::normalize_grads(wide_head, keys, &chunk.key_factors[..count], d_written);
        }
        rows::sums_to_end(wide_decays, &mut self.d_decay[decays]);

        let rows = head.key_rows(&call.shape, at);
        let store = |output: &Output<'_>, from: &[f32], [wide, width]: [usize; 2]| {
            // SAFETY: one task computes a head.
            let into = unsafe { output.rows(rows.clone(), width) };
            rows::store(1.0, from, wide, width, into);
        };
        store(&outputs.key, self.d_written, [wide_head, d_head]);
        store(&outputs.value, self.d_value, [wide_value, d_value]);
        store(&outputs.log_decay, self.d_decay, [wide_decays, call.decays]);
        store(&outputs.strength, self.d_strength, [1, 1]);
    }

    /// Sets the gradients of infinities and NaN in keys and values to zero.
    fn clear_non_finite(&self, at: &Range<usize>, outputs: &Outputs<'_>) {
        let (call, head) = (self.call, self.head);
        let rows = head.key_rows(&call.shape, at);
        let tensors = [
            (&call.key, &outputs.key, self.widths.d_head),
            (&call.value, &outputs.value, self.widths.d_value),
        ];
        for (tensor, output, width) in tensors {
            let from = tensor.rows([head.example, head.kv_head], at);
            // SAFETY: one task computes a head.
            let grads = unsafe { output.rows(rows.clone(), width) };
            for (i, grads) in grads.chunks_exact_mut(width).enumerate() {
                for (x, grad) in from[i * tensor.stride()..].iter().zip(grads) {
                    if !x.is_finite() {
                        grad.write(0.0);
                    }
                }
            }
        }
    }

    /// The gradients of the queries of one head, and what they add to those of `U`, of the keys and
    /// of the state.
    fn queries(
        &mut self,
        chunk: &mut Chunk<'_>,
        query_head: usize,
        at: &Range<usize>,
        has_state: bool,
        accumulate: Accumulate,
        outputs: &Outputs<'_>,
    ) {
        let Widths {
            d_head,
            d_value,
            wide_head,
            wide_value,
            wide_decays,
        } = self.widths;
        let call = self.call;
        let (set, count) = (call.set, chunk.keys.count);
        let (rows, values) = (..count * wide_head, ..count * wide_value);
        let from_start = &chunk.from_start[..count * wide_decays];
        call.load_queries(
            self.head,
            query_head,
            at,
            &mut self.query[rows],
            self.query_factors,
        );
        let from = self.d_context.rows([self.head.example, query_head], at);
        let size = [at.len(), d_value, wide_value];
        let grads = &mut self.grads[values];
        rows::load((from, self.d_context.stride()), size, grads);
        multiply_by(call.scale, grads);

        let query = &self.query[rows];
        let (scores, d_scores) = (&mut *self.scores, &mut *self.d_scores);
        chunk
            .keys
            .products(Side::Queries, query, scores, chunk.workspace);
        let size = [count, wide_value];
        let grads = (&self.grads[values], wide_value);
        let d_update = (&mut *self.d_update, wide_value);
        lower_transposed_times::<CHUNK>(set, size, scores, grads, d_update);
        let size = [count, d_value];
        lower_products::<CHUNK>(set, size, grads, self.update_columns, d_scores);

        self.d_query[rows].fill(0.0);
        if has_state {
            self.widths
                .times_columns(set, count, self.grads, self.state_columns, self.product);
            rows::scale(
                from_start,
                &self.product[rows],
                wide_head,
                &mut self.d_query[rows],
            );
        }
        let query = &self.query[rows];
        let into = [&mut self.d_query[rows], &mut self.d_written[rows]];
        chunk
            .keys
            .gradients(Side::Queries, query, self.d_scores, into, chunk.workspace);

        // The decayed queries, for the state.
        rows::scale(from_start, query, wide_head, &mut self.product[rows]);
        multiply(
            set,
            [d_head, count, wide_value],
            Factor::columns(self.product, wide_head),
            (self.grads, wide_value),
            (self.d_state, wide_value),
            accumulate,
        );

        let d_query = &mut self.d_query[rows];
        let d_decay = &mut self.d_decay[..count * wide_decays];
        rows::add_products(1.0, query, d_query, wide_head, d_decay);
        match call.update {
            Update::Add => {}
            Update::Delta => {
                rows::normalize_grads(wide_head, query, &self.query_factors[..count], d_query);
            }
        }
        let rows = self.head.query_rows(&call.shape, query_head, at);
        // SAFETY: one task computes a head.
        let into = unsafe { outputs.query.rows(rows, d_head) };
        rows::store(1.0, d_query, wide_head, d_head, into);
    }

    /// The gradients of keys as they erase the state and earlier keys, from `D`.
    fn erasing_keys(&mut self, chunk: &mut Chunk<'_>, has_state: bool) {
        let Widths {
            d_head,
            d_value,
            wide_head,
            wide_value,
            wide_decays,
        } = self.widths;
        let (set, count) = (self.call.set, chunk.keys.count);
        let rows = ..count * wide_head;
        let from_start = &chunk.from_start[..count * wide_decays];
        let d_read = &mut self.d_read[rows];
        if has_state {
            self.widths
                .times_columns(set, count, self.d_value, self.state_columns, self.product);
            rows::scale(from_start, &self.product[rows], wide_head, d_read);
            multiply_by(-1.0, d_read);
            // These keys are not needed any more.
            multiply_by(-1.0, &mut chunk.key_from_start[rows]);
            multiply(
                set,
                [d_head, count, wide_value],
                Factor::columns(chunk.key_from_start, wide_head),
                (self.d_value, wide_value),
                (self.d_state, wide_value),
                Accumulate::Add,
            );
        } else {
            d_read.fill(0.0);
        }
        let d_values = (&*self.d_value, wide_value);
        let size = [count, d_value];
        lower_products::<CHUNK>(set, size, d_values, self.update_columns, self.d_scores);
        let into = [&mut self.d_read[rows], &mut self.d_written[rows]];
        let key = &chunk.keys.rows[rows];
        chunk
            .keys
            .gradients(Side::Keys, key, self.d_scores, into, chunk.workspace);
    }
}

impl Widths {
    /// `product = x · stateᵀ` of `count` rows, from the columns of the state.
    fn times_columns(
        &self,
        set: InstructionSet,
        count: usize,
        x: &[f32],
        columns: &[f32],
        product: &mut [f32],
    ) {
        multiply(
            set,
            [count, self.d_value, self.wide_head],
            Factor::rows(x, self.wide_value),
            (columns, self.wide_head),
            (product, self.wide_head),
            Accumulate::Overwrite,
        );
    }
}
