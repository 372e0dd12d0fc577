//! Attention of each query to some blocks of keys.
//!
//! The blocks are selected on the host, from scores of blocks that are computed on the device. In host
//! memory, [gathered tiles](crate::pattern::gather) have the queries that selected a block, and its keys. On
//! other devices the queries are gathered in chunks, each with one block: one call of flash attention, whose
//! results are merged by log-sum-exp.

mod chunks;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod gathered;

use std::ops::Range;

use burn::tensor::{Bool, Device, Tensor, TensorData};

use crate::scan::KeyMask;
use crate::shape::pad_rows;
use crate::{AttentionOptions, AttentionShape, Dropout};

/// Number of block scores computed at a time: 32 MB.
const MAX_SCORES: usize = 1 << 23;

/// The keys that queries may attend to, evaluated on the host.
pub(super) struct Visibility<'a> {
    shape: &'a AttentionShape,
    block_size: usize,
    is_causal: bool,
    /// `[batch, seq_k]`: masked keys, if there are any.
    masked: Option<Vec<bool>>,
}

impl<'a> Visibility<'a> {
    pub(super) fn new(shape: &'a AttentionShape, mask: &KeyMask, block_size: usize) -> Self {
        let masked = mask.masked.as_ref().map(|masked| {
            let dims = [shape.batch, 1, shape.seq_k, 1];
            masked.clone().expand(dims).into_data().iter().collect()
        });
        Self {
            shape,
            block_size: block_size.min(shape.seq_k.max(1)),
            is_causal: mask.is_causal,
            masked,
        }
    }

    pub(super) fn block_size(&self) -> usize {
        self.block_size
    }

    pub(super) fn seq_k(&self) -> usize {
        self.shape.seq_k
    }

    pub(super) fn num_blocks(&self) -> usize {
        self.shape.seq_k.div_ceil(self.block_size)
    }

    /// The keys of a block.
    fn keys(&self, block: u32) -> Range<usize> {
        let first = block as usize * self.block_size;
        first..self.shape.seq_k.min(first + self.block_size)
    }

    /// The key that a query is aligned with, if there is one.
    fn own_position(&self, query: usize) -> Option<usize> {
        (query + self.shape.seq_k).checked_sub(self.shape.seq_q)
    }

    /// The number of keys up to the last one that a query may attend to.
    pub(super) fn num_keys(&self, query: usize) -> usize {
        match (self.is_causal, self.own_position(query)) {
            (true, own) => own.map_or(0, |own| own + 1),
            (false, _) => self.shape.seq_k,
        }
    }

    fn is_masked(&self, example: usize, key: usize) -> bool {
        let masked = self.masked.as_ref();
        masked.is_some_and(|masked| masked[example * self.shape.seq_k + key])
    }

    fn is_visible(&self, example: usize, query: usize, key: usize) -> bool {
        key < self.num_keys(query) && !self.is_masked(example, key)
    }
}

/// The means of blocks of rows, over the keys that are not masked.
pub(super) struct BlockMeans {
    /// `[batch, 1, blocks, 1]`: one divided by the number of these keys, at most 1.
    pub(super) factors: Tensor<4>,
    /// `[batch, blocks]`: whether a block has such keys.
    has_keys: Vec<bool>,
}

impl BlockMeans {
    pub(super) fn new(visibility: &Visibility<'_>, device: &Device) -> Self {
        let (batch, blocks) = (visibility.shape.batch, visibility.num_blocks());
        let count = |index: usize| {
            let (example, block) = (index / blocks, (index % blocks) as u32);
            let keys = visibility.keys(block);
            keys.filter(|key| !visibility.is_masked(example, *key))
                .count()
        };
        let counts: Vec<usize> = (0..batch * blocks).map(count).collect();
        let factors: Vec<f32> = (counts.iter())
            .map(|&count| 1.0 / count.max(1) as f32)
            .collect();
        let factors = TensorData::new(factors, [batch, 1, blocks, 1]);
        Self {
            factors: Tensor::from_data(factors, device),
            has_keys: counts.into_iter().map(|count| count > 0).collect(),
        }
    }

    /// The means of rows with zeros for masked keys, `[batch, kv_heads, blocks, width]`.
    pub(super) fn of(&self, rows: Tensor<4>, visibility: &Visibility<'_>) -> Tensor<4> {
        let [batch, kv_heads, _, width] = rows.dims();
        let sums = in_blocks(rows, visibility).sum_dim(3);
        let sums = sums.reshape([batch, kv_heads, visibility.num_blocks(), width]);
        sums * self.factors.clone()
    }

    /// `[batch, blocks]`: blocks whose keys are all masked, if there are any.
    pub(super) fn empty_blocks(&self) -> Option<Tensor<2, Bool>> {
        if self.has_keys.iter().all(|has_keys| *has_keys) {
            return None;
        }
        let [batch, _, blocks, _] = self.factors.dims();
        let is_empty: Vec<bool> = self.has_keys.iter().map(|has_keys| !has_keys).collect();
        let is_empty = TensorData::new(is_empty, [batch, blocks]);
        Some(Tensor::from_data(is_empty, &self.factors.device()))
    }
}

/// `[batch, kv_heads, blocks, block_size, width]`, with zeros after the last row.
fn in_blocks(rows: Tensor<4>, visibility: &Visibility<'_>) -> Tensor<5> {
    let [batch, kv_heads, seq, width] = rows.dims();
    let (blocks, size) = (visibility.num_blocks(), visibility.block_size);
    let rows = match blocks * size - seq {
        0 => rows,
        missing => pad_rows(rows, [0, missing], 0.0),
    };
    rows.reshape([batch, kv_heads, blocks, size, width])
}

/// The blocks that each query attends to.
pub(super) struct BlockSelection {
    /// `[batch, lists, seq_q, limit]`: the own block first, if there is one, then the others by score; then
    /// [`NONE`].
    blocks: Vec<u32>,
    limit: usize,
    seq_q: usize,
    /// The number of query heads that share a list.
    sharing: usize,
}

const NONE: u32 = u32::MAX;

impl BlockSelection {
    /// The own block of each query and the others with the largest scores, `top_k` together. The scores of
    /// some queries are `[batch, lists, queries, blocks]`; query heads share a list if there are fewer lists
    /// than heads.
    pub(super) fn largest(
        lists: usize,
        scores: impl Fn(Range<usize>) -> Tensor<4>,
        means: &BlockMeans,
        visibility: &Visibility<'_>,
        top_k: usize,
    ) -> Self {
        let [batch, heads, seq_q, _] = visibility.shape.scores();
        let blocks = visibility.num_blocks();
        let limit = top_k.min(blocks);
        let mut selection = Self {
            blocks: vec![NONE; batch * lists * seq_q * limit],
            limit,
            seq_q,
            sharing: heads / lists,
        };
        let size = (MAX_SCORES / (batch * heads * blocks).max(1)).max(1);
        for first in (0..seq_q).step_by(size) {
            let rows = first..seq_q.min(first + size);
            let data = scores(rows.clone()).into_data();
            let data: &[f32] = data.as_slice().expect("widened to f32");
            for (index, scores_of_row) in data.chunks_exact(blocks.max(1)).enumerate() {
                let (list, row) = (index / rows.len(), rows.start + index % rows.len());
                let has_keys = &means.has_keys[list / lists * blocks..][..blocks];
                let selected = selection.list_mut(list, row);
                select_largest(scores_of_row, has_keys, visibility, row, selected);
            }
        }
        selection
    }

    fn list_mut(&mut self, list: usize, row: usize) -> &mut [u32] {
        let index = list * self.seq_q + row;
        &mut self.blocks[index * self.limit..][..self.limit]
    }

    /// The blocks of a query of a head of all examples.
    fn blocks(&self, head: usize, row: usize) -> &[u32] {
        let index = head / self.sharing * self.seq_q + row;
        let blocks = &self.blocks[index * self.limit..][..self.limit];
        let count = blocks.iter().take_while(|block| **block != NONE).count();
        &blocks[..count]
    }

    /// The queries of a head that selected each block as the one with this index in their lists.
    fn queries_by_block(&self, head: usize, index: usize, blocks: usize) -> Vec<Vec<u32>> {
        let mut queries = vec![Vec::new(); blocks];
        for row in 0..self.seq_q {
            if let Some(block) = self.blocks(head, row).get(index) {
                queries[*block as usize].push(row as u32);
            }
        }
        queries
    }

    /// The mask of the queries `rows`, `[batch, heads, rows, seq_k]`.
    pub(super) fn dense_mask(
        &self,
        visibility: &Visibility<'_>,
        rows: &[usize],
        device: &Device,
    ) -> Tensor<4, Bool> {
        let [batch, heads, _, seq_k] = visibility.shape.scores();
        let mut mask = Vec::with_capacity(batch * heads * rows.len() * seq_k);
        for head in 0..batch * heads {
            for &row in rows {
                let blocks = self.blocks(head, row);
                mask.extend((0..seq_k).map(|key| {
                    let block = (key / visibility.block_size) as u32;
                    !blocks.contains(&block) || !visibility.is_visible(head / heads, row, key)
                }));
            }
        }
        let mask = TensorData::new(mask, [batch, heads, rows.len(), seq_k]);
        Tensor::from_data(mask, device)
    }
}

/// Writes the own block of a query, and those with the largest scores in descending order.
fn select_largest(
    scores: &[f32],
    has_keys: &[bool],
    visibility: &Visibility<'_>,
    row: usize,
    selected: &mut [u32],
) {
    let own = visibility.own_position(row);
    let own = own.map(|own| own / visibility.block_size);
    let candidates = match (visibility.is_causal, own) {
        (true, own) => own.unwrap_or(0),
        (false, _) => scores.len(),
    };
    let selected = match own {
        Some(own) => {
            selected[0] = own as u32;
            &mut selected[1..]
        }
        None => selected,
    };
    // NaN is selected, so that it is in the result.
    let score = |block: u32| match scores[block as usize] {
        score if score.is_nan() => f32::INFINITY,
        score => score,
    };
    let mut count = 0;
    for block in (0..candidates as u32).filter(|block| has_keys[*block as usize]) {
        if Some(block as usize) == own {
            continue;
        }
        let is_larger = |other: &u32| score(block) > score(*other);
        if count == selected.len() && !selected.last().is_some_and(is_larger) {
            continue;
        }
        let position = selected[..count]
            .iter()
            .position(is_larger)
            .unwrap_or(count);
        count = selected.len().min(count + 1);
        selected[position..count].rotate_right(1);
        selected[position] = block;
    }
}

/// Panics if a size is zero, or an option depends on the positions of keys, which are gathered.
pub(super) fn check_sizes_and_options(
    op: &str,
    block_size: usize,
    top_k: usize,
    options: &AttentionOptions,
) {
    for (name, size) in [("block_size", block_size), ("top_k", top_k)] {
        assert!(size > 0, "{op}: {name} must be at least 1, got 0");
    }
    let drops = |dropout: &Dropout| dropout.probability > 0.0;
    for (name, is_set) in [
        ("ALiBi", options.alibi.is_some()),
        ("a bias", options.has_bias()),
        ("a score function", options.score_mod.is_some()),
        ("dropout", options.dropout.as_ref().is_some_and(drops)),
    ] {
        assert!(
            !is_set,
            "{op}: {name} is not supported, since it gathers the keys of the selected blocks"
        );
    }
}

/// Attention of each query to the visible keys of its blocks, for `f32` tensors with zeros for masked keys.
pub(super) fn attend_to_blocks(
    op: &str,
    tensors: [Tensor<4>; 3],
    selection: &BlockSelection,
    visibility: &Visibility<'_>,
    options: &AttentionOptions,
) -> Tensor<4> {
    #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
    if zoo_kernels::is_on_host(&tensors[0]) {
        return gathered::attend(op, tensors, selection, visibility, options);
    }
    let _ = op;
    chunks::attend(tensors, selection, visibility, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest(scores: &[f32], has_keys: &[bool], row: usize, top_k: usize) -> Vec<u32> {
        let shape = AttentionShape::single_head(1, 10, 10);
        let visibility = Visibility {
            shape: &shape,
            block_size: 2,
            is_causal: false,
            masked: None,
        };
        let mut selected = vec![NONE; top_k];
        select_largest(scores, has_keys, &visibility, row, &mut selected);
        selected
    }

    #[test]
    fn the_own_block_is_first_and_the_others_are_sorted_by_score() {
        let scores = [1.0, 3.0, 2.0, 3.0, f32::NAN];
        let all = [true; 5];
        assert_eq!(largest(&scores, &all, 4, 4), [2, 4, 1, 3]);
        assert_eq!(largest(&scores, &all, 9, 3), [4, 1, 3]);
        assert_eq!(largest(&scores, &all, 0, 1), [0]);
        // Blocks without keys are never selected.
        let some = [true, false, true, false, false];
        assert_eq!(largest(&scores, &some, 0, 4), [0, 2, NONE, NONE]);
    }
}
