//! The tiles of the score matrix that anybody sees: what a tiled mechanism computes.

use std::ops::Range;
use std::sync::Arc;

use super::Pattern;
use super::coverage::Coverage;
use super::rule::Rule;
use crate::AttentionShape;
use crate::kept::Kept;

/// Which tiles of a score matrix are computed, and which of these need a mask.
///
/// Tiles that nobody sees are not in it; neighbours that are alike are one entry. Its
/// size follows what is seen, not the square of the length.
#[derive(Debug, Clone, PartialEq)]
pub struct TilePlan {
    /// Queries and keys in a tile; the last of each may have fewer.
    tile: [usize; 2],
    /// Queries and keys.
    seq: [usize; 2],
    /// One for each example, or one for all if they are alike.
    examples: Vec<Rows>,
}

#[derive(Debug, Clone, PartialEq)]
struct Rows {
    runs: Vec<TileRun>,
    /// Where each row's runs end.
    ends: Vec<usize>,
}

/// Neighbouring tiles of one row that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileRun {
    /// The tiles, counted along the keys.
    pub tiles: Range<usize>,
    /// Whether every query sees every key in them; otherwise some may be hidden.
    pub is_whole: bool,
}

impl Pattern {
    /// The tiles of `tile[0]` queries by `tile[1]` keys that are seen.
    ///
    /// What a mask hides (`KeyPadding`, `Dense`) is not looked at: under it, tiles
    /// are neither left out nor whole.
    ///
    /// # Panics
    ///
    /// If a part of the pattern does not fit `shape`, or a size is zero.
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
            "{op}: tiles must have a size, got {tile:?}"
        );
        assert!(
            ![shape.batch, shape.seq_q, shape.seq_k].contains(&0),
            "{op}: no size may be zero, got {shape:?}"
        );
        self.check(op, shape);
        let mut plan = TilePlan::of_each_example(&self.rule(), shape, tile);
        if self.needs_a_tensor() {
            for rows in &mut plan.examples {
                for run in &mut rows.runs {
                    run.is_whole = false;
                }
            }
        }
        plan
    }
}

impl TilePlan {
    fn of_each_example(rule: &Rule, shape: &AttentionShape, tile: [usize; 2]) -> Self {
        let examples = rule.different_examples(shape);
        let rows = |example| {
            Rows::new(shape, tile, |queries, keys| {
                rule.tile(shape, example, queries, keys)
            })
        };
        Self {
            tile,
            seq: [shape.seq_q, shape.seq_k],
            examples: (0..examples).map(rows).collect(),
        }
    }

    /// One for all examples together: a tile is left out, or whole, if it is so for
    /// each of them.
    fn of_all_examples(rule: &Rule, shape: &AttentionShape, tile: [usize; 2]) -> Self {
        let examples = rule.different_examples(shape);
        let rows = Rows::new(shape, tile, |queries, keys| {
            (0..examples)
                .map(|example| rule.tile(shape, example, queries.clone(), keys.clone()))
                .reduce(|a, b| if a == b { a } else { Coverage::Partial })
                .unwrap_or(Coverage::Masked)
        });
        Self {
            tile,
            seq: [shape.seq_q, shape.seq_k],
            examples: vec![rows],
        }
    }

    /// The share of the score matrix that is computed, over all examples.
    pub fn density(&self) -> f64 {
        let each = (0..self.examples.len()).map(|example| self.density_of(example));
        each.sum::<f64>() / self.examples.len() as f64
    }

    /// The share that is computed of one example.
    pub(super) fn density_of(&self, example: usize) -> f64 {
        let of_row = |row: usize| {
            let [_, width] = self.tile;
            let end_of = |tile: usize| (tile * width).min(self.seq[1]);
            let of_run = |run: &TileRun| end_of(run.tiles.end) - end_of(run.tiles.start);
            let keys: usize = self.runs(example, row).iter().map(of_run).sum();
            self.queries(row).len() * keys
        };
        let computed: usize = (0..self.rows()).map(of_row).sum();
        computed as f64 / (self.seq[0] * self.seq[1]) as f64
    }

    /// Rows of tiles.
    pub fn rows(&self) -> usize {
        self.seq[0].div_ceil(self.tile[0])
    }

    /// The queries of a row of tiles.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn queries(&self, row: usize) -> Range<usize> {
        assert!(row < self.rows(), "tile plan: there is no row {row}");
        let start = row * self.tile[0];
        start..self.seq[0].min(start + self.tile[0])
    }

    /// The tiles of a row, neighbours that are alike together. Where all examples are
    /// alike, any is the first.
    ///
    /// # Panics
    ///
    /// If there is no such example or row.
    pub fn runs(&self, example: usize, row: usize) -> &[TileRun] {
        let rows = match self.examples.as_slice() {
            [all] => all,
            each => &each[example],
        };
        let start = if row == 0 { 0 } else { rows.ends[row - 1] };
        &rows.runs[start..rows.ends[row]]
    }

    /// The keys of each tile of a row, and whether all of it is seen.
    ///
    /// # Panics
    ///
    /// If there is no such example or row.
    pub fn tiles(
        &self,
        example: usize,
        row: usize,
    ) -> impl Iterator<Item = (Range<usize>, bool)> + '_ {
        let [_, width] = self.tile;
        let [_, seq_k] = self.seq;
        self.runs(example, row).iter().flat_map(move |run| {
            let keys = move |tile: usize| tile * width..seq_k.min((tile + 1) * width);
            run.tiles
                .clone()
                .map(move |tile| (keys(tile), run.is_whole))
        })
    }

    pub(super) fn seq(&self) -> [usize; 2] {
        self.seq
    }

    /// The keys of some tiles.
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
        let across = shape.seq_k.div_ceil(tile_k);
        for start in (0..shape.seq_q).step_by(tile_q) {
            let queries = start..shape.seq_q.min(start + tile_q);
            let first = rows.runs.len();
            // Halves of halves: where a row is empty or full, one question is enough.
            let mut asked = Vec::new();
            asked.push(0..across);
            while let Some(tiles) = asked.pop() {
                let keys = tiles.start * tile_k..shape.seq_k.min(tiles.end * tile_k);
                match coverage(queries.clone(), keys) {
                    Coverage::Masked => {}
                    Coverage::Partial if tiles.len() > 1 => {
                        let middle = tiles.start + tiles.len() / 2;
                        asked.push(middle..tiles.end);
                        asked.push(tiles.start..middle);
                    }
                    coverage => rows.add(first, tiles, coverage == Coverage::Full),
                }
            }
            rows.ends.push(rows.runs.len());
        }
        rows
    }

    /// Adds tiles to the row whose runs begin at `first`.
    fn add(&mut self, first: usize, tiles: Range<usize>, is_whole: bool) {
        match self.runs[first..].last_mut() {
            Some(run) if run.tiles.end == tiles.start && run.is_whole == is_whole => {
                run.tiles.end = tiles.end;
            }
            _ => self.runs.push(TileRun { tiles, is_whole }),
        }
    }
}

/// Whether examples are looked at one by one or together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Examples {
    /// Bodies of a backend's own ask so.
    #[cfg_attr(
        not(any(
            feature = "flex",
            feature = "ndarray",
            feature = "tch",
            feature = "cube"
        )),
        expect(dead_code)
    )]
    Each,
    Together,
}

#[derive(PartialEq)]
struct Wanted {
    rule: Arc<Rule>,
    batch: usize,
    seq: [usize; 2],
    tile: [usize; 2],
    examples: Examples,
}

/// Plans made before. A model asks for the same few in every layer and step; key lengths change
/// with every batch and push others out.
static KEPT: Kept<Wanted, TilePlan> = Kept::new();

/// The plan of a rule, made once and kept.
pub(crate) fn kept(
    rule: &Arc<Rule>,
    shape: &AttentionShape,
    tile: [usize; 2],
    examples: Examples,
) -> Arc<TilePlan> {
    let wanted = Wanted {
        rule: Arc::clone(rule),
        batch: shape.batch,
        seq: [shape.seq_q, shape.seq_k],
        tile,
        examples,
    };
    KEPT.get(wanted, |_| match examples {
        Examples::Each => TilePlan::of_each_example(rule, shape, tile),
        Examples::Together => TilePlan::of_all_examples(rule, shape, tile),
    })
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
                    block: 4,
                    random: 1,
                    ..Default::default()
                },
                seq_k,
            ),
            Pattern::sparse_transformer(5),
            Pattern::fixed(7, 2).and(Pattern::Causal),
            Pattern::Summaries {
                block: 9,
                summary: 3,
            },
            Pattern::Monotonic { window: 5 },
            Pattern::documents([(0..seq_k).map(|j| j / 11).collect::<Vec<_>>()]),
            Pattern::prefix([9]).and(Pattern::key_lengths([seq_k - 2])),
        ]
    }

    /// Every pair of query and key that is seen is in a tile, and whole tiles hide none.
    #[test]
    fn tiles_hold_exactly_what_is_seen() {
        for (seq_q, seq_k) in [(40, 40), (23, 40), (40, 23)] {
            let shape = AttentionShape::of_sequences(1, seq_q, seq_k);
            for pattern in patterns(seq_k) {
                let plan = pattern.plan(&shape, [6, 4]);
                let mut hidden = Vec::new();
                pattern
                    .rule()
                    .write_hidden(&shape, 0, [0..seq_q, 0..seq_k], &mut hidden);
                for row in 0..plan.rows() {
                    let mut in_no_tile: Vec<usize> = (0..seq_k).collect();
                    for (keys, is_whole) in plan.tiles(0, row) {
                        in_no_tile.retain(|key| !keys.contains(key));
                        let pairs = plan
                            .queries(row)
                            .flat_map(|i| keys.clone().map(move |j| i * seq_k + j));
                        let hides = pairs.clone().any(|at| hidden[at]);
                        assert!(!(is_whole && hides), "{pattern:?} row {row} {keys:?}");
                        // A rule of one part knows exactly what nobody sees.
                        let is_simple = !matches!(pattern, Pattern::And(..) | Pattern::Or(..));
                        if is_simple {
                            let shows = pairs.clone().any(|at| !hidden[at]);
                            assert!(shows, "{pattern:?} row {row} {keys:?}");
                        }
                    }
                    for i in plan.queries(row) {
                        for &j in &in_no_tile {
                            assert!(hidden[i * seq_k + j], "{pattern:?}: {i} sees {j}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn density_is_the_share_of_what_is_computed() {
        let plan = |pattern: Pattern, n| {
            let shape = AttentionShape::of_sequences(1, n, n);
            pattern.plan(&shape, [64, 64]).density()
        };
        assert_eq!(plan(Pattern::Full, 1000), 1.0);
        assert_eq!(plan(Pattern::Causal, 640), 55.0 / 100.0);
        assert_eq!(plan(Pattern::Block { size: 64 }, 640), 0.1);
        let window = |n| plan(Pattern::Window { left: 64, right: 0 }, n);
        // Twice as long, half as dense: a window costs as much as it shows.
        assert!((window(8192) / window(16_384) - 2.0).abs() < 0.02);
    }

    /// Summaries that lie scattered are in every tile; brought together, a query computes
    /// those of the blocks before its own and no others.
    #[test]
    fn summaries_are_few_when_brought_together() {
        use crate::pattern::{Stairs, Steps};
        let n = 4096;
        let shape = AttentionShape::of_sequences(1, n, n);
        let scattered = Pattern::fixed(64, 8).and(Pattern::Causal);
        assert!(scattered.plan(&shape, [64, 64]).density() > 0.5);
        let stairs = Rule::Stairs(Stairs {
            rise: 64,
            run: 8,
            seen: Steps::Before,
        });
        let gathered = AttentionShape::of_sequences(1, n, n / 8);
        let plan = TilePlan::of_all_examples(&stairs, &gathered, [64, 64]);
        assert!((0.49..0.56).contains(&plan.density()), "{}", plan.density());
    }

    #[test]
    fn a_plan_is_as_large_as_what_it_shows() {
        let runs = |pattern: Pattern, n| {
            let plan = pattern.plan(&AttentionShape::of_sequences(1, n, n), [64, 64]);
            plan.examples[0].runs.len()
        };
        assert_eq!(runs(Pattern::Full, 65_536), 1024);
        // Before, on and none after the diagonal.
        assert!(runs(Pattern::Causal, 65_536) <= 2 * 1024);
        let (left, right) = (640, 0);
        assert!(runs(Pattern::Window { left, right }, 65_536) <= 3 * 1024);
    }

    #[test]
    fn examples_have_rows_of_their_own_or_share_them() {
        let shape = AttentionShape::of_sequences(2, 8, 8);
        let lengths = Pattern::key_lengths([8, 3]);
        let run = |tiles, is_whole| TileRun { tiles, is_whole };
        let plan = lengths.plan(&shape, [4, 4]);
        assert_eq!(plan.runs(0, 0), [run(0..2, true)]);
        assert_eq!(plan.runs(1, 0), [run(0..1, false)]);
        let together = TilePlan::of_all_examples(&lengths.rule(), &shape, [4, 4]);
        assert_eq!(together.runs(1, 1), [run(0..2, false)]);
    }

    #[test]
    fn a_plan_is_made_once() {
        let shape = AttentionShape::of_sequences(1, 77, 78);
        let ask = |examples| {
            let (left, right) = (5, 123);
            kept(
                &Arc::new(Rule::Window { left, right }),
                &shape,
                [8, 8],
                examples,
            )
        };
        assert!(Arc::ptr_eq(&ask(Examples::Each), &ask(Examples::Each)));
        assert!(!Arc::ptr_eq(&ask(Examples::Each), &ask(Examples::Together)));
    }
}
