//! Arguments of the CPU kernels.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use super::gaussian::Positions;
use crate::analysis::weights::HardSelection;
use crate::flash::broadcast::Broadcast;
use crate::flash::call::Program;
use crate::pattern::TilePlan;
use crate::pattern::rule::Rule;
use crate::score_mod::ScoreMod;
use crate::{AttentionShape, Dropout};

pub(crate) struct Call<'a> {
    pub(crate) shape: AttentionShape,
    /// The tiles that are not fully masked.
    pub(crate) plan: &'a TilePlan,
    /// The visible pairs within those tiles.
    pub(crate) rule: &'a Rule,
    /// An additional mask: zero where visible.
    pub(crate) mask: Option<Broadcast<'a, u8>>,
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
    /// The slope of each head.
    pub(crate) alibi: Option<&'a [f32]>,
    pub(crate) bias: Option<Broadcast<'a, f32>>,
    pub(crate) dropout: Option<Dropout>,
    pub(crate) program: Program,
    /// The parameter of the program; empty without one.
    pub(crate) parameter: &'a [f32],
    pub(crate) score_mod: Option<&'a ScoreMod>,
    /// Index of the first head of the tensors among the heads of the call.
    pub(crate) first_head: usize,
    /// Whether there will be a backward pass.
    pub(crate) is_tracked: bool,
    /// `[batch, heads, seq_q, d_head]`
    pub(crate) query: &'a [f32],
    /// `[batch, kv_heads, seq_k, d_head]`
    pub(crate) key: Heads<'a>,
    /// `[batch, kv_heads, seq_k, d_value]`
    pub(crate) value: Heads<'a>,
}

/// The heads of keys or values. In a key/value cache a head has unused capacity at its end.
#[derive(Clone, Copy)]
pub(crate) struct Heads<'a> {
    pub(crate) values: &'a [f32],
    /// Elements from one head to the next.
    pub(crate) stride: usize,
}

impl<'a> Heads<'a> {
    /// The first `len` elements of a head, counted over all examples.
    #[inline(always)]
    pub(super) fn head(&self, head: usize, len: usize) -> &'a [f32] {
        &self.values[head * self.stride..][..len]
    }
}

impl Call<'_> {
    /// Whether the scores of an unmasked tile are the scaled dot products.
    pub(super) fn is_plain(&self) -> bool {
        self.softcap.is_none()
            && self.alibi.is_none()
            && self.bias.is_none()
            && self.mask.is_none()
            && self.score_mod.is_none()
    }

    /// Whether weights are multiplied by factors, which need a buffer.
    pub(super) fn has_factors(&self) -> bool {
        self.dropout.is_some() || matches!(self.program, Program::Gaussian { .. })
    }

    /// The positions of `count` queries from `first` on, counted over all examples and heads.
    pub(super) fn positions(&self, first: usize, count: usize) -> Option<Positions> {
        match self.program {
            Program::Gaussian { window } => {
                let columns = self.position_columns();
                let rows = &self.parameter[first * columns..][..count * columns];
                Some(Positions::new(rows, columns, window))
            }
            Program::Softmax | Program::Additive | Program::Sigmoid | Program::Hard(_) => None,
        }
    }

    /// Columns of the positions: 2 if queries are sorted by them.
    pub(super) fn position_columns(&self) -> usize {
        let shape = &self.shape;
        self.parameter.len() / (shape.batch * shape.heads * shape.seq_q)
    }

    /// The factor of the dot products, in base 2. MLP scores are scaled after the sum.
    pub(super) fn query_scale(&self) -> f32 {
        match self.program {
            Program::Additive => 1.0,
            Program::Softmax | Program::Gaussian { .. } | Program::Sigmoid | Program::Hard(_) => {
                self.scale * LOG2_E
            }
        }
    }

    /// The vector of additive attention of a head.
    pub(super) fn vector(&self, head: usize) -> &[f32] {
        &self.parameter[head * self.shape.d_head..][..self.shape.d_head]
    }

    /// Statistics of each row.
    pub(super) fn stats_width(&self) -> usize {
        match self.program {
            Program::Hard(HardSelection::Sampled { .. }) if self.is_tracked => {
                STATS + 1 + self.shape.d_value
            }
            Program::Hard(_) => STATS + 1,
            Program::Softmax | Program::Additive | Program::Gaussian { .. } | Program::Sigmoid => {
                STATS
            }
        }
    }

    /// Whether keys of a tile may be masked: by the pattern, by a mask, or by a bias of minus
    /// infinity or any other large negative constant, or by a window around a position.
    pub(super) fn may_mask(&self, is_unmasked: bool) -> bool {
        let has_window = matches!(self.program, Program::Gaussian { .. });
        !is_unmasked || self.mask.is_some() || self.bias.is_some() || has_window
    }

    /// The tiles of a row of the plan, for the queries of `[example, head]`.
    pub(super) fn tiles(&self, head: [usize; 2], row: usize) -> impl Iterator<Item = Tile> {
        let [example, head] = head;
        let queries = self.plan.queries(row);
        let tiles = self.plan.tiles(example, row);
        tiles.map(move |(keys, is_unmasked)| Tile {
            example,
            head,
            queries: queries.clone(),
            keys,
            is_unmasked,
        })
    }

    /// A bit set of which of up to 64 queries of `[example, head]` attend to a key.
    pub(super) fn visible(
        &self,
        [example, head]: [usize; 2],
        queries: Range<usize>,
        key: usize,
    ) -> u64 {
        let mut visible = self
            .rule
            .visible_queries(&self.shape, example, queries.clone(), key);
        if let Some(mask) = self.mask {
            for (bit, query) in queries.enumerate() {
                if mask.get([example, head, query, key]) != 0 {
                    visible &= !(1 << bit);
                }
            }
        }
        visible
    }
}

/// A range of queries of one head and a range of keys.
pub(super) struct Tile {
    pub(super) example: usize,
    pub(super) head: usize,
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
    /// The rule masks nothing in it.
    pub(super) is_unmasked: bool,
}

/// Saved results of the forward pass and output gradients.
#[derive(Clone, Copy)]
pub(crate) struct BackwardInputs<'a> {
    /// `[batch, heads, seq_q, d_value]`; of the soft weights for [`Program::Hard`].
    pub(crate) context: &'a [f32],
    /// `[batch, heads, seq_q, 2]`, from [`forward`](super::forward).
    pub(crate) stats: &'a [f32],
    /// The selected key of each query for [`Program::Hard`], else empty.
    pub(crate) selected: &'a [f32],
    /// `[batch, heads, seq_q, d_value]`
    pub(crate) d_context: &'a [f32],
    /// `[batch, heads, seq_q]`
    pub(crate) d_log_sum_exp: Option<&'a [f32]>,
}

/// The gradients that a task of the backward pass writes.
pub(super) struct GradSlices<'a> {
    pub(super) d_query: &'a mut [f32],
    pub(super) d_key: &'a mut [f32],
    pub(super) d_value: &'a mut [f32],
    /// For [`Program::Additive`], the vector of each query head that shares the key head; for
    /// [`Program::Gaussian`], the position of each query; else empty.
    pub(super) d_parameter: &'a mut [f32],
}

/// Softmax statistics per row: the maximum and the sum.
pub(crate) const STATS: usize = 2;
