//! The rounds as gathered tiles: a row of queries for each chunk, with the keys of that chunk and of
//! the previous one.

use burn::tensor::Tensor;
use rayon::prelude::*;
use zoo_kernels::cpu::dispatch;
use zoo_spec::Lsh;

use super::chunks::{Chunks, SortedSlots};
use super::hashing::Hashing;
use super::visibility::Visibility;
use crate::pattern::gather::{GatherPlan, GatheredRows, MAX_QUERIES, RowBuilder};
use crate::pattern::rule::pack_bits;

/// The visible pairs of all rounds. Its masks include the tensor mask of the pattern.
pub(super) fn gather_plan(
    hashing: &Lsh,
    query: &Tensor<4>,
    visibility: &Visibility<'_>,
) -> GatherPlan {
    let [batch, heads, _, seq] = visibility.shape.scores();
    let (chunks, rounds) = Chunks::new(hashing, seq);
    let hashes = (chunks.count > 1).then(|| hashing.hashes(query));
    let rows = |head: usize| {
        let sort = |round: usize| {
            let hash = |position: usize| match &hashes {
                Some(hashes) => hashes[(head * seq + position) * rounds + round],
                None => 0,
            };
            SortedSlots::new(hash, seq, chunks)
        };
        let head = Head {
            visibility,
            head: [head / heads, head % heads],
            chunks,
            rounds: (0..rounds).map(sort).collect(),
        };
        head.rows(seq)
    };
    let rows = (0..batch * heads).into_par_iter().map(rows);
    GatherPlan::new(visibility.shape, rows.collect())
}

/// The sorted positions of one head in every round.
struct Head<'a> {
    visibility: &'a Visibility<'a>,
    head: [usize; 2],
    chunks: Chunks,
    rounds: Vec<SortedSlots>,
}

/// At most 64 queries of a chunk, and their keys.
struct Block<'a> {
    queries: &'a [u32],
    keys: Vec<u32>,
    /// For each key, a bit for each query that attends to it.
    visible: Vec<u64>,
}

impl Head<'_> {
    fn rows(&self, seq: usize) -> GatheredRows {
        let mut attends_to_others = vec![false; seq];
        let mut rounds: Vec<Vec<Block<'_>>> = (0..self.rounds.len())
            .map(|round| self.blocks(round))
            .collect();
        for block in rounds.iter().flatten() {
            let any = block.visible.iter().fold(0, |any, bits| any | bits);
            for (i, &query) in block.queries.iter().enumerate() {
                attends_to_others[query as usize] |= any >> i & 1 == 1;
            }
        }
        // A position without any other visible key attends to itself, in the first round.
        for block in &mut rounds[0] {
            for (i, &query) in block.queries.iter().enumerate() {
                if attends_to_others[query as usize] {
                    continue;
                }
                let own = block.keys.iter().zip(&mut block.visible);
                for (_, visible) in own.filter(|(key, _)| **key == query) {
                    let is_visible = self.visibility.visible_pairs(self.head, &[query], &[query]);
                    *visible |= is_visible[0] << i;
                }
            }
        }
        let mut rows = GatheredRows::default();
        for blocks in rounds {
            let mut builder = RowBuilder::default();
            for block in blocks {
                let offset = builder.add_queries(block.queries);
                for (key, visible) in block.keys.into_iter().zip(block.visible) {
                    builder.add_key(key, visible << offset);
                }
            }
            rows.add_pass(builder.finish());
        }
        rows
    }

    /// The blocks of a round, without the pairs of earlier rounds.
    fn blocks(&self, round: usize) -> Vec<Block<'_>> {
        let sorted = &self.rounds[round];
        let mut blocks = Vec::new();
        for chunk in 0..self.chunks.count {
            let previous: &[u32] = match self.chunks.count {
                1 => &[],
                _ => sorted.positions(self.chunks.previous(chunk)),
            };
            let keys = [previous, sorted.positions(chunk)].concat();
            for queries in sorted.positions(chunk).chunks(MAX_QUERIES) {
                blocks.push(Block {
                    queries,
                    visible: self.visible(queries, &keys, &self.rounds[..round]),
                    keys: keys.clone(),
                });
            }
        }
        blocks
    }

    /// For each key, a bit for each query at another position that attends to it, unless it did in
    /// an earlier round.
    fn visible(&self, queries: &[u32], keys: &[u32], earlier: &[SortedSlots]) -> Vec<u64> {
        let mut visible = self.visibility.visible_pairs(self.head, queries, keys);
        let mut of_queries = [u32::MAX; MAX_QUERIES];
        of_queries[..queries.len()].copy_from_slice(queries);
        mask_equal(&[of_queries], keys, &mut visible);
        // The chunk of each query in the earlier rounds, and the one before.
        let mut of_keys = vec![0; keys.len()];
        for sorted in earlier {
            let mut chunks = [[u32::MAX; MAX_QUERIES]; 2];
            for (i, &query) in queries.iter().enumerate() {
                let own = sorted.chunk_of[query as usize];
                chunks[0][i] = own;
                chunks[1][i] = self.chunks.previous(own as usize) as u32;
            }
            for (chunk, &key) in of_keys.iter_mut().zip(keys) {
                *chunk = sorted.chunk_of[key as usize];
            }
            mask_equal(&chunks, &of_keys, &mut visible);
        }
        visible
    }
}

dispatch! {
    /// Clears the bits of the queries one of whose numbers is that of the key.
    fn mask_equal(
        of_queries: &[[u32; MAX_QUERIES]],
        of_keys: &[u32],
        visible: &mut [u64],
    ) by mask_equal_numbers;
}

#[inline(always)]
fn mask_equal_numbers(of_queries: &[[u32; MAX_QUERIES]], of_keys: &[u32], visible: &mut [u64]) {
    for (key, visible) in of_keys.iter().zip(visible) {
        let mut is_equal = [0; MAX_QUERIES];
        for numbers in of_queries {
            for (is_equal, number) in is_equal.iter_mut().zip(numbers) {
                *is_equal |= u8::from(number == key);
            }
        }
        *visible &= !pack_bits(&is_equal);
    }
}
