//! What can be said of a pattern without a tensor.
//!
//! A [`Rule`] answers for whole tiles at once, so that what nobody sees is never
//! computed, and for one key against a tile of queries, as a bit for each.

use std::ops::Range;

use super::sees::Sees;
use super::summary::{Stairs, Summaries};
use crate::AttentionShape;

/// How much of a tile is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    /// No query sees any of its keys.
    Nothing,
    /// Some may see some.
    Part,
    /// Every query sees every key.
    All,
}

impl Sight {
    pub(super) fn by(nothing: bool, all: bool) -> Self {
        match (nothing, all) {
            (true, _) => Self::Nothing,
            (_, true) => Self::All,
            _ => Self::Part,
        }
    }
}

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
    /// For each example, its places in stretches of one document.
    Documents(Vec<Vec<Stretch>>),
    KeyLengths(Vec<usize>),
    Sees(Sees),
    And(Box<Rule>, Box<Rule>),
    Or(Box<Rule>, Box<Rule>),
}

/// Neighbouring places of one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stretch {
    /// The first place after it.
    end: usize,
    document: usize,
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
        let stretches = |ids: &Vec<usize>| {
            let mut end = 0;
            ids.chunk_by(|a, b| a == b)
                .map(|same| {
                    end += same.len();
                    Stretch {
                        end,
                        document: same[0],
                    }
                })
                .collect()
        };
        Self::Documents(ids.iter().map(stretches).collect())
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

    /// What queries of `example` see of a tile. `Part` may be said of a tile that
    /// is seen as a whole or not at all; nothing else may be wrong.
    pub(crate) fn tile(
        &self,
        shape: &AttentionShape,
        example: usize,
        queries: Range<usize>,
        keys: Range<usize>,
    ) -> Sight {
        // The places of the first and the last of each.
        let [first, last] = [queries.start, queries.end - 1].map(|i| place(shape, i));
        let (first_key, last_key) = (keys.start as i64, keys.end as i64 - 1);
        match self {
            Self::Full => Sight::All,
            Self::Causal => Sight::by(first_key > last, last_key <= first),
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
                Sight::by(
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
                Sight::by(!any, every)
            }
            Self::Strided { stride } => {
                let stride = *stride as i64;
                let (least, most) = (first - last_key, last - first_key);
                let below = most.div_euclid(stride) * stride;
                Sight::by(
                    below < least,
                    stride == 1 || (least == most && below == least),
                )
            }
            Self::Global(places) => {
                let seen = within(places, &keys).len();
                let seeing = within(places, &as_keys(first, last)).len();
                Sight::by(
                    seen + seeing == 0,
                    seen == keys.len() || seeing == queries.len(),
                )
            }
            Self::Documents(stretches) => {
                let stretches = &stretches[example];
                let own = overlapping(stretches, &as_keys(first, last));
                let others = overlapping(stretches, &keys);
                // Mostly one or two of each.
                let meets = |a: &Stretch| others.iter().any(|b| a.document == b.document);
                let one = |stretches: &[Stretch]| {
                    let documents = stretches.iter().map(|stretch| stretch.document);
                    documents
                        .clone()
                        .all(|id| Some(id) == documents.clone().next())
                };
                let any = own.iter().any(meets);
                Sight::by(!any, any && first >= 0 && one(own) && one(others))
            }
            Self::KeyLengths(lengths) => {
                let length = lengths[example];
                Sight::by(keys.start >= length, keys.end <= length)
            }
            Self::Sees(sees) => sees.tile(first..last + 1, first_key..last_key + 1),
            Self::And(a, b) => match a.tile(shape, example, queries.clone(), keys.clone()) {
                Sight::Nothing => Sight::Nothing,
                Sight::All => b.tile(shape, example, queries, keys),
                Sight::Part => match b.tile(shape, example, queries, keys) {
                    Sight::Nothing => Sight::Nothing,
                    _ => Sight::Part,
                },
            },
            Self::Or(a, b) => {
                let a = a.tile(shape, example, queries.clone(), keys.clone());
                let b = b.tile(shape, example, queries, keys);
                Sight::by(
                    a == Sight::Nothing && b == Sight::Nothing,
                    a == Sight::All || b == Sight::All,
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
            Self::Documents(stretches) => {
                let stretches = &stretches[example];
                let own = as_keys(first, first + queries.len() as i64 - 1);
                let document = overlapping(stretches, &(key..key + 1))[0].document;
                let from = stretches.partition_point(|stretch| stretch.end <= own.start);
                let mut begin = if from == 0 {
                    0
                } else {
                    stretches[from - 1].end
                };
                let mut seen = 0;
                for stretch in overlapping(stretches, &own) {
                    if stretch.document == document {
                        seen |= at(begin as i64..stretch.end as i64);
                    }
                    begin = stretch.end;
                }
                seen
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
) -> Sight {
    let [left, right] = sides.map(|side| side as i64);
    Sight::by(
        first_key > last.saturating_add(right) || last_key < first.saturating_sub(left),
        last_key <= first.saturating_add(right) && first_key >= last.saturating_sub(left),
    )
}

/// The places from `first` to `last` that are keys.
fn as_keys(first: i64, last: i64) -> Range<usize> {
    first.max(0) as usize..(last + 1).max(0) as usize
}

/// Those of some sorted numbers that lie in a range.
fn within<'a>(sorted: &'a [usize], range: &Range<usize>) -> &'a [usize] {
    let start = sorted.partition_point(|&x| x < range.start);
    let end = sorted.partition_point(|&x| x < range.end);
    &sorted[start..end.max(start)]
}

/// Those stretches that have a place in a range.
fn overlapping<'a>(stretches: &'a [Stretch], range: &Range<usize>) -> &'a [Stretch] {
    if range.is_empty() {
        return &[];
    }
    let start = stretches.partition_point(|stretch| stretch.end <= range.start);
    let end = stretches.partition_point(|stretch| stretch.end < range.end);
    &stretches[start..stretches.len().min(end + 1)]
}

fn sorted(numbers: &[usize]) -> Vec<usize> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// All bits from `place` on.
pub(super) fn bits_from(place: i64) -> u64 {
    match place {
        ..=0 => u64::MAX,
        1..=63 => u64::MAX << place,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::Steps;
    use super::*;
    use crate::Pattern;

    fn shape(seq_q: usize, seq_k: usize) -> AttentionShape {
        AttentionShape {
            batch: 2,
            heads: 1,
            kv_heads: 1,
            seq_q,
            seq_k,
            d_head: 1,
            d_value: 1,
        }
    }

    const DOCUMENTS: [[usize; 12]; 2] = [
        [3, 3, 3, 3, 0, 0, 0, 1, 1, 3, 3, 2],
        [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1],
    ];

    /// The rule said one pair at a time, by its definition.
    fn sees(rule: &Rule, shape: &AttentionShape, example: usize, i: usize, j: usize) -> bool {
        let (at, key) = (i as i64 + shape.seq_k as i64 - shape.seq_q as i64, j as i64);
        match rule {
            Rule::Full => true,
            Rule::Causal => key <= at,
            Rule::Window { left, right } => {
                let (left, right) = (*left as i128, *right as i128);
                let (at, key) = (i128::from(at), i128::from(key));
                (at - left..=at + right).contains(&key)
            }
            Rule::Block { size } => at >= 0 && at as usize / size == j / size,
            Rule::Blocks { size, seen } => {
                at >= 0 && seen[at as usize / size].contains(&(j / size))
            }
            Rule::Strided { stride } => (at - key) % *stride as i64 == 0,
            Rule::Monotonic { window } => i.abs_diff(j) <= *window,
            Rule::Summaries(Summaries { block, summary }) => j % block + summary >= *block,
            Rule::Stairs(Stairs { rise, run, seen }) => match seen {
                Steps::Before => j / run < i / rise,
                Steps::Others => j / run != i / rise,
            },
            Rule::Global(places) => places.iter().any(|&place| place == j || place as i64 == at),
            Rule::Documents(_) => {
                let ids = DOCUMENTS[example];
                at >= 0 && ids[at as usize] == ids[j]
            }
            Rule::KeyLengths(lengths) => j < lengths[example],
            Rule::Sees(sees) => sees.one(at, key),
            Rule::And(a, b) => sees(a, shape, example, i, j) && sees(b, shape, example, i, j),
            Rule::Or(a, b) => sees(a, shape, example, i, j) || sees(b, shape, example, i, j),
        }
    }

    fn rules(seq_k: usize) -> Vec<Rule> {
        let window = |left, right| Rule::Window { left, right };
        let lengths = || Rule::KeyLengths(vec![seq_k.min(7), 0]);
        let some_blocks = |size: usize| {
            let blocks = seq_k.div_ceil(size);
            let seen = |own: usize| vec![(own * 7 + 3) % blocks, own / 2];
            Rule::blocks(size, &(0..blocks).map(seen).collect::<Vec<_>>())
        };
        let documents = DOCUMENTS.map(|ids| ids[..seq_k].to_vec());
        let summaries = |block, summary| Rule::Summaries(Summaries { block, summary });
        let stairs = |rise, run, seen| Rule::Stairs(Stairs { rise, run, seen });
        let odd = || Pattern::sees(|query, key| (query ^ key) & 1 == 1).rule();
        vec![
            Rule::Full,
            Rule::Causal,
            window(0, 0),
            window(3, 1),
            window(usize::MAX >> 1, 2),
            Rule::Block { size: 1 },
            Rule::Block { size: 4 },
            some_blocks(1),
            some_blocks(3),
            Rule::Strided { stride: 1 },
            Rule::Strided { stride: 4 },
            summaries(1, 1),
            summaries(4, 1),
            summaries(5, 3),
            summaries(3, 0),
            summaries(3, 7),
            Rule::Monotonic { window: 0 },
            Rule::Monotonic { window: 2 },
            Rule::Monotonic {
                window: usize::MAX >> 2,
            },
            stairs(1, 1, Steps::Before),
            stairs(4, 2, Steps::Before),
            stairs(1, 1, Steps::Others),
            stairs(3, 2, Steps::Others),
            stairs(2, 5, Steps::Others),
            Rule::global(&[3, 0]),
            Rule::global(&[]),
            Rule::documents(&documents),
            lengths(),
            Rule::Causal.and(lengths()),
            Rule::Or(Box::new(window(2, 0)), Box::new(lengths())),
            odd(),
            odd().and(window(3, 1)),
        ]
    }

    #[test]
    fn bits_and_tiles_agree_with_the_definition() {
        for (seq_q, seq_k) in [(9, 9), (5, 12), (12, 5), (1, 8)] {
            let shape = shape(seq_q, seq_k);
            for rule in rules(seq_k) {
                for example in 0..2 {
                    for (tile_q, tile_k) in [(1, 1), (4, 3), (64, 64)] {
                        for i0 in (0..seq_q).step_by(tile_q) {
                            for j0 in (0..seq_k).step_by(tile_k) {
                                let queries = i0..seq_q.min(i0 + tile_q);
                                let keys = j0..seq_k.min(j0 + tile_k);
                                judge(&rule, &shape, example, queries, keys);
                            }
                        }
                    }
                }
            }
        }
    }

    fn judge(
        rule: &Rule,
        shape: &AttentionShape,
        example: usize,
        queries: Range<usize>,
        keys: Range<usize>,
    ) {
        let mut count = 0;
        for key in keys.clone() {
            let bits = rule.seen(shape, example, queries.clone(), key);
            for (bit, query) in queries.clone().enumerate() {
                let wanted = sees(rule, shape, example, query, key);
                assert_eq!(bits >> bit & 1 == 1, wanted, "{rule:?} {query} {key}");
                count += usize::from(wanted);
            }
        }
        let said = rule.tile(shape, example, queries.clone(), keys.clone());
        match said {
            Sight::Nothing => assert_eq!(count, 0, "{rule:?} {queries:?} {keys:?}"),
            Sight::All => assert_eq!(count, queries.len() * keys.len(), "{rule:?}"),
            Sight::Part => {}
        }
        // A single pair of a simple rule is never a matter of opinion.
        if queries.len() * keys.len() == 1 && !matches!(rule, Rule::And(..) | Rule::Or(..)) {
            assert_ne!(said, Sight::Part, "{rule:?} {queries:?} {keys:?}");
        }
    }

    /// An example's own places make a difference only where the rule says so.
    #[test]
    fn rules_of_all_examples_are_known_as_such() {
        for rule in rules(9) {
            let of = |example| {
                let mut hidden = Vec::new();
                rule.write_hidden(&shape(9, 9), example, [0..9, 0..9], &mut hidden);
                hidden
            };
            assert_eq!(of(0) != of(1), rule.depends_on_example(), "{rule:?}");
        }
    }
}
