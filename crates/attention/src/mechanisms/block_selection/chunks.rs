//! Attention to selected blocks in chunks of queries, on GPUs.

use burn::tensor::{Bool, Device, Int, Tensor};

#[cfg(any(feature = "cube", feature = "tch"))]
use super::super::lsh::gather_rows;
use super::{BlockSelection, Visibility, in_blocks};
use crate::flash::{FlashOutput, flash_with_log_sum_exp, merge};
use crate::{AttentionOptions, Pattern};

/// Queries in a chunk of [`Chunks`].
const CHUNK: usize = 64;

/// Chunks with the same batch index: GPUs limit the batch size of a call.
const CHUNK_HEADS: usize = 64;

/// The queries of a block in chunks, each with the keys of the block.
struct Chunks {
    /// `[chunks]`: the block among those of all key and value heads.
    blocks: Vec<i32>,
    /// `[chunks]`: the block among those of all examples.
    blocks_of_examples: Vec<i32>,
    /// `[chunks, CHUNK]`: the query among those of all heads; the first for padding.
    queries: Vec<i32>,
    /// `[chunks, CHUNK]`: the number of keys that the query may attend to, counted from the first of all;
    /// zero for padding.
    num_keys: Vec<i32>,
    /// `[limit, queries]`: the slot of each query in the chunks of each index of its list.
    slots: Vec<i32>,
}

impl Chunks {
    fn new(selection: &BlockSelection, visibility: &Visibility<'_>) -> Self {
        let shape = visibility.shape;
        let [batch, heads, seq_q, _] = shape.scores();
        let blocks = visibility.num_blocks();
        let queries = batch * heads * seq_q;
        let mut chunks = Self {
            blocks: Vec::new(),
            blocks_of_examples: Vec::new(),
            queries: Vec::new(),
            num_keys: Vec::new(),
            slots: vec![0; selection.limit * queries],
        };
        // The first chunk is padding, for queries with fewer blocks.
        chunks.add(0, 0);
        for index in 0..selection.limit {
            for head in 0..batch * heads {
                let example = head / heads;
                let kv_head = example * shape.kv_heads + head % heads / shape.group();
                let by_block = selection.queries_by_block(head, index, blocks);
                for (block, rows) in by_block.iter().enumerate() {
                    for rows in rows.chunks(CHUNK) {
                        let first = chunks.add(kv_head * blocks + block, example * blocks + block);
                        for (i, row) in rows.iter().map(|row| *row as usize).enumerate() {
                            let query = head * seq_q + row;
                            chunks.queries[first + i] = query as i32;
                            chunks.num_keys[first + i] = visibility.num_keys(row) as i32;
                            chunks.slots[index * queries + query] = (first + i) as i32;
                        }
                    }
                }
            }
        }
        while !chunks.blocks.len().is_multiple_of(CHUNK_HEADS) {
            chunks.add(0, 0);
        }
        chunks
    }

    /// `[chunks, CHUNK]`: the index of each slot in [`slots`](Self::slots); the first for padding, whose
    /// results are those of fully masked queries.
    fn results(&self) -> Vec<i32> {
        let mut results = vec![0; self.queries.len()];
        for (index, slot) in self.slots.iter().enumerate() {
            results[*slot as usize] = index as i32;
        }
        results
    }

    /// Adds a chunk of padding, and returns its first slot.
    fn add(&mut self, block: usize, block_of_example: usize) -> usize {
        let first = self.queries.len();
        self.blocks.push(block as i32);
        self.blocks_of_examples.push(block_of_example as i32);
        self.queries.resize(first + CHUNK, 0);
        self.num_keys.resize(first + CHUNK, 0);
        first
    }
}

/// Attention in [`Chunks`].
pub(super) fn attend(
    [query, key, value]: [Tensor<4>; 3],
    selection: &BlockSelection,
    visibility: &Visibility<'_>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let shape = visibility.shape;
    let [batch, heads, seq_q, _] = shape.scores();
    if selection.limit == 0 || batch * heads * seq_q == 0 {
        // Without keys.
        let empty = value.slice_dim(2, 0..0);
        let [_, _, _, d_value] = empty.dims();
        return Tensor::zeros([batch, heads, seq_q, d_value], &empty.device());
    }
    let chunks = Chunks::new(selection, visibility);
    let count = chunks.blocks.len();
    let device = &query.device();
    let index = |rows: &[i32]| Tensor::<1, Int>::from_ints(rows, device);
    let dims = |rows: usize, width: usize| [count / CHUNK_HEADS, CHUNK_HEADS, rows, width];
    let [queries_of_slots, slots] = [&chunks.queries, &chunks.slots].map(|rows| index(rows));
    let rows = batch * heads * seq_q;
    // Queries of padding are those of the first row, but fully masked: they have no gradient.
    let queries = query.reshape([rows, shape.d_head]);
    let queries = gather_rows(queries, &queries_of_slots, &slots);
    let queries = queries.reshape(dims(CHUNK, shape.d_head));
    let blocks = index(&chunks.blocks);
    let size = visibility.block_size;
    let keys_of = |rows: Tensor<4>| {
        let [.., width] = rows.dims();
        let rows = in_blocks(rows, visibility);
        let rows = rows.reshape([
            batch * shape.kv_heads * visibility.num_blocks(),
            size * width,
        ]);
        rows.select(0, blocks.clone()).reshape(dims(size, width))
    };
    let mask = chunks_mask(&chunks, visibility, device);
    let part = flash_with_log_sum_exp(
        queries,
        keys_of(key),
        keys_of(value),
        &options.clone().with_pattern(Pattern::Dense(mask)),
    );
    let results = index(&chunks.results());
    // `[limit, batch, heads, seq_q, width]`
    let [context, log_sum_exp] = [part.context, part.log_sum_exp].map(|tensor| {
        let [.., width] = tensor.dims();
        let tensor = tensor.reshape([count * CHUNK, width]);
        let tensor = gather_rows(tensor, &slots, &results);
        tensor.reshape([selection.limit * batch, heads, seq_q, width])
    });
    if selection.limit == 1 {
        return context;
    }
    let parts: Vec<FlashOutput> = (0..selection.limit)
        .map(|index| {
            let part = |tensor: &Tensor<4>| {
                let examples = index * batch..(index + 1) * batch;
                tensor.clone().slice_dim(0, examples)
            };
            FlashOutput {
                context: part(&context),
                log_sum_exp: part(&log_sum_exp),
            }
        })
        .collect();
    merge(&parts).context
}

/// Other backends have gathered tiles.
#[cfg(not(any(feature = "cube", feature = "tch")))]
fn gather_rows(rows: Tensor<2>, index: &Tensor<1, Int>, _: &Tensor<1, Int>) -> Tensor<2> {
    rows.select(0, index.clone())
}

/// The mask of the chunks, computed on the device.
fn chunks_mask(chunks: &Chunks, visibility: &Visibility<'_>, device: &Device) -> Tensor<4, Bool> {
    let (count, size) = (chunks.blocks.len(), visibility.block_size);
    let (blocks, seq_k) = (visibility.num_blocks(), visibility.shape.seq_k);
    // The position of each key; that of a masked one is after all others.
    let position = |index: usize| {
        let (example, key) = (index / (blocks * size), index % (blocks * size));
        match key < seq_k && !visibility.is_masked(example, key) {
            true => key as i32,
            false => i32::MAX,
        }
    };
    let positions: Vec<i32> = (0..visibility.shape.batch * blocks * size)
        .map(position)
        .collect();
    let positions = Tensor::<1, Int>::from_ints(positions.as_slice(), device);
    let positions = positions.reshape([visibility.shape.batch * blocks, size]);
    let of_chunks = Tensor::<1, Int>::from_ints(chunks.blocks_of_examples.as_slice(), device);
    let positions = positions.select(0, of_chunks);
    let positions = positions.reshape([count / CHUNK_HEADS, CHUNK_HEADS, 1, size]);
    let num_keys = Tensor::<1, Int>::from_ints(chunks.num_keys.as_slice(), device);
    let num_keys = num_keys.reshape([count / CHUNK_HEADS, CHUNK_HEADS, CHUNK, 1]);
    let dims = [count / CHUNK_HEADS, CHUNK_HEADS, CHUNK, size];
    let (positions, num_keys) = (positions.expand(dims), num_keys.expand(dims));
    positions.greater_equal(num_keys)
}
