//! What both passes compute of the keys of a chunk, before they read a state.

use std::ops::Range;

use super::products::{Keys, Side, workspace_len};
use super::rows;
use super::solve;
use super::{CHUNK, Call, Heads, Update, Widths};
use crate::scan::cpu::{Factor, Head, STRIP, multiply, transpose};
use zoo_kernels::cpu::matmul::Accumulate;
use zoo_kernels::cpu::scratch::Scratch;

/// The buffers of a chunk.
pub(super) struct Chunk<'a> {
    pub(super) keys: Keys<'a>,
    /// One over the norms of the keys; empty without a delta rule.
    pub(super) key_factors: &'a mut [f32],
    /// Keys times the decay from the start of the chunk; empty without a delta rule.
    pub(super) key_from_start: &'a mut [f32],
    /// Keys times the decay to the end of the chunk.
    pub(super) key_to_end: &'a mut [f32],
    pub(super) strength: &'a mut [f32],
    /// Decays from the start of the chunk: `[CHUNK, wide_decays]`.
    pub(super) from_start: &'a mut [f32],
    pub(super) to_end: &'a mut [f32],
    /// The decay of the whole chunk.
    pub(super) total: &'a mut [f32],
    /// `-M`
    pub(super) erasing: &'a mut [f32],
    /// `W`: values, less what the delta rule erases. `[CHUNK, wide_value]`
    pub(super) value: &'a mut [f32],
    /// `U`: what the chunk adds to the state.
    pub(super) update: &'a mut [f32],
    pub(super) workspace: &'a mut [f32],
}

impl<'a> Chunk<'a> {
    pub(super) fn new(call: &Call<'_>, scratch: &'a mut Scratch) -> Self {
        let widths = call.widths();
        let (head, value) = (CHUNK * widths.wide_head, CHUNK * widths.wide_value);
        let (gates, square) = (CHUNK * widths.wide_decays, CHUNK * CHUNK);
        let is_delta = call.update == Update::Delta;
        let if_delta = |len: usize| if is_delta { len } else { 0 };
        let [
            key,
            key_factors,
            key_columns,
            key_from_start,
            key_to_end,
            strength,
            decays,
            from_start,
            to_end,
            total,
            matrix,
            erasing,
            value,
            update,
            workspace,
        ] = scratch.split([
            head,
            if_delta(CHUNK),
            head,
            if_delta(head),
            head,
            CHUNK,
            gates,
            gates,
            gates,
            widths.wide_decays,
            if call.decays == 1 { square } else { 0 },
            if_delta(square),
            value,
            value,
            workspace_len(&widths),
        ]);
        Self {
            keys: Keys {
                set: call.set,
                widths,
                count: 0,
                rows: key,
                columns: key_columns,
                decays,
                matrix,
            },
            key_factors,
            key_from_start,
            key_to_end,
            strength,
            from_start,
            to_end,
            total,
            erasing,
            value,
            update,
            workspace,
        }
    }

    /// Loads the keys at some positions, and computes `W` and `U` for the state before them, which is
    /// empty if it is zero. Returns the first row whose key or value has infinities or NaN, which become
    /// zeros: products with later keys are masked, and zero times NaN is NaN.
    pub(super) fn load(
        &mut self,
        call: &Call<'_>,
        head: Head,
        at: &Range<usize>,
        state: &[f32],
    ) -> Option<usize> {
        let Widths {
            d_head,
            d_value,
            wide_head,
            wide_value,
            wide_decays,
        } = call.widths();
        let set = call.set;
        let count = at.len().next_multiple_of(STRIP);
        let load = |from: &Heads<'_>, [width, wide]: [usize; 2], into: &mut [f32]| {
            let rows = from.rows([head.example, head.kv_head], at);
            let size = [at.len(), width, wide];
            rows::load((rows, from.stride()), size, &mut into[..count * wide]);
        };
        self.keys.count = count;
        load(&call.key, [d_head, wide_head], self.keys.rows);
        load(&call.value, [d_value, wide_value], self.value);
        load(&call.strength, [1, 1], self.strength);
        load(
            &call.log_decay,
            [call.decays, wide_decays],
            self.keys.decays,
        );
        let (rows, gates) = (..count * wide_head, ..count * wide_decays);
        let bad = [
            rows::make_finite(wide_head, &mut self.keys.rows[rows]),
            rows::make_finite(wide_value, &mut self.value[..count * wide_value]),
        ];
        if call.update == Update::Delta {
            let factors = &mut self.key_factors[..count];
            rows::normalize(wide_head, &mut self.keys.rows[rows], factors);
        }
        let key = &self.keys.rows[rows];
        let columns = (&mut *self.keys.columns, CHUNK);
        transpose(set, [count, d_head], (key, wide_head), columns);

        // Of no decay after the last position.
        rows::exponentiate(set, &mut self.keys.decays[gates]);
        let decays = &self.keys.decays[gates];
        let (from_start, to_end) = (&mut self.from_start[gates], &mut self.to_end[gates]);
        let last = (count - 1) * wide_decays;
        rows::decays_from_start(decays, wide_decays, from_start);
        let ones = &mut *self.total;
        ones.fill(1.0);
        rows::decays_to_end(decays, wide_decays, ones, to_end);
        self.total.copy_from_slice(&from_start[last..]);
        if call.decays == 1 {
            rows::decay_matrix(decays, self.keys.matrix);
        }
        rows::scale(to_end, key, wide_head, &mut self.key_to_end[rows]);

        let values = ..count * wide_value;
        let (strength, update) = (&self.strength[..count], &mut self.update[values]);
        match call.update {
            Update::Add => rows::scale(strength, &self.value[values], wide_value, update),
            Update::Delta => {
                let key_from_start = &mut self.key_from_start[rows];
                rows::scale(from_start, key, wide_head, key_from_start);
                if !state.is_empty() {
                    multiply(
                        set,
                        [count, d_head, wide_value],
                        Factor::rows(key_from_start, wide_head),
                        (state, wide_value),
                        (&mut *update, wide_value),
                        Accumulate::Overwrite,
                    );
                    rows::subtract(update, &mut self.value[values]);
                }
                self.keys
                    .products(Side::Keys, key, self.erasing, self.workspace);
                let size = [count, wide_value];
                let value = &mut self.value[values];
                solve::forward(set, size, self.erasing, strength, value, update);
            }
        }
        bad.into_iter().flatten().min()
    }
}
