//! What of a tile is seen, by the structure of a pattern alone.
//!
//! A [`Rule`] is the part of a [`Pattern`](crate::Pattern) that needs no tensor to
//! be said. It answers for whole tiles at once, so that what nobody sees is never
//! computed, and for one key against a tile of queries, as a bit for each.

use std::ops::Range;

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

/// The structured part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    Full,
    Causal,
    Window { left: usize, right: usize },
    KeyLengths(Vec<usize>),
    And(Box<Rule>, Box<Rule>),
    Or(Box<Rule>, Box<Rule>),
}

impl Rule {
    /// What queries of `example` see of a tile. `Part` may be said of a tile that
    /// is seen as a whole or not at all; nothing else may be wrong.
    pub(crate) fn tile(
        &self,
        shape: &AttentionShape,
        example: usize,
        queries: Range<usize>,
        keys: Range<usize>,
    ) -> Sight {
        // The first and the last of each, queries by the key they are level with.
        let [first, last] = [queries.start, queries.end - 1].map(|i| level(shape, i));
        let (first_key, last_key) = (keys.start as i64, keys.end as i64 - 1);
        let by = |nothing: bool, all: bool| match (nothing, all) {
            (true, _) => Sight::Nothing,
            (_, true) => Sight::All,
            _ => Sight::Part,
        };
        match self {
            Self::Full => Sight::All,
            Self::Causal => by(first_key > last, last_key <= first),
            Self::Window { left, right } => {
                let (left, right) = (*left as i64, *right as i64);
                by(
                    first_key > last.saturating_add(right) || last_key < first.saturating_sub(left),
                    last_key <= first.saturating_add(right)
                        && first_key >= last.saturating_sub(left),
                )
            }
            Self::KeyLengths(lengths) => {
                let length = lengths[example];
                by(keys.start >= length, keys.end <= length)
            }
            Self::And(a, b) => {
                let a = a.tile(shape, example, queries.clone(), keys.clone());
                let b = b.tile(shape, example, queries, keys);
                by(
                    a == Sight::Nothing || b == Sight::Nothing,
                    a == Sight::All && b == Sight::All,
                )
            }
            Self::Or(a, b) => {
                let a = a.tile(shape, example, queries.clone(), keys.clone());
                let b = b.tile(shape, example, queries, keys);
                by(
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
        debug_assert!(queries.len() <= 64);
        let first = level(shape, queries.start);
        let key_at = key as i64;
        match self {
            Self::Full => u64::MAX,
            Self::Causal => from(key_at - first),
            Self::Window { left, right } => {
                let begin = key_at.saturating_sub(*right as i64);
                let end = key_at.saturating_add(*left as i64).saturating_add(1);
                from(begin.saturating_sub(first)) & !from(end.saturating_sub(first))
            }
            Self::KeyLengths(lengths) if key < lengths[example] => u64::MAX,
            Self::KeyLengths(_) => 0,
            Self::And(a, b) => {
                a.seen(shape, example, queries.clone(), key) & b.seen(shape, example, queries, key)
            }
            Self::Or(a, b) => {
                a.seen(shape, example, queries.clone(), key) | b.seen(shape, example, queries, key)
            }
        }
    }
}

/// The key a query is level with: the last query with the last key.
fn level(shape: &AttentionShape, query: usize) -> i64 {
    query as i64 + shape.seq_k as i64 - shape.seq_q as i64
}

/// All bits from `place` on.
fn from(place: i64) -> u64 {
    match place {
        ..=0 => u64::MAX,
        1..=63 => u64::MAX << place,
        _ => 0,
    }
}

/// A bool mask on the host, `true` where hidden.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hidden<'a> {
    /// A byte a place, zero where seen.
    pub(crate) bytes: &'a [u8],
    /// How far apart `[batch, heads, seq_q, seq_k]` lie; zero where one stands for all.
    pub(crate) strides: [usize; 4],
}

impl<'a> Hidden<'a> {
    /// A mask of `dims`, row by row, any of them 1 to stand for all.
    pub(crate) fn new(bytes: &'a [u8], dims: [usize; 4]) -> Self {
        let mut strides = [0; 4];
        let mut stride = 1;
        for dim in (0..4).rev() {
            if dims[dim] > 1 {
                strides[dim] = stride;
            }
            stride *= dims[dim];
        }
        Self { bytes, strides }
    }
}

/// Everything that says who sees whom: a rule, and a mask that hides more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sights<'a> {
    pub(crate) shape: &'a AttentionShape,
    pub(crate) rule: &'a Rule,
    pub(crate) hidden: Option<Hidden<'a>>,
}

impl Sights<'_> {
    /// What queries of `[example, head]` see of a tile.
    pub(crate) fn tile(
        &self,
        [example, _]: [usize; 2],
        queries: Range<usize>,
        keys: Range<usize>,
    ) -> Sight {
        match (
            self.rule.tile(self.shape, example, queries, keys),
            self.hidden,
        ) {
            (Sight::All, Some(_)) => Sight::Part,
            (sight, _) => sight,
        }
    }

    /// Which of up to 64 queries of `[example, head]` see a key.
    pub(crate) fn seen(
        &self,
        [example, head]: [usize; 2],
        queries: Range<usize>,
        key: usize,
    ) -> u64 {
        let mut seen = self.rule.seen(self.shape, example, queries.clone(), key);
        if let Some(Hidden { bytes, strides }) = self.hidden {
            let column = example * strides[0] + head * strides[1] + key * strides[3];
            for (bit, query) in queries.enumerate() {
                if bytes[column + query * strides[2]] != 0 {
                    seen &= !(1 << bit);
                }
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// The rule said one pair at a time, by its definition.
    fn sees(rule: &Rule, shape: &AttentionShape, example: usize, i: usize, j: usize) -> bool {
        let (at, j) = (i as i64 + shape.seq_k as i64 - shape.seq_q as i64, j as i64);
        match rule {
            Rule::Full => true,
            Rule::Causal => j <= at,
            Rule::Window { left, right } => {
                let (left, right) = (*left as i128, *right as i128);
                let (at, j) = (i128::from(at), i128::from(j));
                (at - left..=at + right).contains(&j)
            }
            Rule::KeyLengths(lengths) => j < lengths[example] as i64,
            Rule::And(a, b) => {
                sees(a, shape, example, i, j as usize) && sees(b, shape, example, i, j as usize)
            }
            Rule::Or(a, b) => {
                sees(a, shape, example, i, j as usize) || sees(b, shape, example, i, j as usize)
            }
        }
    }

    fn rules() -> Vec<Rule> {
        let window = |left, right| Rule::Window { left, right };
        let lengths = || Rule::KeyLengths(vec![7, 0]);
        vec![
            Rule::Full,
            Rule::Causal,
            window(0, 0),
            window(3, 1),
            window(usize::MAX >> 1, 2),
            lengths(),
            Rule::And(Box::new(Rule::Causal), Box::new(lengths())),
            Rule::Or(Box::new(window(2, 0)), Box::new(lengths())),
        ]
    }

    #[test]
    fn bits_and_tiles_agree_with_the_definition() {
        for (seq_q, seq_k) in [(9, 9), (5, 12), (12, 5), (1, 8)] {
            let shape = shape(seq_q, seq_k);
            for rule in rules() {
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

    #[test]
    fn a_mask_hides_from_all_where_one_stands_for_all() {
        // [batch 2, heads 1, seq_q 1, seq_k 3]
        let hidden = Hidden::new(&[0, 1, 0, 1, 0, 0], [2, 1, 1, 3]);
        let shape = shape(4, 3);
        let sights = Sights {
            shape: &shape,
            rule: &Rule::Full,
            hidden: Some(hidden),
        };
        assert_eq!(sights.seen([0, 0], 0..4, 1) & 0b1111, 0);
        assert_eq!(sights.seen([0, 0], 0..4, 2) & 0b1111, 0b1111);
        assert_eq!(sights.seen([1, 0], 0..4, 0) & 0b1111, 0);
        assert_eq!(sights.tile([0, 0], 0..4, 0..3), Sight::Part);
    }
}
