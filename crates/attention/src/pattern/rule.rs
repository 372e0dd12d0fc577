//! The part of a pattern that needs no tensor.
//!
//! A [`Rule`] returns the coverage of whole tiles, so that masked tiles are never computed, and,
//! for one key and a tile of queries, one bit per query.

use std::ops::Range;

use zoo_kernels::cpu::dispatch;

use super::coverage::{Coverage, as_keys, bits_from};
use super::documents::Documents;
use super::predicate::Predicate;
use super::summary::{BlockCausal, SummaryColumns};
use crate::AttentionShape;

/// The structured part of a pattern. The variants are those of [`Pattern`](crate::Pattern);
/// `BlockCausal` exists only here, for gathered summary columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    Full,
    Causal,
    Window {
        left: usize,
        right: usize,
    },
    Block {
        size: usize,
    },
    /// For each query block, its key blocks, sorted.
    Blocks {
        size: usize,
        visible: Vec<Vec<usize>>,
    },
    Strided {
        stride: usize,
    },
    SummaryColumns(SummaryColumns),
    Monotonic {
        window: usize,
    },
    BlockCausal(BlockCausal),
    /// Sorted.
    Global(Vec<usize>),
    /// One for each example.
    Documents(Vec<Documents>),
    KeyLengths(Vec<usize>),
    Predicate(Predicate),
    And(Box<Rule>, Box<Rule>),
    Or(Box<Rule>, Box<Rule>),
}

impl Rule {
    pub(crate) fn blocks(size: usize, visible: &[Vec<usize>]) -> Self {
        Self::Blocks {
            size,
            visible: visible.iter().map(|blocks| sorted(blocks)).collect(),
        }
    }

    pub(crate) fn global(positions: &[usize]) -> Self {
        Self::Global(sorted(positions))
    }

    pub(crate) fn documents(ids: &[Vec<usize>]) -> Self {
        Self::Documents(ids.iter().map(|ids| Documents::new(ids)).collect())
    }

    /// The intersection of two rules.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Full, rule) | (rule, Self::Full) => rule,
            // The other rule is cheaper and may rule out the tile.
            (a @ Self::Predicate(_), b) => Self::And(Box::new(b), Box::new(a)),
            (a, b) => Self::And(Box::new(a), Box::new(b)),
        }
    }

    /// The batch size if the examples may have different masks, otherwise 1.
    pub(crate) fn num_distinct_examples(&self, shape: &AttentionShape) -> usize {
        if self.depends_on_example() {
            shape.batch
        } else {
            1
        }
    }

    fn depends_on_example(&self) -> bool {
        match self {
            Self::KeyLengths(_) | Self::Documents(_) => true,
            Self::Predicate(predicate) => predicate.depends_on_example(),
            Self::And(a, b) | Self::Or(a, b) => a.depends_on_example() || b.depends_on_example(),
            _ => false,
        }
    }

    /// The coverage of a tile of an example. `Partial` is also allowed for a tile that is in fact
    /// masked or full; `Masked` and `Full` are exact.
    pub(crate) fn coverage(
        &self,
        shape: &AttentionShape,
        example: usize,
        queries: Range<usize>,
        keys: Range<usize>,
    ) -> Coverage {
        let [first, last] = [queries.start, queries.end - 1].map(|i| query_position(shape, i));
        let (first_key, last_key) = (keys.start as i64, keys.end as i64 - 1);
        match self {
            Self::Full => Coverage::Full,
            Self::Causal => Coverage::new(first_key > last, last_key <= first),
            Self::Window { left, right } => {
                window_coverage([first, last], [first_key, last_key], [*left, *right])
            }
            Self::Monotonic { window } => window_coverage(
                [queries.start as i64, queries.end as i64 - 1],
                [first_key, last_key],
                [*window; 2],
            ),
            Self::SummaryColumns(columns) => columns.coverage(keys),
            Self::BlockCausal(blocks) => blocks.coverage(queries, keys),
            Self::Block { size } => {
                let [first, last, first_key, last_key] = [first, last, first_key, last_key]
                    .map(|position| position.div_euclid(*size as i64));
                Coverage::new(
                    last_key < first || first_key > last,
                    first == last && first == first_key && first == last_key,
                )
            }
            Self::Blocks { size, visible } => {
                let blocks = keys.start / size..(keys.end - 1) / size + 1;
                let own = first.max(0) as usize / size..(last + 1).max(0) as usize;
                let own = own.start..own.end.div_ceil(*size).max(own.start);
                let (mut any, mut all) = (false, first >= 0);
                for visible in &visible[own] {
                    let count = within(visible, &blocks).len();
                    any |= count > 0;
                    all &= count == blocks.len();
                }
                Coverage::new(!any, all)
            }
            Self::Strided { stride } => {
                let stride = *stride as i64;
                let (min, max) = (first - last_key, last - first_key);
                let multiple = max.div_euclid(stride) * stride;
                Coverage::new(
                    multiple < min,
                    stride == 1 || (min == max && multiple == min),
                )
            }
            Self::Global(positions) => {
                let global_keys = within(positions, &keys).len();
                let global_queries = within(positions, &as_keys(first, last)).len();
                Coverage::new(
                    global_keys + global_queries == 0,
                    global_keys == keys.len() || global_queries == queries.len(),
                )
            }
            Self::Documents(documents) => documents[example].coverage([first, last], keys),
            Self::KeyLengths(lengths) => {
                let length = lengths[example];
                Coverage::new(keys.start >= length, keys.end <= length)
            }
            Self::Predicate(predicate) => {
                predicate.coverage(example, first..last + 1, first_key..last_key + 1)
            }
            Self::And(a, b) => match a.coverage(shape, example, queries.clone(), keys.clone()) {
                Coverage::Masked => Coverage::Masked,
                Coverage::Full => b.coverage(shape, example, queries, keys),
                Coverage::Partial => match b.coverage(shape, example, queries, keys) {
                    Coverage::Masked => Coverage::Masked,
                    _ => Coverage::Partial,
                },
            },
            Self::Or(a, b) => {
                let a = a.coverage(shape, example, queries.clone(), keys.clone());
                let b = b.coverage(shape, example, queries, keys);
                Coverage::new(
                    a == Coverage::Masked && b == Coverage::Masked,
                    a == Coverage::Full || b == Coverage::Full,
                )
            }
        }
    }

    /// A bit for each of up to 64 queries that attends to a key: bit `i` is query
    /// `queries.start + i`.
    pub(crate) fn visible_queries(
        &self,
        shape: &AttentionShape,
        example: usize,
        queries: Range<usize>,
        key: usize,
    ) -> u64 {
        assert!(queries.len() <= 64, "at most 64 queries fit into the bits");
        let first = query_position(shape, queries.start);
        let key_position = key as i64;
        // The positions of the queries that are keys.
        let own = as_keys(first, first + queries.len() as i64 - 1);
        let bits_of = |positions: Range<i64>| {
            bits_from(positions.start.saturating_sub(first))
                & !bits_from(positions.end.saturating_sub(first))
        };
        match self {
            Self::Full => u64::MAX,
            Self::Causal => bits_from(key_position - first),
            Self::Window { left, right } => {
                let start = key_position.saturating_sub(*right as i64);
                let last = key_position.saturating_add(*left as i64);
                bits_of(start..last.saturating_add(1))
            }
            Self::Monotonic { window } => {
                let from = |query: i64| bits_from(query - queries.start as i64);
                let window = *window as i64;
                from(key_position - window) & !from(key_position + window + 1)
            }
            Self::SummaryColumns(columns) if columns.contains(key) => u64::MAX,
            Self::SummaryColumns(_) => 0,
            Self::BlockCausal(blocks) => blocks.visible_queries(queries, key),
            Self::Block { size } => {
                let start = key / size * size;
                bits_of(start as i64..(start + size) as i64)
            }
            Self::Blocks { size, visible } => {
                let own = own.start / size..own.end.div_ceil(*size);
                own.filter(|&own| visible[own].binary_search(&(key / size)).is_ok())
                    .map(|own| bits_of((own * size) as i64..((own + 1) * size) as i64))
                    .fold(0, |all, some| all | some)
            }
            Self::Strided { stride } => {
                let next = (key_position - first).rem_euclid(*stride as i64) as usize;
                (next..queries.len())
                    .step_by(*stride)
                    .fold(0, |all, bit| all | 1 << bit)
            }
            Self::Global(positions) if positions.binary_search(&key).is_ok() => u64::MAX,
            Self::Global(positions) => {
                let bit = |&position: &usize| 1 << (position as i64 - first);
                within(positions, &own)
                    .iter()
                    .map(bit)
                    .fold(0, |all, bit: u64| all | bit)
            }
            Self::Documents(documents) => documents[example]
                .runs_of_key(own, key)
                .map(|run| bits_of(run.start as i64..run.end as i64))
                .fold(0, |all, some| all | some),
            Self::KeyLengths(lengths) if key < lengths[example] => u64::MAX,
            Self::KeyLengths(_) => 0,
            Self::Predicate(predicate) => {
                let is_visible = |i| predicate.is_visible(example, first + i, key_position);
                (0..queries.len() as i64).fold(0, |all, i| all | u64::from(is_visible(i)) << i)
            }
            Self::And(a, b) => match a.visible_queries(shape, example, queries.clone(), key) {
                0 => 0,
                bits => bits & b.visible_queries(shape, example, queries, key),
            },
            Self::Or(a, b) => {
                a.visible_queries(shape, example, queries.clone(), key)
                    | b.visible_queries(shape, example, queries, key)
            }
        }
    }

    /// For each key, a bit for each of up to 64 queries that attends to it; both in any order.
    pub(crate) fn visible_pairs(
        &self,
        shape: &AttentionShape,
        example: usize,
        queries: &[u32],
        keys: &[u32],
    ) -> Vec<u64> {
        assert!(queries.len() <= 64, "at most 64 queries fit into the bits");
        let all = u64::MAX.checked_shr(64 - queries.len() as u32).unwrap_or(0);
        match self {
            Self::Full => vec![all; keys.len()],
            Self::Causal => {
                // The first query that attends to each key.
                let offset = query_position(shape, 0);
                let first = |key: &u32| (i64::from(*key) - offset).clamp(0, u32::MAX.into()) as u32;
                let first: Vec<u32> = keys.iter().map(first).collect();
                let mut padded = [0; 64];
                padded[..queries.len()].copy_from_slice(queries);
                let mut visible = vec![all; keys.len()];
                clear_queries_before(&padded, &first, &mut visible);
                visible
            }
            Self::KeyLengths(lengths) => {
                let is_valid = |key: &u32| (*key as usize) < lengths[example];
                let bits = |key| if is_valid(key) { all } else { 0 };
                keys.iter().map(bits).collect()
            }
            Self::And(a, b) => {
                let [mut a, b] =
                    [a, b].map(|rule| rule.visible_pairs(shape, example, queries, keys));
                a.iter_mut().zip(b).for_each(|(a, b)| *a &= b);
                a
            }
            rule => {
                let is_range = queries.windows(2).all(|pair| pair[0] + 1 == pair[1]);
                let visible = |queries: Range<usize>, key: &u32| {
                    rule.visible_queries(shape, example, queries, *key as usize)
                };
                let bits = |key: &u32| match queries {
                    [first, .., last] if is_range => {
                        all & visible(*first as usize..*last as usize + 1, key)
                    }
                    _ => queries.iter().enumerate().fold(0, |all, (i, &query)| {
                        let query = query as usize..query as usize + 1;
                        all | (visible(query, key) & 1) << i
                    }),
                };
                keys.iter().map(bits).collect()
            }
        }
    }

    /// Appends the mask of a tile in row-major order, `true` where masked.
    pub(crate) fn write_mask(
        &self,
        shape: &AttentionShape,
        example: usize,
        [queries, keys]: [Range<usize>; 2],
        mask: &mut Vec<bool>,
    ) {
        let first = mask.len();
        mask.resize(first + queries.len() * keys.len(), false);
        for (column, key) in keys.clone().enumerate() {
            for start in queries.clone().step_by(64) {
                let tile = start..queries.end.min(start + 64);
                let bits = self.visible_queries(shape, example, tile.clone(), key);
                for (bit, query) in tile.enumerate() {
                    let offset = (query - queries.start) * keys.len() + column;
                    mask[first + offset] = bits >> bit & 1 == 0;
                }
            }
        }
    }
}

dispatch! {
    /// Clears the bits of the queries before the first that attends to each key.
    fn clear_queries_before(
        queries: &[u32; 64],
        first: &[u32],
        visible: &mut [u64],
    ) by clear_before;
}

#[inline(always)]
fn clear_before(queries: &[u32; 64], first: &[u32], visible: &mut [u64]) {
    for (first, visible) in first.iter().zip(visible) {
        *visible &= pack_bits(&queries.map(|query| u8::from(query >= *first)));
    }
}

/// A bit for each element, each of which is 0 or 1.
#[inline(always)]
pub(crate) fn pack_bits(elements: &[u8; 64]) -> u64 {
    let mut bits = 0;
    for (i, eight) in elements.as_chunks::<8>().0.iter().enumerate() {
        // The product moves the lowest bit of each byte to the highest byte.
        let byte = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits |= byte << (8 * i);
    }
    bits
}

/// The position of a query: the index of the key it is aligned with, aligned at the end.
pub(crate) fn query_position(shape: &AttentionShape, query: usize) -> i64 {
    query as i64 + shape.seq_k as i64 - shape.seq_q as i64
}

/// The coverage of a window for queries at the positions from `first` to `last`.
fn window_coverage(
    [first, last]: [i64; 2],
    [first_key, last_key]: [i64; 2],
    sides: [usize; 2],
) -> Coverage {
    let [left, right] = sides.map(|side| side as i64);
    Coverage::new(
        first_key > last.saturating_add(right) || last_key < first.saturating_sub(left),
        last_key <= first.saturating_add(right) && first_key >= last.saturating_sub(left),
    )
}

/// The part of a sorted slice that lies in a range.
fn within<'a>(sorted: &'a [usize], range: &Range<usize>) -> &'a [usize] {
    let start = sorted.partition_point(|&x| x < range.start);
    let end = sorted.partition_point(|&x| x < range.end);
    &sorted[start..end.max(start)]
}

fn sorted(indices: &[usize]) -> Vec<usize> {
    let mut indices = indices.to_vec();
    indices.sort_unstable();
    indices.dedup();
    indices
}

#[cfg(test)]
mod tests;
