//! What can be said of a pattern without a tensor.
//!
//! A [`Rule`] answers for whole tiles at once, so that what nobody sees is never
//! computed, and for one key against a tile of queries, as a bit for each.

use std::ops::Range;

use super::coverage::{Coverage, as_keys, bits_from};
use super::documents::Documents;
use super::sees::Sees;
use super::summary::{Stairs, Summaries};
use crate::AttentionShape;

/// The structured part of a pattern; [`Pattern`](crate::Pattern) says what each means, but
/// for `Stairs`, which only keys that were brought together have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    /// For each block the blocks that are seen from it, in order.
    Blocks {
        size: usize,
        seen: Vec<Vec<usize>>,
    },
    Strided {
        stride: usize,
    },
    Summaries(Summaries),
    Monotonic {
        window: usize,
    },
    Stairs(Stairs),
    /// In order.
    Global(Vec<usize>),
    /// One for each example.
    Documents(Vec<Documents>),
    KeyLengths(Vec<usize>),
    Sees(Sees),
    And(Box<Rule>, Box<Rule>),
    Or(Box<Rule>, Box<Rule>),
}

impl Rule {
    pub(crate) fn blocks(size: usize, seen: &[Vec<usize>]) -> Self {
        let in_order = |blocks: &Vec<usize>| sorted(blocks);
        Self::Blocks {
            size,
            seen: seen.iter().map(in_order).collect(),
        }
    }

    pub(crate) fn global(places: &[usize]) -> Self {
        Self::Global(sorted(places))
    }

    pub(crate) fn documents(ids: &[Vec<usize>]) -> Self {
        Self::Documents(ids.iter().map(|ids| Documents::new(ids)).collect())
    }

    /// Sees what both see.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Full, rule) | (rule, Self::Full) => rule,
            // The other says sooner that nothing is seen.
            (a @ Self::Sees(_), b) => Self::And(Box::new(b), Box::new(a)),
            (a, b) => Self::And(Box::new(a), Box::new(b)),
        }
    }

    /// Examples that may see differently: all of them, or one for all.
    pub(crate) fn different_examples(&self, shape: &AttentionShape) -> usize {
        if self.depends_on_example() {
            shape.batch
        } else {
            1
        }
    }

    /// Whether examples may see differently.
    fn depends_on_example(&self) -> bool {
        match self {
            Self::KeyLengths(_) | Self::Documents(_) => true,
            Self::And(a, b) | Self::Or(a, b) => a.depends_on_example() || b.depends_on_example(),
            _ => false,
        }
    }

    /// What queries of `example` see of a tile. `Partial` may be said of a tile that
    /// is seen as a whole or not at all; nothing else may be wrong.
    pub(crate) fn tile(
        &self,
        shape: &AttentionShape,
        example: usize,
        queries: Range<usize>,
        keys: Range<usize>,
    ) -> Coverage {
        // The places of the first and the last of each.
        let [first, last] = [queries.start, queries.end - 1].map(|i| place(shape, i));
        let (first_key, last_key) = (keys.start as i64, keys.end as i64 - 1);
        match self {
            Self::Full => Coverage::Full,
            Self::Causal => Coverage::by(first_key > last, last_key <= first),
            Self::Window { left, right } => {
                window_tile([first, last], [first_key, last_key], [*left, *right])
            }
            Self::Monotonic { window } => window_tile(
                [queries.start as i64, queries.end as i64 - 1],
                [first_key, last_key],
                [*window; 2],
            ),
            Self::Summaries(summaries) => summaries.of(keys),
            Self::Stairs(stairs) => stairs.tile(queries, keys),
            Self::Block { size } => {
                let [first, last, first_key, last_key] =
                    [first, last, first_key, last_key].map(|at| at.div_euclid(*size as i64));
                Coverage::by(
                    last_key < first || first_key > last,
                    first == last && first == first_key && first == last_key,
                )
            }
            Self::Blocks { size, seen } => {
                let blocks = keys.start / size..(keys.end - 1) / size + 1;
                let own = first.max(0) as usize / size..(last + 1).max(0) as usize;
                let own = own.start..own.end.div_ceil(*size).max(own.start);
                let counts = seen[own].iter().map(|seen| within(seen, &blocks).len());
                let (mut any, mut every) = (false, first >= 0);
                for count in counts {
                    any |= count > 0;
                    every &= count == blocks.len();
                }
                Coverage::by(!any, every)
            }
            Self::Strided { stride } => {
                let stride = *stride as i64;
                let (least, most) = (first - last_key, last - first_key);
                let below = most.div_euclid(stride) * stride;
                Coverage::by(
                    below < least,
                    stride == 1 || (least == most && below == least),
                )
            }
            Self::Global(places) => {
                let seen = within(places, &keys).len();
                let seeing = within(places, &as_keys(first, last)).len();
                Coverage::by(
                    seen + seeing == 0,
                    seen == keys.len() || seeing == queries.len(),
                )
            }
            Self::Documents(documents) => documents[example].tile([first, last], keys),
            Self::KeyLengths(lengths) => {
                let length = lengths[example];
                Coverage::by(keys.start >= length, keys.end <= length)
            }
            Self::Sees(sees) => sees.tile(first..last + 1, first_key..last_key + 1),
            Self::And(a, b) => match a.tile(shape, example, queries.clone(), keys.clone()) {
                Coverage::Masked => Coverage::Masked,
                Coverage::Full => b.tile(shape, example, queries, keys),
                Coverage::Partial => match b.tile(shape, example, queries, keys) {
                    Coverage::Masked => Coverage::Masked,
                    _ => Coverage::Partial,
                },
            },
            Self::Or(a, b) => {
                let a = a.tile(shape, example, queries.clone(), keys.clone());
                let b = b.tile(shape, example, queries, keys);
                Coverage::by(
                    a == Coverage::Masked && b == Coverage::Masked,
                    a == Coverage::Full || b == Coverage::Full,
                )
            }
        }
    }

    /// Which of up to 64 queries see a key: bit `i` stands for `queries.start + i`.
    pub(crate) fn seen(
        &self,
        shape: &AttentionShape,
        example: usize,
        queries: Range<usize>,
        key: usize,
    ) -> u64 {
        assert!(queries.len() <= 64, "a bit for each of up to 64 queries");
        let first = place(shape, queries.start);
        let key_at = key as i64;
        // The queries whose places are in a range.
        let at = |places: Range<i64>| {
            bits_from(places.start.saturating_sub(first))
                & !bits_from(places.end.saturating_sub(first))
        };
        match self {
            Self::Full => u64::MAX,
            Self::Causal => bits_from(key_at - first),
            Self::Window { left, right } => {
                let begin = key_at.saturating_sub(*right as i64);
                at(begin..key_at.saturating_add(*left as i64).saturating_add(1))
            }
            Self::Monotonic { window } => {
                let from = |number: i64| bits_from(number - queries.start as i64);
                let window = *window as i64;
                from(key_at - window) & !from(key_at + window + 1)
            }
            Self::Summaries(summaries) if summaries.has(key) => u64::MAX,
            Self::Summaries(_) => 0,
            Self::Stairs(stairs) => stairs.seen(queries, key),
            Self::Block { size } => {
                let begin = key / size * size;
                at(begin as i64..(begin + size) as i64)
            }
            Self::Blocks { size, seen } => {
                let own = as_keys(first, first + queries.len() as i64 - 1);
                let own = own.start / size..own.end.div_ceil(*size);
                own.filter(|&own| seen[own].binary_search(&(key / size)).is_ok())
                    .map(|own| at((own * size) as i64..((own + 1) * size) as i64))
                    .fold(0, |all, some| all | some)
            }
            Self::Strided { stride } => {
                let to_next = (key_at - first).rem_euclid(*stride as i64) as usize;
                (to_next..queries.len())
                    .step_by(*stride)
                    .fold(0, |all, bit| all | 1 << bit)
            }
            Self::Global(places) if places.binary_search(&key).is_ok() => u64::MAX,
            Self::Global(places) => {
                let own = as_keys(first, first + queries.len() as i64 - 1);
                let bit = |&place: &usize| 1 << (place as i64 - first);
                within(places, &own)
                    .iter()
                    .map(bit)
                    .fold(0, |all, bit: u64| all | bit)
            }
            Self::Documents(documents) => {
                let own = as_keys(first, first + queries.len() as i64 - 1);
                let stretches = documents[example].seen(own, key);
                stretches
                    .map(|places| at(places.start as i64..places.end as i64))
                    .fold(0, |all, some| all | some)
            }
            Self::KeyLengths(lengths) if key < lengths[example] => u64::MAX,
            Self::KeyLengths(_) => 0,
            Self::Sees(sees) => sees.seen(first, queries.len(), key_at),
            Self::And(a, b) => match a.seen(shape, example, queries.clone(), key) {
                0 => 0,
                seen => seen & b.seen(shape, example, queries, key),
            },
            Self::Or(a, b) => {
                a.seen(shape, example, queries.clone(), key) | b.seen(shape, example, queries, key)
            }
        }
    }

    /// Adds to `hidden`, for each of the queries and row by row, whether it does not
    /// see each of the keys.
    pub(crate) fn write_hidden(
        &self,
        shape: &AttentionShape,
        example: usize,
        [queries, keys]: [Range<usize>; 2],
        hidden: &mut Vec<bool>,
    ) {
        let first = hidden.len();
        hidden.resize(first + queries.len() * keys.len(), false);
        for (column, key) in keys.clone().enumerate() {
            for start in queries.clone().step_by(64) {
                let some = start..queries.end.min(start + 64);
                let seen = self.seen(shape, example, some.clone(), key);
                for (bit, query) in some.enumerate() {
                    let place = (query - queries.start) * keys.len() + column;
                    hidden[first + place] = seen >> bit & 1 == 0;
                }
            }
        }
    }
}

/// The place of a query: the key it is level with, the last query with the last key.
pub(crate) fn place(shape: &AttentionShape, query: usize) -> i64 {
    query as i64 + shape.seq_k as i64 - shape.seq_q as i64
}

/// What queries at the places from `first` to `last` see of some keys through a window.
fn window_tile(
    [first, last]: [i64; 2],
    [first_key, last_key]: [i64; 2],
    sides: [usize; 2],
) -> Coverage {
    let [left, right] = sides.map(|side| side as i64);
    Coverage::by(
        first_key > last.saturating_add(right) || last_key < first.saturating_sub(left),
        last_key <= first.saturating_add(right) && first_key >= last.saturating_sub(left),
    )
}

/// Those of some sorted numbers that lie in a range.
fn within<'a>(sorted: &'a [usize], range: &Range<usize>) -> &'a [usize] {
    let start = sorted.partition_point(|&x| x < range.start);
    let end = sorted.partition_point(|&x| x < range.end);
    &sorted[start..end.max(start)]
}

fn sorted(numbers: &[usize]) -> Vec<usize> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests;
