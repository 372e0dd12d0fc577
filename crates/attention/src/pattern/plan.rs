//! Tile plans: the tiles of the score matrix that a tiled mechanism computes.

use std::ops::Range;
use std::sync::Arc;

use super::Pattern;
use super::coverage::Coverage;
use super::rule::Rule;
use crate::AttentionShape;
use crate::memo::Memo;

/// The tiles of a score matrix that are computed, and which of these need a mask.
///
/// Masked tiles are left out, and consecutive tiles with the same coverage are one entry, so the
/// size of the plan grows with the number of runs, not with the square of the sequence length.
#[derive(Debug, Clone, PartialEq)]
pub struct TilePlan {
    /// Numbers of queries and keys in a tile; the last tiles may be smaller.
    tile: [usize; 2],
    /// Numbers of queries and keys.
    pub(super) seq: [usize; 2],
    /// One entry per example, or one for all if they are equal.
    examples: Vec<Rows>,
}

#[derive(Debug, Clone, PartialEq)]
struct Rows {
    runs: Vec<TileRun>,
    /// End of each row's runs.
    ends: Vec<usize>,
}

/// Consecutive tiles of a row with the same coverage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileRun {
    /// Tile indices along the keys.
    pub tiles: Range<usize>,
    /// Whether every query attends to every key in them; otherwise some may be masked.
    pub is_full: bool,
}

impl Pattern {
    /// The tiles of `tile[0]` queries by `tile[1]` keys that are not fully masked.
    ///
    /// Tensor masks (`KeyPadding`, `Dense`) are not read: with one, no tile is left out because of
    /// it, and none is full.
    ///
    /// # Panics
    ///
    /// If a part of the pattern does not match `shape`, or a dimension is zero.
    ///
    /// ```
    /// # use zoo_attention::{AttentionShape, Pattern};
    /// # let shape = AttentionShape {
    /// #     batch: 1, heads: 8, kv_heads: 8, seq_q: 4096, seq_k: 4096, d_head: 64, d_value: 64,
    /// # };
    /// let plan = Pattern::Window { left: 256, right: 0 }.plan(&shape, [64, 64]);
    /// assert!(plan.density() < 0.08);
    /// ```
    pub fn plan(&self, shape: &AttentionShape, tile: [usize; 2]) -> TilePlan {
        let op = "tile plan";
        assert!(
            !tile.contains(&0),
            "{op}: tile sizes must be at least 1, got {tile:?}"
        );
        assert!(
            ![shape.batch, shape.seq_q, shape.seq_k].contains(&0),
            "{op}: no dimension may be zero, got {shape:?}"
        );
        self.check(op, shape);
        let mut plan = TilePlan::new(&self.rule(), shape, tile, Examples::Each);
        if self.has_tensor_mask() {
            for run in plan.examples.iter_mut().flat_map(|rows| &mut rows.runs) {
                run.is_full = false;
            }
        }
        plan
    }
}

impl TilePlan {
    fn new(rule: &Rule, shape: &AttentionShape, tile: [usize; 2], examples: Examples) -> Self {
        let count = rule.num_distinct_examples(shape);
        // A tile is left out, or full, if it is for each of the examples.
        let rows = |examples: Range<usize>| {
            Rows::new(shape, tile, |queries, keys| {
                let coverage =
                    |example| rule.coverage(shape, example, queries.clone(), keys.clone());
                let coverages = examples.clone().map(coverage);
                coverages
                    .reduce(|a, b| if a == b { a } else { Coverage::Partial })
                    .unwrap_or(Coverage::Masked)
            })
        };
        Self {
            tile,
            seq: [shape.seq_q, shape.seq_k],
            examples: match examples {
                Examples::Each => (0..count).map(|i| rows(i..i + 1)).collect(),
                Examples::Together => vec![rows(0..count)],
            },
        }
    }

    /// The fraction of the score matrix that is computed, averaged over the examples.
    pub fn density(&self) -> f64 {
        let densities = (0..self.examples.len()).map(|example| self.density_of(example));
        densities.sum::<f64>() / self.examples.len() as f64
    }

    /// The fraction of one example's score matrix that is computed.
    pub(super) fn density_of(&self, example: usize) -> f64 {
        let of_row = |row: usize| {
            let runs = self.runs(example, row).iter();
            let keys: usize = runs.map(|run| self.keys(run).len()).sum();
            self.queries(row).len() * keys
        };
        let computed: usize = (0..self.rows()).map(of_row).sum();
        computed as f64 / (self.seq[0] * self.seq[1]) as f64
    }

    /// Number of rows of tiles.
    pub fn rows(&self) -> usize {
        self.seq[0].div_ceil(self.tile[0])
    }

    /// The queries of a row of tiles. Panics if the row is out of range.
    pub fn queries(&self, row: usize) -> Range<usize> {
        let rows = self.rows();
        assert!(row < rows, "tile plan: row must be below {rows}, got {row}");
        let start = row * self.tile[0];
        start..self.seq[0].min(start + self.tile[0])
    }

    /// The runs of tiles of a row. If all examples are equal, `example` is ignored. Panics if the
    /// example or the row is out of range.
    pub fn runs(&self, example: usize, row: usize) -> &[TileRun] {
        let rows = match self.examples.as_slice() {
            [shared] => shared,
            examples => &examples[example],
        };
        let start = if row == 0 { 0 } else { rows.ends[row - 1] };
        &rows.runs[start..rows.ends[row]]
    }

    /// The keys of each tile of a row, and whether the tile is full. Panics are those of
    /// [`runs`](Self::runs).
    pub fn tiles(
        &self,
        example: usize,
        row: usize,
    ) -> impl Iterator<Item = (Range<usize>, bool)> + '_ {
        let [_, width] = self.tile;
        let [_, seq_k] = self.seq;
        self.runs(example, row).iter().flat_map(move |run| {
            let keys = move |tile: usize| tile * width..seq_k.min((tile + 1) * width);
            run.tiles.clone().map(move |tile| (keys(tile), run.is_full))
        })
    }

    /// The keys of a run.
    pub(super) fn keys(&self, run: &TileRun) -> Range<usize> {
        let [_, width] = self.tile;
        run.tiles.start * width..self.seq[1].min(run.tiles.end * width)
    }
}

impl Rows {
    fn new(
        shape: &AttentionShape,
        [tile_q, tile_k]: [usize; 2],
        coverage: impl Fn(Range<usize>, Range<usize>) -> Coverage,
    ) -> Self {
        let mut rows = Self {
            runs: Vec::new(),
            ends: Vec::new(),
        };
        let num_tiles = shape.seq_k.div_ceil(tile_k);
        for start in (0..shape.seq_q).step_by(tile_q) {
            let queries = start..shape.seq_q.min(start + tile_q);
            let first = rows.runs.len();
            // Bisection: a row that is masked or full takes one evaluation.
            let mut pending = Vec::new();
            pending.push(0..num_tiles);
            while let Some(tiles) = pending.pop() {
                let keys = tiles.start * tile_k..shape.seq_k.min(tiles.end * tile_k);
                match coverage(queries.clone(), keys) {
                    Coverage::Masked => {}
                    Coverage::Partial if tiles.len() > 1 => {
                        let middle = tiles.start + tiles.len() / 2;
                        pending.push(middle..tiles.end);
                        pending.push(tiles.start..middle);
                    }
                    coverage => rows.add(first, tiles, coverage == Coverage::Full),
                }
            }
            rows.ends.push(rows.runs.len());
        }
        rows
    }

    /// Appends tiles to the row whose runs start at `first`, merging them with its last run.
    fn add(&mut self, first: usize, tiles: Range<usize>, is_full: bool) {
        match self.runs[first..].last_mut() {
            Some(run) if run.tiles.end == tiles.start && run.is_full == is_full => {
                run.tiles.end = tiles.end;
            }
            _ => self.runs.push(TileRun { tiles, is_full }),
        }
    }
}

/// Whether a plan has separate rows for each example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Examples {
    /// One set of rows per example.
    Each,
    /// One set of rows for the whole batch.
    Together,
}

#[derive(PartialEq)]
struct PlanKey {
    rule: Arc<Rule>,
    batch: usize,
    seq: [usize; 2],
    tile: [usize; 2],
    examples: Examples,
}

/// A model uses the same few plans in every layer and step; those with key lengths change with
/// every batch and evict others.
static MEMO: Memo<PlanKey, TilePlan> = Memo::new();

/// The plan of a rule, cached.
pub(crate) fn cached_plan(
    rule: &Arc<Rule>,
    shape: &AttentionShape,
    tile: [usize; 2],
    examples: Examples,
) -> Arc<TilePlan> {
    let key = PlanKey {
        rule: Arc::clone(rule),
        batch: shape.batch,
        seq: [shape.seq_q, shape.seq_k],
        tile,
        examples,
    };
    MEMO.get(key, |_| TilePlan::new(rule, shape, tile, examples))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(seq_k: usize) -> Vec<Pattern> {
        vec![
            Pattern::Full,
            Pattern::Causal,
            Pattern::longformer(3, [0, 17]),
            Pattern::Block { size: 7 },
            Pattern::big_bird(
                &zoo_spec::BigBird {
                    block_size: 4,
                    random: 1,
                    ..Default::default()
                },
                seq_k,
            ),
            Pattern::sparse_transformer(5),
            Pattern::fixed(7, 2).and(Pattern::Causal),
            Pattern::SummaryColumns {
                block: 9,
                summary: 3,
            },
            Pattern::Monotonic { window: 5 },
            Pattern::documents([(0..seq_k).map(|j| j / 11).collect::<Vec<_>>()]),
            Pattern::prefix([9]).and(Pattern::key_lengths([seq_k - 2])),
        ]
    }

    /// Every visible pair of query and key is in a tile, and full tiles mask none.
    #[test]
    fn tiles_contain_exactly_the_visible_pairs() {
        for (seq_q, seq_k) in [(40, 40), (23, 40), (40, 23)] {
            let shape = AttentionShape::single_head(1, seq_q, seq_k);
            for pattern in patterns(seq_k) {
                let plan = pattern.plan(&shape, [6, 4]);
                let mut mask = Vec::new();
                pattern
                    .rule()
                    .write_mask(&shape, 0, [0..seq_q, 0..seq_k], &mut mask);
                for row in 0..plan.rows() {
                    let mut in_no_tile: Vec<usize> = (0..seq_k).collect();
                    for (keys, is_full) in plan.tiles(0, row) {
                        in_no_tile.retain(|key| !keys.contains(key));
                        let pairs = plan
                            .queries(row)
                            .flat_map(|i| keys.clone().map(move |j| i * seq_k + j));
                        let any_masked = pairs.clone().any(|pair| mask[pair]);
                        assert!(!(is_full && any_masked), "{pattern:?} row {row} {keys:?}");
                        // A simple rule is exact: none of its tiles is fully masked.
                        let is_simple = !matches!(pattern, Pattern::And(..) | Pattern::Or(..));
                        if is_simple {
                            let any_visible = pairs.clone().any(|pair| !mask[pair]);
                            assert!(any_visible, "{pattern:?} row {row} {keys:?}");
                        }
                    }
                    for i in plan.queries(row) {
                        for &j in &in_no_tile {
                            assert!(mask[i * seq_k + j], "{pattern:?}: query {i}, key {j}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn density_is_the_computed_fraction() {
        let plan = |pattern: Pattern, n| {
            let shape = AttentionShape::single_head(1, n, n);
            pattern.plan(&shape, [64, 64]).density()
        };
        assert_eq!(plan(Pattern::Full, 1000), 1.0);
        assert_eq!(plan(Pattern::Causal, 640), 55.0 / 100.0);
        assert_eq!(plan(Pattern::Block { size: 64 }, 640), 0.1);
        let window = |n| plan(Pattern::Window { left: 64, right: 0 }, n);
        // A window has linear cost: half the density at twice the length.
        assert!((window(8192) / window(16_384) - 2.0).abs() < 0.02);
    }

    /// In place, summary columns touch every tile; gathered, a query computes only those of the
    /// blocks before its own.
    #[test]
    fn gathered_summary_columns_are_sparse() {
        use crate::pattern::BlockCausal;
        let n = 4096;
        let shape = AttentionShape::single_head(1, n, n);
        let scattered = Pattern::fixed(64, 8).and(Pattern::Causal);
        assert!(scattered.plan(&shape, [64, 64]).density() > 0.5);
        let block_causal = Rule::BlockCausal(BlockCausal {
            block_q: 64,
            block_k: 8,
            is_causal: true,
        });
        let gathered = AttentionShape::single_head(1, n, n / 8);
        let plan = TilePlan::new(&block_causal, &gathered, [64, 64], Examples::Together);
        assert!((0.49..0.56).contains(&plan.density()), "{}", plan.density());
    }

    #[test]
    fn plan_size_is_linear_in_the_runs() {
        let runs = |pattern: Pattern, n| {
            let plan = pattern.plan(&AttentionShape::single_head(1, n, n), [64, 64]);
            plan.examples[0].runs.len()
        };
        assert_eq!(runs(Pattern::Full, 65_536), 1024);
        // At most one full and one partial run per row.
        assert!(runs(Pattern::Causal, 65_536) <= 2 * 1024);
        let (left, right) = (640, 0);
        assert!(runs(Pattern::Window { left, right }, 65_536) <= 3 * 1024);
    }

    #[test]
    fn plans_are_per_example_or_for_the_batch() {
        let shape = AttentionShape::single_head(2, 8, 8);
        let lengths = Pattern::key_lengths([8, 3]);
        let run = |tiles, is_full| TileRun { tiles, is_full };
        let plan = lengths.plan(&shape, [4, 4]);
        assert_eq!(plan.runs(0, 0), [run(0..2, true)]);
        assert_eq!(plan.runs(1, 0), [run(0..1, false)]);
        let together = TilePlan::new(&lengths.rule(), &shape, [4, 4], Examples::Together);
        assert_eq!(together.runs(1, 1), [run(0..2, false)]);
    }

    #[test]
    fn plans_are_cached() {
        let shape = AttentionShape::single_head(1, 77, 78);
        let plan = |examples| {
            let (left, right) = (5, 123);
            cached_plan(
                &Arc::new(Rule::Window { left, right }),
                &shape,
                [8, 8],
                examples,
            )
        };
        assert!(Arc::ptr_eq(&plan(Examples::Each), &plan(Examples::Each)));
        assert!(!Arc::ptr_eq(
            &plan(Examples::Each),
            &plan(Examples::Together)
        ));
    }
}
