//! Attention of each query to some blocks of keys.
//!
//! The blocks are selected on the host, from scores of blocks that are computed on the device. In host
//! memory, [gathered tiles](crate::pattern::gather) have the queries that selected a block, and its keys. On
//! other devices the queries are gathered in chunks, each with one block: one call of flash attention, whose
//! results are merged by log-sum-exp.

mod chunks;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod gathered;

use burn::tensor::{Tensor, TensorData};

use crate::scan::{KeyMask, grouped_matmul};
use crate::shape::pad_rows;
use crate::{AttentionOptions, AttentionShape};

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

    fn num_blocks(&self) -> usize {
        self.shape.seq_k.div_ceil(self.block_size)
    }

    /// The keys of a block.
    fn keys(&self, block: u32) -> std::ops::Range<usize> {
        let first = block as usize * self.block_size;
        first..self.shape.seq_k.min(first + self.block_size)
    }

    /// The key that a query is aligned with, if there is one.
    fn own_position(&self, query: usize) -> Option<usize> {
        (query + self.shape.seq_k).checked_sub(self.shape.seq_q)
    }

    /// The number of keys up to the last one that a query may attend to.
    fn num_keys(&self, query: usize) -> usize {
        match (self.is_causal, self.own_position(query)) {
            (true, own) => own.map_or(0, |own| own + 1),
            (false, _) => self.shape.seq_k,
        }
    }

    fn is_masked(&self, example: usize, key: usize) -> bool {
        let masked = self.masked.as_ref();
        masked.is_some_and(|masked| masked[example * self.shape.seq_k + key])
    }

    pub(super) fn is_visible(&self, example: usize, query: usize, key: usize) -> bool {
        key < self.num_keys(query) && !self.is_masked(example, key)
    }
}

/// The means of the keys of each block, and which blocks have keys that are not masked.
pub(super) struct BlockScores {
    /// `[batch, kv_heads, d_head, blocks]`
    means: Tensor<4>,
    /// `[batch, blocks]`
    has_keys: Vec<bool>,
}

impl BlockScores {
    /// Of keys with zeros for masked ones.
    pub(super) fn new(key: Tensor<4>, visibility: &Visibility<'_>) -> Self {
        let AttentionShape { batch, .. } = *visibility.shape;
        let blocks = visibility.num_blocks();
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
        let factors = TensorData::new(factors, [batch, 1, 1, blocks]);
        let factors = Tensor::from_data(factors, &key.device());
        let [_, kv_heads, _, d_head] = key.dims();
        let sums = in_blocks(key, visibility).sum_dim(3);
        let sums = sums.reshape([batch, kv_heads, blocks, d_head]);
        Self {
            means: sums.swap_dims(2, 3) * factors,
            has_keys: counts.into_iter().map(|count| count > 0).collect(),
        }
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
    /// `[batch, heads, seq_q, limit]`: the own block first, if there is one, then the others by score; then
    /// [`NONE`].
    blocks: Vec<u32>,
    limit: usize,
    seq_q: usize,
}

const NONE: u32 = u32::MAX;

impl BlockSelection {
    /// The own block of each query and the others with the largest scores, `top_k` together.
    pub(super) fn largest(
        query: Tensor<4>,
        scores: &BlockScores,
        visibility: &Visibility<'_>,
        top_k: usize,
    ) -> Self {
        let shape = visibility.shape;
        let [batch, heads, seq_q, _] = shape.scores();
        let blocks = visibility.num_blocks();
        let limit = top_k.min(blocks);
        let mut selection = Self {
            blocks: vec![NONE; batch * heads * seq_q * limit],
            limit,
            seq_q,
        };
        let size = (MAX_SCORES / (batch * heads * blocks).max(1)).max(1);
        for first in (0..seq_q).step_by(size) {
            let rows = first..seq_q.min(first + size);
            let query = query.clone().slice_dim(2, rows.clone());
            let data = grouped_matmul(query, scores.means.clone()).into_data();
            let data: &[f32] = data.as_slice().expect("widened to f32");
            for (index, scores_of_row) in data.chunks_exact(blocks.max(1)).enumerate() {
                let (head, row) = (index / rows.len(), rows.start + index % rows.len());
                let has_keys = &scores.has_keys[head / heads * blocks..][..blocks];
                let selected = selection.row_mut(head, row);
                select_largest(scores_of_row, has_keys, visibility, row, selected);
            }
        }
        selection
    }

    fn row_mut(&mut self, head: usize, row: usize) -> &mut [u32] {
        let index = head * self.seq_q + row;
        &mut self.blocks[index * self.limit..][..self.limit]
    }

    /// The blocks of a query of a head of all examples.
    pub(super) fn blocks(&self, head: usize, row: usize) -> &[u32] {
        let index = head * self.seq_q + row;
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
