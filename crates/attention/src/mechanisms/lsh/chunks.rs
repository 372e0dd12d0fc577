//! Chunk layout: positions sorted by hash, split into chunks, and the mask of each chunk.
//!
//! All of it is integer arithmetic on the host, for the patterns that are not evaluated
//! [on the device](super::device).

use burn::tensor::Tensor;
use zoo_spec::Lsh;

use super::hashing::Hashing;
use super::visibility::Visibility;

/// The sorted positions of every head, in every round.
pub(super) struct ChunkLayout {
    pub(super) chunks: Chunks,
    pub(super) rounds: Vec<Round>,
}

/// Number and size of the chunks of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunks {
    pub(super) count: usize,
    /// Sorted slots, and so queries, in each chunk.
    pub(super) size: usize,
}

impl Chunks {
    /// The chunks of `seq` positions, and the number of rounds.
    pub(super) fn new(hashing: &Lsh, seq: usize) -> (Self, usize) {
        // Two chunks attend to each other completely, so there is nothing to sort.
        if seq <= hashing.bucket_size.saturating_mul(2) {
            return (
                Self {
                    count: 1,
                    size: seq,
                },
                1,
            );
        }
        let (count, size) = (seq.div_ceil(hashing.bucket_size), hashing.bucket_size);
        (Self { count, size }, hashing.n_hashes)
    }

    /// Number of keys of a chunk: its own and those of the previous chunk, if there is another.
    pub(super) fn keys(self) -> usize {
        match self.count {
            1 => self.size,
            _ => 2 * self.size,
        }
    }

    /// The previous chunk, cyclically.
    pub(super) fn previous(self, chunk: usize) -> usize {
        (chunk + self.count - 1) % self.count
    }

    /// Number of slots of a head.
    pub(super) fn slots(self) -> usize {
        self.count * self.size
    }
}

/// One round, for all examples and heads. Rows are those of `[batch, heads, seq]`.
pub(super) struct Round {
    /// `[batch, heads, chunks, size]`: the row in each slot; arbitrary for padding.
    pub(super) rows: Vec<i32>,
    /// `[batch, heads, seq]`: the slot of each row, over all heads.
    pub(super) slot_of: Vec<i32>,
    /// `[batch, heads, chunks, size, keys]`: `true` masks.
    pub(super) mask: Vec<bool>,
}

impl ChunkLayout {
    /// The rows of the keys that the query of a row attends to, in any round.
    pub(super) fn visible_keys(&self, row: usize) -> Vec<usize> {
        let Chunks { size, .. } = self.chunks;
        let (slots, keys) = (self.chunks.slots(), self.chunks.keys());
        let mut visible = Vec::new();
        for round in &self.rounds {
            let slot = round.slot_of[row] as usize;
            let (first, chunk) = (slot / slots * slots, slot % slots / size);
            let own = first + chunk * size..first + (chunk + 1) * size;
            let previous = first + self.chunks.previous(chunk) * size;
            let previous = previous..previous + keys - size;
            let mask = &round.mask[slot * keys..][..keys];
            for (slot, is_masked) in previous.chain(own).zip(mask) {
                if !is_masked {
                    visible.push(round.rows[slot] as usize);
                }
            }
        }
        visible
    }

    pub(super) fn new(hashing: &Lsh, query: &Tensor<4>, visibility: &Visibility<'_>) -> Self {
        Self::from_hashes(hashing, visibility, || hashing.hashes(query))
    }

    /// The layout of [hashes](Hashing::hashes), which are computed if there are several chunks.
    pub(super) fn from_hashes(
        hashing: &Lsh,
        visibility: &Visibility<'_>,
        hashes: impl FnOnce() -> Vec<u32>,
    ) -> Self {
        let [batch, heads, _, seq] = visibility.shape.scores();
        let (chunks, rounds) = Chunks::new(hashing, seq);
        let round = |_| Round {
            rows: Vec::new(),
            slot_of: Vec::new(),
            mask: vec![true; batch * heads * chunks.slots() * chunks.keys()],
        };
        let mut layout = Self {
            chunks,
            rounds: (0..rounds).map(round).collect(),
        };
        let hashes = (chunks.count > 1).then(hashes);
        layout.fill(visibility, |head, round, position| match &hashes {
            Some(hashes) => hashes[(head * seq + position) * rounds + round],
            None => 0,
        });
        layout
    }

    /// Sorts all positions by `hash(head, round, position)` and computes the masks.
    fn fill(&mut self, visibility: &Visibility<'_>, hash: impl Fn(usize, usize, usize) -> u32) {
        let [batch, heads, _, seq] = visibility.shape.scores();
        let (size, keys) = (self.chunks.size, self.chunks.keys());
        let slots = self.chunks.slots();
        for head in 0..batch * heads {
            let example_and_head = [head / heads, head % heads];
            let sorted: Vec<SortedSlots> = (0..self.rounds.len())
                .map(|round| {
                    SortedSlots::new(|position| hash(head, round, position), seq, self.chunks)
                })
                .collect();
            let mut attends_to_others = vec![false; seq];
            for (round, current) in sorted.iter().enumerate() {
                let mask = &mut self.rounds[round].mask;
                let mask = &mut mask[head * slots * keys..][..slots * keys];
                let head_round = HeadRound {
                    visibility,
                    head: example_and_head,
                    current,
                    earlier: &sorted[..round],
                };
                for (chunk, mask) in mask.chunks_exact_mut(size * keys).enumerate() {
                    head_round.write_mask(chunk, mask, &mut attends_to_others);
                }
            }
            // A position without any other visible key attends to itself, in the first round.
            for position in (0..seq).filter(|&position| !attends_to_others[position]) {
                let slot = sorted[0].slot_of[position] as usize;
                let own_key = keys - size + slot % size;
                let index = (head * slots + slot) * keys + own_key;
                let own = std::slice::from_mut(&mut self.rounds[0].mask[index]);
                own[0] = false;
                let position = position as u32;
                visibility.mask(example_and_head, position, &[position], own);
            }
            for (round, sorted) in self.rounds.iter_mut().zip(&sorted) {
                let row = |&position: &u32| match position {
                    PADDING => (head * seq) as i32,
                    position => (head * seq) as i32 + position as i32,
                };
                round.rows.extend(sorted.positions.iter().map(row));
                let slot = |&slot: &u32| (head * slots) as i32 + slot as i32;
                round.slot_of.extend(sorted.slot_of.iter().map(slot));
            }
        }
    }
}

/// The padding sentinel of unused slots, greater than every position.
const PADDING: u32 = u32::MAX;

/// The positions of one head in one round, sorted by hash.
pub(super) struct SortedSlots {
    /// The position in each slot.
    positions: Vec<u32>,
    slot_of: Vec<u32>,
    pub(super) chunk_of: Vec<u32>,
    chunks: Chunks,
}

impl SortedSlots {
    /// Sorts by hash, and by position among equal hashes.
    pub(super) fn new(hash: impl Fn(usize) -> u32, seq: usize, chunks: Chunks) -> Self {
        let mut sorted: Vec<(u32, u32)> = (0..seq).map(|i| (hash(i), i as u32)).collect();
        sorted.sort_unstable();
        let mut positions: Vec<u32> = sorted.into_iter().map(|(_, position)| position).collect();
        let (mut slot_of, mut chunk_of) = (vec![0; seq], vec![0; seq]);
        for (slot, &position) in positions.iter().enumerate() {
            slot_of[position as usize] = slot as u32;
            chunk_of[position as usize] = (slot / chunks.size) as u32;
        }
        positions.resize(chunks.slots(), PADDING);
        Self {
            positions,
            slot_of,
            chunk_of,
            chunks,
        }
    }

    /// The positions of a chunk without padding.
    #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
    pub(super) fn positions(&self, chunk: usize) -> &[u32] {
        let slots = self.queries(chunk);
        let count = slots
            .iter()
            .take_while(|position| **position != PADDING)
            .count();
        &slots[..count]
    }

    fn queries(&self, chunk: usize) -> &[u32] {
        &self.positions[chunk * self.chunks.size..][..self.chunks.size]
    }

    /// The positions of the previous chunk and of the chunk itself.
    fn keys(&self, chunk: usize) -> Vec<u32> {
        let previous: &[u32] = match self.chunks.count {
            1 => &[],
            _ => self.queries(self.chunks.previous(chunk)),
        };
        [previous, self.queries(chunk)].concat()
    }
}

/// One head in one round.
struct HeadRound<'a> {
    visibility: &'a Visibility<'a>,
    head: [usize; 2],
    current: &'a SortedSlots,
    earlier: &'a [SortedSlots],
}

impl HeadRound<'_> {
    /// Writes the mask of a chunk, `[size, keys]`, and marks the queries that attend to another
    /// position.
    fn write_mask(&self, chunk: usize, mask: &mut [bool], attends_to_others: &mut [bool]) {
        let keys = self.current.keys(chunk);
        // The chunks of these keys in the earlier rounds, contiguous since every query reads them.
        let earlier_chunks: Vec<Vec<u32>> = self
            .earlier
            .iter()
            .map(|sorted| {
                let chunk_of = |&key: &u32| sorted.chunk_of.get(key as usize).copied();
                let chunks = keys.iter().map(chunk_of);
                chunks.map(|chunk| chunk.unwrap_or(PADDING)).collect()
            })
            .collect();
        let rows = mask.chunks_exact_mut(keys.len());
        for (&query, mask) in self.current.queries(chunk).iter().zip(rows) {
            if query == PADDING {
                continue;
            }
            for (is_masked, &key) in mask.iter_mut().zip(&keys) {
                *is_masked = (key == PADDING) | (key == query);
            }
            // A key that was visible in an earlier round is not counted again.
            for (sorted, chunks) in self.earlier.iter().zip(&earlier_chunks) {
                let own = sorted.chunk_of[query as usize];
                let previous = sorted.chunks.previous(own as usize) as u32;
                for (is_masked, &chunk) in mask.iter_mut().zip(chunks) {
                    *is_masked |= (chunk == own) | (chunk == previous);
                }
            }
            self.visibility.mask(self.head, query, &keys, mask);
            attends_to_others[query as usize] |= mask.iter().any(|is_masked| !is_masked);
        }
    }
}
