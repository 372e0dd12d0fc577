//! Gather plans: tiles of the score matrix whose queries and keys need not be contiguous.
//!
//! A pattern such as every 64th key has few visible pairs in any contiguous tile. Gathered tiles
//! contain almost only visible pairs.

use std::ops::Range;
#[cfg(feature = "tch")]
use std::sync::Arc;

use super::rule::{Rule, query_position};
#[cfg(feature = "tch")]
use super::{Examples, cached_plan};
use crate::AttentionShape;

/// The most queries in a row of gathered tiles: a bit of a `u64` for each.
pub(crate) const MAX_QUERIES: usize = 64;
/// The most keys in a gathered tile.
pub(crate) const MAX_KEYS: usize = 96;

/// Rows of queries, each with the tiles of keys that it attends to.
///
/// The rows form passes. The first pass contains every query, and no pass contains a query twice. No
/// pair of query and key is in two tiles, so that the softmax over all passes is that over the
/// visible keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GatherPlan {
    seq: [usize; 2],
    /// One entry for all heads, for each example, or for each example and head.
    heads: Vec<GatheredRows>,
}

/// The rows of one head.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GatheredRows {
    rows: Vec<GatheredRow>,
    /// The end of each pass.
    ends: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GatheredRow {
    queries: IndexList,
    tiles: Vec<GatheredTile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GatheredTile {
    keys: IndexList,
    /// For each key, a bit for each query that attends to it; empty if all do.
    visible: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct IndexList {
    indices: Vec<u32>,
    is_contiguous: bool,
}

/// Indices of queries or keys.
#[derive(Debug, Clone)]
pub(crate) enum Indices<'a> {
    Range(Range<usize>),
    List(&'a [u32]),
}

/// Queries, and keys that they may attend to.
pub(crate) struct Group {
    pub(crate) queries: Vec<u32>,
    pub(crate) keys: Vec<u32>,
}

/// The groups of one pass, and the pairs that are visible within them.
pub(crate) struct Pass {
    pub(crate) groups: Vec<Group>,
    pub(crate) rule: Rule,
    /// Whether a key at the position of the query is masked.
    pub(crate) excludes_own_position: bool,
}

impl GatherPlan {
    /// A plan for each of the rows given: one for all heads, or one for each example and head.
    ///
    /// # Panics
    ///
    /// If an index is out of range, the first pass does not contain all queries, or a pass contains
    /// a query twice. The kernels rely on this.
    pub(crate) fn new(shape: &AttentionShape, heads: Vec<GatheredRows>) -> Self {
        let [batch, num_heads, seq_q, seq_k] = shape.scores();
        assert!([1, batch, batch * num_heads].contains(&heads.len()));
        for head in &heads {
            head.check(seq_q, seq_k);
        }
        Self {
            seq: [seq_q, seq_k],
            heads,
        }
    }

    /// The pairs of all passes that their rules do not mask. No two passes may have the same pair.
    pub(crate) fn from_passes(shape: &AttentionShape, passes: &[Pass]) -> Self {
        let depends_on_example =
            |pass: &Pass| pass.rule.num_distinct_examples(shape) > 1 && shape.batch > 1;
        let examples = match passes.iter().any(depends_on_example) {
            true => shape.batch,
            false => 1,
        };
        let rows = |example: usize| {
            let mut rows = GatheredRows::default();
            for pass in passes {
                rows.add_pass(pass.rows(shape, example));
            }
            rows
        };
        Self::new(shape, (0..examples).map(rows).collect())
    }

    /// The pairs that a rule does not mask, in rows of consecutive queries.
    #[cfg(feature = "tch")]
    pub(crate) fn from_rule(shape: &AttentionShape, rule: &Arc<Rule>) -> Self {
        let plan = cached_plan(rule, shape, [MAX_QUERIES, MAX_QUERIES], Examples::Each);
        let rows = |example: usize| {
            let mut builder = RowBuilder::default();
            for row in 0..plan.rows() {
                let queries = plan.queries(row);
                let all = u64::MAX >> (MAX_QUERIES - queries.len());
                let indices: Vec<u32> = (queries.start as u32..queries.end as u32).collect();
                builder.add_queries(&indices);
                for (keys, is_full) in plan.tiles(example, row) {
                    for key in keys {
                        let visible = match is_full {
                            true => all,
                            false => rule.visible_queries(shape, example, queries.clone(), key),
                        };
                        builder.add_key(key as u32, visible & all);
                    }
                }
            }
            let mut rows = GatheredRows::default();
            rows.add_pass(builder.finish());
            rows
        };
        let examples = rule.num_distinct_examples(shape);
        Self::new(shape, (0..examples).map(rows).collect())
    }

    /// The rows of all heads, of each example, or of each example and head.
    #[cfg(feature = "tch")]
    pub(crate) fn heads(&self) -> &[GatheredRows] {
        &self.heads
    }

    /// Numbers of queries and keys.
    pub(crate) fn seq(&self) -> [usize; 2] {
        self.seq
    }

    /// The rows of `[example, head]`, of `shape`.
    pub(crate) fn head(
        &self,
        shape: &AttentionShape,
        [example, head]: [usize; 2],
    ) -> &GatheredRows {
        match self.heads.len() {
            1 => &self.heads[0],
            count if count == shape.batch => &self.heads[example],
            _ => &self.heads[example * shape.heads + head],
        }
    }
}

impl Pass {
    fn rows(&self, shape: &AttentionShape, example: usize) -> Vec<GatheredRow> {
        let mut builder = RowBuilder::default();
        for group in &self.groups {
            for queries in group.queries.chunks(MAX_QUERIES) {
                let offset = builder.add_queries(queries);
                let visible = self
                    .rule
                    .visible_pairs(shape, example, queries, &group.keys);
                for (&key, mut visible) in group.keys.iter().zip(visible) {
                    if self.excludes_own_position {
                        let own = i64::from(key) - query_position(shape, 0);
                        for (i, &query) in queries.iter().enumerate() {
                            if i64::from(query) == own {
                                visible &= !(1 << i);
                            }
                        }
                    }
                    builder.add_key(key, visible << offset);
                }
            }
        }
        builder.finish()
    }
}

/// Collects the queries of small groups in common rows.
#[derive(Default)]
pub(crate) struct RowBuilder {
    rows: Vec<GatheredRow>,
    queries: Vec<u32>,
    keys: Vec<u32>,
    visible: Vec<u64>,
}

impl RowBuilder {
    /// Adds at most [`MAX_QUERIES`] queries to the current row, or to a new one if it is full, and
    /// returns the bit of the first.
    pub(crate) fn add_queries(&mut self, queries: &[u32]) -> usize {
        assert!(queries.len() <= MAX_QUERIES);
        if self.queries.len() + queries.len() > MAX_QUERIES {
            self.finish_row();
        }
        let offset = self.queries.len();
        self.queries.extend(queries);
        offset
    }

    /// Adds a key to the current row, with the bits of the queries that attend to it.
    pub(crate) fn add_key(&mut self, key: u32, visible: u64) {
        if visible != 0 {
            self.keys.push(key);
            self.visible.push(visible);
        }
    }

    pub(crate) fn finish(mut self) -> Vec<GatheredRow> {
        self.finish_row();
        self.rows
    }

    fn finish_row(&mut self) {
        let queries = std::mem::take(&mut self.queries);
        if queries.is_empty() {
            return;
        }
        let all = u64::MAX >> (64 - queries.len());
        // Tiles of about the same size.
        let count = self.keys.len().div_ceil(MAX_KEYS).max(1);
        let size = self.keys.len().div_ceil(count).max(1);
        let tiles = self.keys.chunks(size).zip(self.visible.chunks(size));
        let tile = |(keys, visible): (&[u32], &[u64])| GatheredTile {
            keys: IndexList::new(keys.to_vec()),
            visible: match visible.iter().all(|bits| bits & all == all) {
                true => Vec::new(),
                false => visible.to_vec(),
            },
        };
        self.rows.push(GatheredRow {
            tiles: tiles.map(tile).collect(),
            queries: IndexList::new(queries),
        });
        self.keys.clear();
        self.visible.clear();
    }
}

impl GatheredRows {
    /// Adds a pass. In all but the first, rows without keys are left out.
    pub(crate) fn add_pass(&mut self, rows: Vec<GatheredRow>) {
        let is_first = self.ends.is_empty();
        let rows = rows.into_iter();
        self.rows
            .extend(rows.filter(|row| is_first || !row.tiles.is_empty()));
        self.ends.push(self.rows.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The rows of each pass.
    pub(crate) fn passes(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        (0..self.ends.len()).map(|pass| match pass {
            0 => 0..self.ends[0],
            _ => self.ends[pass - 1]..self.ends[pass],
        })
    }

    pub(crate) fn queries(&self, row: usize) -> Indices<'_> {
        self.rows[row].queries.as_indices()
    }

    /// The keys of each tile of a row, and the [bits](GatheredTile::visible) of each key, which are
    /// empty if all queries attend to all keys.
    pub(crate) fn tiles(&self, row: usize) -> impl Iterator<Item = (Indices<'_>, &[u64])> + '_ {
        let tiles = self.rows[row].tiles.iter();
        tiles.map(|tile| (tile.keys.as_indices(), tile.visible.as_slice()))
    }

    fn check(&self, seq_q: usize, seq_k: usize) {
        for (pass, rows) in self.passes().enumerate() {
            let mut is_in_pass = vec![false; seq_q];
            for row in &self.rows[rows] {
                assert!(row.queries.indices.len() <= MAX_QUERIES);
                for &query in &row.queries.indices {
                    let is_twice = std::mem::replace(&mut is_in_pass[query as usize], true);
                    assert!(!is_twice, "query {query} is twice in pass {pass}");
                }
                for tile in &row.tiles {
                    assert!((1..=MAX_KEYS).contains(&tile.keys.indices.len()));
                    assert!(tile.keys.indices.iter().all(|&key| (key as usize) < seq_k));
                    assert!([0, tile.keys.indices.len()].contains(&tile.visible.len()));
                }
            }
            assert!(pass > 0 || is_in_pass.iter().all(|is| *is));
        }
    }
}

impl IndexList {
    fn new(indices: Vec<u32>) -> Self {
        Self {
            is_contiguous: indices.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            indices,
        }
    }

    fn as_indices(&self) -> Indices<'_> {
        match self.indices.as_slice() {
            [first, ..] if self.is_contiguous => {
                let first = *first as usize;
                Indices::Range(first..first + self.indices.len())
            }
            indices => Indices::List(indices),
        }
    }
}

impl Indices<'_> {
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Range(range) => range.len(),
            Self::List(indices) => indices.len(),
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, i: usize) -> usize {
        match self {
            Self::Range(range) => range.start + i,
            Self::List(indices) => indices[i] as usize,
        }
    }

    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }

    /// The range of indices that are known to be contiguous, in a call without gathered tiles.
    #[inline(always)]
    pub(crate) fn range(&self) -> Range<usize> {
        match self {
            Self::Range(range) => range.clone(),
            Self::List(_) => unreachable!("only calls without gathered tiles need ranges"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every visible pair of the rule is in exactly one tile, and no other.
    #[test]
    fn tiles_contain_exactly_the_visible_pairs() {
        let (seq_q, seq_k) = (70, 150);
        let shape = AttentionShape::single_head(2, seq_q, seq_k);
        let rule = Rule::Causal.and(Rule::KeyLengths(vec![150, 90]));
        // The odd queries in one row, the even ones in another; a second pass has the keys from 100.
        let by_parity = |parity: u32, keys: Range<u32>| Group {
            queries: (0..seq_q as u32).filter(|i| i % 2 == parity).collect(),
            keys: keys.collect(),
        };
        let pass = |keys: Range<u32>| Pass {
            groups: (0..2)
                .map(|parity| by_parity(parity, keys.clone()))
                .collect(),
            rule: rule.clone(),
            excludes_own_position: true,
        };
        let plan = GatherPlan::from_passes(&shape, &[pass(0..100), pass(100..150)]);
        for example in 0..2 {
            let rows = plan.head(&shape, [example, 0]);
            let mut times = vec![0; seq_q * seq_k];
            for row in 0..rows.len() {
                for (keys, visible) in rows.tiles(row) {
                    for (i, key) in keys.iter().enumerate() {
                        let bits = visible.get(i).copied().unwrap_or(u64::MAX);
                        for (bit, query) in rows.queries(row).iter().enumerate() {
                            times[query * seq_k + key] += bits >> bit & 1;
                        }
                    }
                }
            }
            let mut mask = Vec::new();
            rule.write_mask(&shape, example, [0..seq_q, 0..seq_k], &mut mask);
            for (pair, times) in times.into_iter().enumerate() {
                let (query, key) = (pair / seq_k, pair % seq_k);
                let is_visible = !mask[pair] && query + seq_k - seq_q != key;
                assert_eq!(times, u64::from(is_visible), "query {query}, key {key}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "query 3 is twice in pass 0")]
    fn a_query_is_once_in_a_pass() {
        let group = |queries: &[u32]| Group {
            queries: queries.to_vec(),
            keys: vec![0],
        };
        let pass = Pass {
            groups: vec![group(&[0, 1, 2, 3]), group(&[3])],
            rule: Rule::Full,
            excludes_own_position: false,
        };
        GatherPlan::from_passes(&AttentionShape::single_head(1, 4, 4), &[pass]);
    }
}
