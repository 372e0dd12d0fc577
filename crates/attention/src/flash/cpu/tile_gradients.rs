//! The weights of one tile and the gradients of its scores, recomputed in the backward pass.

use zoo_kernels::cpu::Simd;
use zoo_kernels::cpu::matmul::{Accumulate, matmul};

use super::additive::{
    AdditiveGrads, additive_backward, additive_scores, query_powers, select_form,
};
use super::call::{BackwardInputs, Call, STATS, Tile, gather_rows};
use super::gaussian::Positions;
use super::hard::add_gumbel_noise;
use super::kernel::{
    KEYS, QUERIES, clear_masked, column_dots, multiply, rows_of, rows_to_columns, scale_columns,
    sigmoid_backward, softmax_backward,
};
use super::score::{finish_scores, write_dropout_factors};
use crate::analysis::weights::HardSelection;
use crate::flash::call::Program;
use crate::pattern::gather::Indices;
use zoo_kernels::cpu::scratch::Scratch;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GradTarget {
    /// The scores, to which a bias is added.
    Scores,
    /// The unscaled dot products; the gradient includes the scale.
    DotProducts,
}

/// Rows of a tile of queries.
pub(super) struct QueryRows<'a> {
    pub(super) query: &'a [f32],
    pub(super) context: &'a [f32],
    pub(super) d_context: &'a [f32],
}

impl<'a> QueryRows<'a> {
    /// The rows of the head whose first query, counted over all examples and heads, is `first`. The
    /// buffers are only used if the queries are not contiguous.
    #[inline(always)]
    pub(super) fn gather(
        call: &Call<'a>,
        saved: &BackwardInputs<'a>,
        first: usize,
        queries: &Indices<'_>,
        buffers: [&'a mut [f32]; 3],
    ) -> Self {
        let seq_q = call.shape.seq_q;
        let [d_head, d_value] = call.shape.widths();
        let rows = |rows: &'a [f32], width: usize, buffer: &'a mut [f32]| {
            gather_rows(
                &rows[first * width..][..seq_q * width],
                width,
                queries,
                buffer,
            )
        };
        let [query, context, d_context] = buffers;
        Self {
            query: rows(call.query, d_head, query),
            context: rows(saved.context, d_value, context),
            d_context: rows(saved.d_context, d_value, d_context),
        }
    }

    /// The lengths of the buffers.
    pub(super) fn buffer_lens(call: &Call<'_>) -> [usize; 3] {
        let [d_head, d_value] = call.shape.widths();
        let rows = if call.gather.is_some() { QUERIES } else { 0 };
        [d_head, d_value, d_value].map(|width| rows * width)
    }
}

/// Buffers for one tile of the backward pass. A suffix `_t` means transposed.
pub(super) struct TileBuffers<'a> {
    query_t: &'a mut [f32],
    d_context_t: &'a mut [f32],
    context_t: &'a mut [f32],
    pub(super) weights: &'a mut [f32],
    pub(super) d_scores: &'a mut [f32],
    max: &'a mut [f32],
    /// One over the sum of each row, zero for a fully masked row.
    inverse: &'a mut [f32],
    /// `rowsum(dO · O)`, minus the gradient of the log-sum-exp.
    delta: &'a mut [f32],
    factors: &'a mut [f32],
    /// The derivative of score function and softcap.
    score_grad: &'a mut [f32],
    /// The exponentials of queries and keys of additive attention.
    query_powers: &'a mut [f32],
    key_powers: &'a mut [f32],
    /// The keys and values of a tile, if they are gathered.
    pub(super) keys: &'a mut [f32],
    values: &'a mut [f32],
    has_query_powers: bool,
    positions: Option<Positions>,
    pub(super) d_positions: [f32; QUERIES],
}

impl<'a> TileBuffers<'a> {
    pub(super) fn new(call: &Call<'_>, scratch: &'a mut Scratch) -> Self {
        let [d_head, d_value] = call.shape.widths();
        let keys_if = |is_needed: bool| if is_needed { KEYS } else { 0 };
        let [factors, score_grad] = [call.has_factors(), call.has_score_grad()].map(keys_if);
        let (powers, key_powers) = match call.program {
            // Rows of keys are shorter than those of queries: rounded up.
            Program::Additive => (d_head, (KEYS * d_head).div_ceil(QUERIES)),
            Program::Softmax | Program::Gaussian { .. } | Program::Sigmoid | Program::Hard(_) => {
                (0, 0)
            }
        };
        // Of at most `KEYS` elements each, which a row of queries may be shorter than.
        let [keys, values] = match call.gather {
            Some(_) => [d_head, d_value].map(|width| (KEYS * width).div_ceil(QUERIES)),
            None => [0, 0],
        };
        let rows = [
            d_head, d_value, d_value, KEYS, KEYS, 1, 1, 1, factors, score_grad, powers, key_powers,
            keys, values,
        ];
        let [
            query_t,
            d_context_t,
            context_t,
            weights,
            d_scores,
            max,
            inverse,
            delta,
            factors,
            score_grad,
            query_powers,
            key_powers,
            keys,
            values,
        ] = scratch.split(rows.map(|rows| rows * QUERIES));
        Self {
            query_t,
            d_context_t,
            context_t,
            weights,
            d_scores,
            max,
            inverse,
            delta,
            factors,
            score_grad,
            query_powers,
            key_powers,
            keys,
            values,
            has_query_powers: false,
            positions: None,
            d_positions: [0.0; QUERIES],
        }
    }

    /// Whether the loaded queries need no gradients of these keys.
    pub(super) fn excludes(&self, call: &Call<'_>, keys: &Indices<'_>) -> bool {
        let exclude = |it: &Positions| it.exclude(&keys.range());
        let is_outside = self.positions.as_ref().is_some_and(exclude);
        is_outside || call.program == Program::Hard(HardSelection::Best)
    }

    /// Loads queries of the head whose first query, counted over all examples and heads, is `first`.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled.
    #[inline(always)]
    pub(super) unsafe fn load_queries<S: Simd>(
        &mut self,
        call: &Call<'_>,
        saved: &BackwardInputs<'_>,
        first: usize,
        queries: &Indices<'_>,
        rows: &QueryRows<'_>,
    ) {
        let [d_head, d_value] = call.shape.widths();
        let &QueryRows {
            query,
            context,
            d_context,
        } = rows;
        // SAFETY: the caller enabled the instructions.
        unsafe {
            rows_to_columns::<S>(query, d_head, self.query_t);
            if call.program == Program::Additive {
                let powers = query_powers::<S>(self.query_t, self.query_powers);
                self.has_query_powers = !powers.is_empty();
            } else {
                scale_columns::<S>(self.query_t, &[call.query_scale(); QUERIES]);
            }
            rows_to_columns::<S>(d_context, d_value, self.d_context_t);
            rows_to_columns::<S>(context, d_value, self.context_t);
            // Summed in the order of the matmul of `d_weights`: if only one key is visible, the
            // difference is exactly zero.
            column_dots::<S>(self.context_t, self.d_context_t, self.delta);
        }
        self.positions = call.positions(first, queries);
        self.d_positions.fill(0.0);
        self.max.fill(0.0);
        self.inverse.fill(0.0);
        for (i, query) in queries.iter().enumerate() {
            let stats = &saved.stats[STATS * (first + query)..];
            let sum = stats[1];
            self.max[i] = stats[0];
            self.inverse[i] = if sum == 0.0 { 0.0 } else { 1.0 / sum };
            if let Some(d_log_sum_exp) = saved.d_log_sum_exp {
                self.delta[i] -= d_log_sum_exp[first + query];
            }
        }
    }

    /// Computes the weights of a tile, including dropout, and the gradients of `target`.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled; the queries of the tile are loaded.
    #[inline(always)]
    pub(super) unsafe fn compute_tile<S: Simd>(
        &mut self,
        call: &Call<'_>,
        tile: &Tile<'_>,
        target: GradTarget,
    ) {
        let seq_k = call.shape.seq_k;
        let [d_head, d_value] = call.shape.widths();
        let kv_head = tile.example * call.shape.kv_heads + tile.head / call.shape.group();
        let count = tile.keys.len();
        let key = call.key.head(kv_head, seq_k * d_head);
        let key_rows = gather_rows(key, d_head, &tile.keys, self.keys);
        let value = call.value.head(kv_head, seq_k * d_value);
        let value_rows = gather_rows(value, d_value, &tile.keys, self.values);
        let d_scores = self.d_scores.as_mut_ptr();
        // SAFETY: the caller enabled the instructions; the buffers have the sizes of `new`.
        unsafe {
            if call.program == Program::Additive {
                let powers = if self.has_query_powers {
                    &*self.query_powers
                } else {
                    &[]
                };
                let queries = [&*self.query_t, powers];
                let (form, query, key) = select_form::<S>(queries, key_rows, self.key_powers);
                let vector = call.vector(tile.head);
                let scale = call.score_scale();
                additive_scores::<S>(form, query, key, vector, scale, self.weights);
            } else {
                matmul::<S, false>(
                    [count, d_head, QUERIES],
                    rows_of(key_rows.as_ptr(), d_head),
                    (self.query_t.as_ptr(), QUERIES),
                    (self.weights.as_mut_ptr(), QUERIES),
                    Accumulate::Overwrite,
                );
            }
            if !(tile.is_unmasked() && call.is_plain()) {
                finish_scores::<S, _>(call, tile, self.weights, self.score_grad);
            }
            let temperature = match call.program {
                Program::Hard(HardSelection::Sampled { temperature, seed }) => {
                    add_gumbel_noise(seed, call.first_head, tile, self.weights);
                    let factor = [1.0 / temperature as f32; QUERIES];
                    scale_columns::<S>(&mut self.weights[..count * QUERIES], &factor);
                    temperature as f32
                }
                Program::Softmax
                | Program::Additive
                | Program::Gaussian { .. }
                | Program::Sigmoid
                | Program::Hard(HardSelection::Best) => 1.0,
            };
            if let Some(dropout) = &call.dropout {
                write_dropout_factors(dropout, tile, self.factors);
            }
            if let Some(positions) = &self.positions {
                let has_dropout = call.dropout.is_some();
                let keys = tile.keys.range();
                positions.apply::<S>(&keys, self.weights, self.factors, has_dropout);
            }
            let scores = self.weights.as_mut_ptr();
            matmul::<S, false>(
                [count, d_value, QUERIES],
                rows_of(value_rows.as_ptr(), d_value),
                (self.d_context_t.as_ptr(), QUERIES),
                (d_scores, QUERIES),
                Accumulate::Overwrite,
            );
            if call.has_factors() {
                multiply::<S>(count, d_scores, self.factors.as_ptr());
            }
            let scale = match target {
                GradTarget::Scores => 1.0,
                GradTarget::DotProducts => call.scale,
            };
            let rows = [&self.max, &self.inverse, &self.delta].map(|row| row.as_ptr());
            match &self.positions {
                _ if call.program == Program::Sigmoid => {
                    sigmoid_backward::<S>(count, scores, d_scores, scale);
                }
                None => softmax_backward::<S>(count, scores, d_scores, rows, scale / temperature),
                Some(positions) => {
                    softmax_backward::<S>(count, scores, d_scores, rows, 1.0);
                    let tiles = [&*self.weights, &*self.d_scores, &*self.delta];
                    let keys = tile.keys.range();
                    positions.backward::<S>(&keys, tiles, &mut self.d_positions);
                    scale_columns::<S>(&mut self.d_scores[..count * QUERIES], &[scale; QUERIES]);
                }
            }
            let (scores, d_scores) = (self.weights.as_mut_ptr(), self.d_scores.as_mut_ptr());
            if !self.score_grad.is_empty() && target == GradTarget::DotProducts {
                multiply::<S>(count, d_scores, self.score_grad.as_ptr());
            }
            if call.may_mask(tile.is_unmasked()) {
                clear_masked::<S>(count, scores, d_scores);
            }
            if call.has_factors() {
                multiply::<S>(count, scores, self.factors.as_ptr());
            }
        }
    }

    /// Accumulates the gradients of MLP scores.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled; the gradients of the tile's scores are computed.
    #[inline(always)]
    pub(super) unsafe fn additive_backward<S: Simd>(
        &mut self,
        key: &[f32],
        vector: &[f32],
        grads: AdditiveGrads<'_>,
    ) {
        // SAFETY: the caller enabled the instructions.
        unsafe {
            let powers = if self.has_query_powers {
                &*self.query_powers
            } else {
                &[]
            };
            let (form, query, key) =
                select_form::<S>([&*self.query_t, powers], key, self.key_powers);
            additive_backward::<S>(form, query, key, vector, self.d_scores, grads);
        }
    }
}
