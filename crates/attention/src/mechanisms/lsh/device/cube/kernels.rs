//! Kernels that sort positions by hash, and write the indices and masks of the chunks.

use cubecl::prelude::*;

use crate::cube::rows::BroadcastStrides;

/// The sizes of a layout.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct Sizes {
    batch: u32,
    heads: u32,
    seq: u32,
    rounds: u32,
    /// Chunks of a head.
    count: u32,
    /// Slots of a chunk.
    size: u32,
    /// Keys of a chunk.
    keys: u32,
}

#[cube]
impl Sizes {
    /// Heads of all examples.
    fn all_heads(&self) -> usize {
        self.batch as usize * self.heads as usize
    }

    /// Positions of all heads.
    fn rows(&self) -> usize {
        self.all_heads() * self.seq as usize
    }
}

/// A head of an example in a round.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct SortedHead {
    round: usize,
    example: usize,
    head: usize,
    /// Among the heads of all examples.
    row_head: usize,
    /// Among the heads of all examples in all rounds.
    index: usize,
}

/// The head of a cube, whose Z dimension is that of rounds and examples.
#[cube]
fn sorted_head(sizes: &Sizes) -> SortedHead {
    let batch = sizes.batch as usize;
    let round = CUBE_POS_Z as usize / batch;
    let example = CUBE_POS_Z as usize % batch;
    let head = CUBE_POS_Y as usize;
    let row_head = example * sizes.heads as usize + head;
    SortedHead {
        round,
        example,
        head,
        row_head,
        index: round * sizes.all_heads() + row_head,
    }
}

/// The counts of a counting sort in shared memory: of each value of a digit, in the positions of
/// each unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CountTable {
    /// A power of two, so that lengths share kernels.
    values: usize,
    pub(super) units: usize,
}

/// Counts in shared memory: 16 KiB.
const MAX_COUNTS: usize = 4096;

impl CountTable {
    pub(super) fn new(base: usize) -> Self {
        let values = base.next_power_of_two();
        Self {
            values,
            units: (MAX_COUNTS / values).clamp(1, 256),
        }
    }

    pub(super) fn shared_bytes(self) -> usize {
        (self.values + 1) * self.units * size_of::<u32>()
    }
}

/// Sorts the positions of a head by a digit of their hashes, in a stable counting sort. Each unit
/// has a range of slots of the earlier order, which is that of the positions in the first pass.
#[cube(launch_unchecked)]
pub(super) fn sort_by_digit<I: Int>(
    hashes: &[I],
    earlier: &[I],
    order: &mut [I],
    sizes: &Sizes,
    digit: u32,
    digits: u32,
    #[comptime] is_first: bool,
    #[comptime] table: CountTable,
    #[define(I)] _int: ElemType,
) {
    let values = comptime!(table.values);
    let units = comptime!(table.units);
    let unit = UNIT_POS as usize;
    let seq = sizes.seq as usize;
    let head = sorted_head(sizes);
    let first = head.index * seq;
    let column = head.round * digits as usize + digit as usize;
    let columns = sizes.rounds as usize * digits as usize;
    let each = seq.div_ceil(units);
    let start = unit * each;
    let mut end = start + each;
    if end > seq {
        end = seq;
    }

    let mut counts = Shared::<[u32]>::new_slice(comptime!(values * units));
    let mut sums = Shared::<[u32]>::new_slice(units);
    for value in 0..values {
        counts[value * units + unit] = 0u32;
    }
    for slot in start..end {
        let position = position_in::<I>(earlier, first, slot, is_first);
        let row = head.row_head * seq + position;
        let value = value_of::<I>(hashes, row * columns + column, values);
        counts[value * units + unit] += 1u32;
    }
    sync_cube();
    // The number of earlier positions: those of smaller values, and of equal ones of earlier units.
    let run = unit * values;
    let mut sum = 0u32;
    for i in 0..values {
        let count = counts[run + i];
        counts[run + i] = sum;
        sum += count;
    }
    sums[unit] = sum;
    sync_cube();
    let mut before = 0u32;
    for other in 0..unit {
        before += sums[other];
    }
    for i in 0..values {
        counts[run + i] += before;
    }
    sync_cube();
    for slot in start..end {
        let position = position_in::<I>(earlier, first, slot, is_first);
        let row = head.row_head * seq + position;
        let value = value_of::<I>(hashes, row * columns + column, values);
        let sorted = counts[value * units + unit];
        counts[value * units + unit] = sorted + 1u32;
        order[first + sorted as usize] = I::cast_from(position as u32);
    }
}

/// The position in a slot of the earlier order.
#[cube]
fn position_in<I: Int>(
    earlier: &[I],
    first: usize,
    slot: usize,
    #[comptime] is_first: bool,
) -> usize {
    let mut position = slot;
    if comptime!(!is_first) {
        position = u32::cast_from(earlier[first + slot]) as usize;
    }
    position
}

/// A digit of a hash, which may be any number if the query is not finite.
#[cube]
fn value_of<I: Int>(hashes: &[I], index: usize, #[comptime] values: usize) -> usize {
    let value = u32::cast_from(hashes[index]);
    let last = comptime!(values as u32 - 1).runtime();
    select(value < last, value, last) as usize
}

/// Each unit writes the indices of one slot of a head.
#[cube(launch_unchecked)]
pub(super) fn write_indices<I: Int>(
    order: &[I],
    query_rows: &mut [I],
    query_slots: &mut [I],
    key_rows: &mut [I],
    key_slots: &mut [I],
    sizes: &Sizes,
    #[define(I)] _int: ElemType,
) {
    let slot = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let seq = sizes.seq as usize;
    let (count, size) = (sizes.count as usize, sizes.size as usize);
    let (keys, rows) = (sizes.keys as usize, sizes.rows());
    let head = sorted_head(sizes);
    if slot < count * size {
        let mut row = head.row_head * seq;
        if slot < seq {
            row += u32::cast_from(order[head.index * seq + slot]) as usize;
        }
        let query_slot = head.index * count * size + slot;
        query_rows[query_slot] = I::cast_from(row as u32);
        let (chunk, offset) = (slot / size, slot % size);
        let first_chunk = head.index * count;
        let own = (first_chunk + chunk) * keys + keys - size + offset;
        let next = (first_chunk + (chunk + 1) % count) * keys + offset;
        key_rows[own] = I::cast_from(row as u32);
        if count > 1 {
            key_rows[next] = I::cast_from(row as u32);
        }
        if slot < seq {
            let of_round = head.round * rows + row;
            query_slots[of_round] = I::cast_from(query_slot as u32);
            if count > 1 {
                let first = 2 * head.round * rows + row;
                key_slots[first] = I::cast_from(own as u32);
                key_slots[first + rows] = I::cast_from(next as u32);
            } else {
                key_slots[of_round] = I::cast_from(own as u32);
            }
        }
    }
}

/// What masks depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct MaskKind {
    pub(super) rounds: usize,
    pub(super) is_causal: bool,
    pub(super) has_lengths: bool,
    pub(super) has_mask: bool,
}

/// The tensors of a pattern.
#[derive(CubeType, CubeLaunch)]
pub(super) struct PatternArgs<I: Int, T: Numeric> {
    /// Of each example.
    lengths: &'static [I],
    mask: &'static [T],
    strides: BroadcastStrides,
}

#[cube]
impl<I: Int, T: Numeric> PatternArgs<I, T> {
    /// Whether a query of a head may attend to a key.
    fn is_visible(
        &self,
        head: &SortedHead,
        query: usize,
        key: usize,
        #[comptime] kind: MaskKind,
    ) -> bool {
        let mut is_visible = true;
        if comptime!(kind.is_causal) {
            is_visible = key <= query;
        }
        if comptime!(kind.has_lengths) {
            let length = u32::cast_from(self.lengths[head.example]) as usize;
            is_visible = is_visible && key < length;
        }
        if comptime!(kind.has_mask) {
            let offset = self.strides.offset(head.example, head.head, query, key);
            is_visible = is_visible && u32::cast_from(self.mask[offset]) == 0u32;
        }
        is_visible
    }
}

/// Units per cube of [`write_masks`].
pub(super) const MASK_UNITS: usize = 64;

/// Queries whose bits are in a word.
const QUERIES: usize = 32;

/// In shared memory, a slot without a query.
const PADDING: u32 = u32::MAX;

/// Writes the mask of a chunk: each unit some of its columns, for 32 queries at a time. `attends` is
/// 1 for the queries that attend to another position, in each round.
#[cube(launch_unchecked)]
pub(super) fn write_masks<I: Int, T: Numeric, M: Numeric>(
    order: &[I],
    query_slots: &[I],
    pattern: &PatternArgs<I, T>,
    mask: &mut [M],
    attends: &mut [u32],
    sizes: &Sizes,
    #[comptime] kind: MaskKind,
    #[define(I)] _int: ElemType,
    #[define(T)] _pattern_elem: ElemType,
    #[define(M)] _mask_elem: ElemType,
) {
    let unit = UNIT_POS as usize;
    let chunk = CUBE_POS_X as usize;
    let seq = sizes.seq as usize;
    let (count, size, keys) = (
        sizes.count as usize,
        sizes.size as usize,
        sizes.keys as usize,
    );
    let head = sorted_head(sizes);
    let first = head.index * seq;
    let mut queries = Shared::<[u32]>::new_slice(comptime!(QUERIES));
    // The chunks of the queries in earlier rounds.
    let mut chunks = Shared::<[u32]>::new_slice(comptime!(kind.rounds * QUERIES));
    let mut visible_columns = Shared::<[u32]>::new_slice(comptime!(MASK_UNITS));

    for block in 0..size.div_ceil(QUERIES) {
        // Other units may still read the previous queries.
        sync_cube();
        if unit < QUERIES {
            let in_chunk = block * QUERIES + unit;
            let slot = chunk * size + in_chunk;
            let mut query = PADDING.runtime();
            if in_chunk < size && slot < seq {
                query = u32::cast_from(order[first + slot]);
                for round in 0..head.round {
                    chunks[round * QUERIES + unit] =
                        chunk_of::<I>(query_slots, sizes, &head, round, query as usize) as u32;
                }
            }
            queries[unit] = query;
        }
        sync_cube();
        let mut visible_any = 0u32;
        for step in 0..keys.div_ceil(MASK_UNITS) {
            let column = step * MASK_UNITS + unit;
            if column < keys {
                let mut visible = 0u32;
                let slot = slot_of_key(sizes, chunk, column);
                if slot < seq {
                    let key = u32::cast_from(order[first + slot]);
                    for i in 0..QUERIES {
                        let query = queries[i];
                        if query != PADDING && query != key {
                            let (query, key) = (query as usize, key as usize);
                            if pattern.is_visible(&head, query, key, kind) {
                                visible |= 1u32 << (i as u32);
                            }
                        }
                    }
                    // A key that was visible in an earlier round is not counted again.
                    for round in 0..head.round {
                        let own = chunk_of::<I>(query_slots, sizes, &head, round, key as usize);
                        let next = (own + 1) % count;
                        for i in 0..QUERIES {
                            let of_query = chunks[round * QUERIES + i] as usize;
                            if of_query == own || of_query == next {
                                visible &= !(1u32 << (i as u32));
                            }
                        }
                    }
                }
                for i in 0..QUERIES {
                    let in_chunk = block * QUERIES + i;
                    if in_chunk < size {
                        let row = (head.index * count + chunk) * size + in_chunk;
                        let is_masked = 1u32 - ((visible >> (i as u32)) & 1u32);
                        mask[row * keys + column] = M::cast_from(is_masked);
                    }
                }
                visible_any |= visible;
            }
        }
        visible_columns[unit] = visible_any;
        sync_cube();
        if unit < QUERIES {
            let query = queries[unit];
            if query != PADDING {
                let mut any = 0u32;
                for other in 0..MASK_UNITS {
                    any |= visible_columns[other];
                }
                attends[first + query as usize] = (any >> (unit as u32)) & 1u32;
            }
        }
    }
}

/// The chunk of a position of a head in another round.
#[cube]
fn chunk_of<I: Int>(
    query_slots: &[I],
    sizes: &Sizes,
    head: &SortedHead,
    round: usize,
    position: usize,
) -> usize {
    let row = head.row_head * sizes.seq as usize + position;
    let slot = u32::cast_from(query_slots[round * sizes.rows() + row]) as usize;
    slot / sizes.size as usize % sizes.count as usize
}

/// The slot of a key of a chunk: the previous chunk comes first, if there is another.
#[cube]
fn slot_of_key(sizes: &Sizes, chunk: usize, column: usize) -> usize {
    let (count, size) = (sizes.count as usize, sizes.size as usize);
    let mut slot = column;
    if count > 1 {
        slot = chunk * size + column - size;
        if column < size {
            slot = (chunk + count - 1) % count * size + column;
        }
    }
    slot
}

/// A position without any other visible key attends to itself, in the first round. Each unit has one
/// position.
#[cube(launch_unchecked)]
pub(super) fn attend_to_self<I: Int, T: Numeric, M: Numeric>(
    query_slots: &[I],
    attends: &[u32],
    pattern: &PatternArgs<I, T>,
    mask: &mut [M],
    sizes: &Sizes,
    #[comptime] kind: MaskKind,
    #[define(I)] _int: ElemType,
    #[define(T)] _pattern_elem: ElemType,
    #[define(M)] _mask_elem: ElemType,
) {
    let position = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let seq = sizes.seq as usize;
    let (size, keys) = (sizes.size as usize, sizes.keys as usize);
    let head = sorted_head(sizes);
    if position < seq {
        let row = head.row_head * seq + position;
        let mut any = 0u32;
        for round in 0..sizes.rounds as usize {
            any |= attends[round * sizes.rows() + row];
        }
        if any == 0u32 && pattern.is_visible(&head, position, position, kind) {
            // In the first round, slots of the queries are those of the mask.
            let slot = u32::cast_from(query_slots[row]) as usize;
            let column = keys - size + slot % size;
            mask[slot * keys + column] = M::cast_from(0u32);
        }
    }
}
