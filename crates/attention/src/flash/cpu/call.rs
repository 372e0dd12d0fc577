//! Arguments of the CPU kernels.

use std::f32::consts::LOG2_E;

use super::gaussian::Positions;
use crate::analysis::weights::HardSelection;
use crate::flash::broadcast::Broadcast;
use crate::flash::call::Program;
use crate::pattern::TilePlan;
use crate::pattern::gather::{GatherPlan, GatheredRows, Indices};
use crate::pattern::rule::Rule;
use crate::score_mod::ScoreMod;
use crate::{AttentionShape, Dropout};

/// A call on elements of type `T`.
pub(crate) struct Call<'a, T = f32> {
    pub(crate) shape: AttentionShape,
    /// The tiles that are not fully masked.
    pub(crate) plan: &'a TilePlan,
    /// The visible pairs within those tiles.
    pub(crate) rule: &'a Rule,
    /// Replaces `plan` and `rule`.
    pub(crate) gather: Option<&'a GatherPlan>,
    /// An additional mask: zero where visible.
    pub(crate) mask: Option<Broadcast<'a, u8>>,
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
    /// The slope of each head.
    pub(crate) alibi: Option<&'a [f32]>,
    pub(crate) bias: Option<Broadcast<'a, f32>>,
    /// Whether the bias is given for each relative position.
    pub(crate) has_relative_bias: bool,
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
    pub(crate) query: &'a [T],
    /// `[batch, kv_heads, seq_k, d_head]`
    pub(crate) key: Heads<'a, T>,
    /// `[batch, kv_heads, seq_k, d_value]`
    pub(crate) value: Heads<'a, T>,
}

/// The heads of keys or values. In a key/value cache a head has unused capacity at its end.
#[derive(Clone, Copy)]
pub(crate) struct Heads<'a, T = f32> {
    pub(crate) values: &'a [T],
    /// Elements from one head to the next.
    pub(crate) stride: usize,
}

impl<'a, T> Heads<'a, T> {
    /// The first `len` elements of a head, counted over all examples.
    #[inline(always)]
    pub(super) fn head(&self, head: usize, len: usize) -> &'a [T] {
        &self.values[head * self.stride..][..len]
    }
}

impl<T> Call<'_, T> {
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

    /// The positions of queries of the head whose first query, counted over all examples and heads,
    /// is `first`.
    pub(super) fn positions(&self, first: usize, queries: &Indices<'_>) -> Option<Positions> {
        match self.program {
            Program::Gaussian { window } => {
                let columns = self.position_columns();
                let queries = queries.range();
                let rows = &self.parameter[(first + queries.start) * columns..];
                let rows = &rows[..queries.len() * columns];
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

    /// The factor of the scores before the score function, whose argument is in base e; without one
    /// they are in base 2.
    pub(super) fn score_scale(&self) -> f32 {
        match self.score_mod {
            Some(_) => self.scale,
            None => self.scale * LOG2_E,
        }
    }

    /// The factor of the queries. MLP scores are scaled after the sum.
    pub(super) fn query_scale(&self) -> f32 {
        match self.program {
            Program::Additive => 1.0,
            Program::Softmax | Program::Gaussian { .. } | Program::Sigmoid | Program::Hard(_) => {
                self.score_scale()
            }
        }
    }

    /// Whether score function and softcap have a derivative other than 1.
    pub(super) fn has_score_grad(&self) -> bool {
        self.softcap.is_some() || self.score_mod.is_some_and(|it| !it.is_bias())
    }

    /// The vector of additive attention of a head.
    pub(super) fn vector(&self, head: usize) -> &[f32] {
        &self.parameter[head * self.shape.d_head..][..self.shape.d_head]
    }

    /// Statistics of each row.
    pub(crate) fn stats_width(&self) -> usize {
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

    /// The gathered rows of `[example, head]`, if there are any.
    pub(super) fn gathered(&self, head: [usize; 2]) -> Option<&GatheredRows> {
        self.gather.map(|plan| plan.head(&self.shape, head))
    }

    /// Number of rows of tiles of `[example, head]`.
    pub(super) fn num_rows(&self, head: [usize; 2]) -> usize {
        self.gathered(head)
            .map_or_else(|| self.plan.rows(), GatheredRows::len)
    }

    /// The query head and the row of a row that is counted over all heads that share a key and value
    /// head.
    pub(super) fn locate_row(&self, kv_head: usize, mut row: usize) -> [usize; 2] {
        let (kv_heads, group) = (self.shape.kv_heads, self.shape.group());
        let mut head = kv_head % kv_heads * group;
        loop {
            let rows = self.num_rows([kv_head / kv_heads, head]);
            if row < rows {
                return [head, row];
            }
            row -= rows;
            head += 1;
        }
    }

    /// The queries of a row of tiles.
    pub(super) fn queries(&self, head: [usize; 2], row: usize) -> Indices<'_> {
        match self.gathered(head) {
            Some(rows) => rows.queries(row),
            None => Indices::Range(self.plan.queries(row)),
        }
    }

    /// The tiles of a row, for the queries of `[example, head]`.
    pub(super) fn tiles(&self, head: [usize; 2], row: usize) -> impl Iterator<Item = Tile<'_>> {
        let [example, query_head] = head;
        let gathered = self.gathered(head);
        let tile = move |keys, visible| Tile {
            example,
            head: query_head,
            queries: self.queries(head, row),
            keys,
            visible,
        };
        let planned = gathered.is_none().then(|| self.plan.tiles(example, row));
        let planned = planned
            .into_iter()
            .flatten()
            .map(move |(keys, is_full)| tile(Indices::Range(keys), Visible::from_plan(is_full)));
        let gathered = gathered.into_iter().flat_map(move |rows| rows.tiles(row));
        planned.chain(gathered.map(move |(keys, visible)| {
            let visible = match visible {
                [] => Visible::All,
                visible => Visible::Bits(visible),
            };
            tile(keys, visible)
        }))
    }

    /// A bit set of which of the queries of a tile attend to its key of index `i`.
    pub(super) fn visible(&self, tile: &Tile<'_>, i: usize) -> u64 {
        let (example, key) = (tile.example, tile.keys.get(i));
        let mut visible = match tile.visible {
            Visible::All => u64::MAX,
            Visible::Bits(visible) => visible[i],
            Visible::Rule => {
                let queries = tile.queries.range();
                self.rule
                    .visible_queries(&self.shape, example, queries, key)
            }
        };
        if let Some(mask) = self.mask {
            for (bit, query) in tile.queries.iter().enumerate() {
                if mask.get([example, tile.head, query, key]) != 0 {
                    visible &= !(1 << bit);
                }
            }
        }
        visible
    }
}

/// Queries and keys of one head.
pub(super) struct Tile<'a> {
    pub(super) example: usize,
    pub(super) head: usize,
    pub(super) queries: Indices<'a>,
    pub(super) keys: Indices<'a>,
    pub(super) visible: Visible<'a>,
}

/// The pairs of a tile that the pattern does not mask.
#[derive(Clone, Copy)]
pub(super) enum Visible<'a> {
    All,
    /// Those of the rule of the call.
    Rule,
    /// For each key, a bit for each query.
    Bits(&'a [u64]),
}

impl Visible<'_> {
    /// The pairs of a tile of the plan.
    pub(super) fn from_plan(is_full: bool) -> Self {
        if is_full { Self::All } else { Self::Rule }
    }
}

impl Tile<'_> {
    /// Whether the pattern masks nothing in it.
    pub(super) fn is_unmasked(&self) -> bool {
        matches!(self.visible, Visible::All)
    }
}

/// The rows of the given indices: those of `rows` if they are contiguous, otherwise copied to the
/// buffer.
#[inline(always)]
pub(super) fn gather_rows<'a>(
    rows: &'a [f32],
    width: usize,
    indices: &Indices<'_>,
    buffer: &'a mut [f32],
) -> &'a [f32] {
    match indices {
        Indices::Range(range) => &rows[range.start * width..range.end * width],
        Indices::List(indices) => {
            let buffer = &mut buffer[..indices.len() * width];
            for (into, &index) in buffer.chunks_exact_mut(width).zip(*indices) {
                into.copy_from_slice(&rows[index as usize * width..][..width]);
            }
            buffer
        }
    }
}

/// Saved results of the forward pass and output gradients.
#[derive(Clone, Copy)]
pub(crate) struct BackwardInputs<'a, T = f32> {
    /// `[batch, heads, seq_q, d_value]`; of the soft weights for [`Program::Hard`].
    pub(crate) context: &'a [T],
    /// `[batch, heads, seq_q, 2]`, from [`forward`](super::forward).
    pub(crate) stats: &'a [f32],
    /// The selected key of each query for [`Program::Hard`], else empty.
    pub(crate) selected: &'a [f32],
    /// `[batch, heads, seq_q, d_value]`
    pub(crate) d_context: &'a [T],
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
