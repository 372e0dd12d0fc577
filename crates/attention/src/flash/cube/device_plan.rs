//! The tile plan in device memory: one list of words.
//!
//! First, for each row of tiles, the index of its first run, and at the end the number of runs.
//! Then the runs, three words each: the first tile, the end, and the number of a bitmap from 1 on,
//! or 0 if the tiles are unmasked. Then the bitmaps: for each key of a tile, a bit for each query.
//! Equal tiles share a bitmap; positions outside the sequences are masked.

use std::collections::HashMap;
use std::sync::Arc;

use crate::AttentionShape;
use crate::flash::call::TiledSettings;
use crate::memo::Memo;
use crate::pattern::rule::Rule;
use crate::pattern::{Examples, cached_plan};

/// The axis of the rows of tiles of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RowAxis {
    Queries,
    Keys,
}

impl RowAxis {
    /// Queries and keys of a tile with these numbers of rows and columns.
    pub(super) fn tile(self, [rows, columns]: [usize; 2]) -> [usize; 2] {
        match self {
            Self::Queries => [rows, columns],
            Self::Keys => [columns, rows],
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlanKey {
    rule: Arc<Rule>,
    batch: usize,
    seq: [usize; 2],
    /// Queries and keys in a tile.
    tile: [usize; 2],
    row_axis: RowAxis,
    /// Rows of the plan for each row of tiles, which divide its tiles.
    splits: usize,
}

/// The words of a plan, and the offsets of its parts.
#[derive(Debug)]
pub(super) struct DevicePlan {
    pub(super) words: Vec<u32>,
    /// The stride between the rows of examples; zero if all examples have the same plan.
    pub(super) example_stride: u32,
    pub(super) runs_offset: u32,
    pub(super) bitmaps_offset: u32,
    pub(super) rows: usize,
    /// Rows of the plan for each row of tiles.
    pub(super) splits: usize,
}

impl DevicePlan {
    /// Rows of tiles of all different examples.
    pub(super) fn num_rows(&self) -> usize {
        (self.runs_offset as usize - 1).max(1)
    }

    /// Tiles in those rows that are not fully masked.
    pub(super) fn num_tiles(&self) -> usize {
        let runs = &self.words[self.runs_offset as usize..self.bitmaps_offset as usize];
        let tiles = runs.chunks_exact(3).map(|run| run[1] - run[0]);
        tiles.sum::<u32>() as usize
    }
}

/// Adjacent tiles of a row that share a bitmap: the first tile, the end, and the bitmap's number.
type Run = [u32; 3];

impl PlanKey {
    /// For tiles of these numbers of rows and columns.
    pub(super) fn new(settings: &TiledSettings, tile: [usize; 2], row_axis: RowAxis) -> Self {
        let shape = &settings.shape;
        Self {
            rule: Arc::clone(&settings.rule),
            batch: shape.batch,
            seq: [shape.seq_q, shape.seq_k],
            tile: row_axis.tile(tile),
            row_axis,
            splits: 1,
        }
    }

    /// With the tiles of each row divided over several rows of the plan.
    pub(super) fn with_splits(self, splits: usize) -> Self {
        Self { splits, ..self }
    }

    /// The plan, cached.
    pub(super) fn device_plan(&self, shape: &AttentionShape) -> Arc<DevicePlan> {
        static CACHE: Memo<PlanKey, DevicePlan> = Memo::new();
        CACHE.get(self.clone(), |key| key.build(shape))
    }

    fn build(&self, shape: &AttentionShape) -> DevicePlan {
        let [tile_q, tile_k] = self.tile;
        let plan = cached_plan(&self.rule, shape, self.tile, Examples::Each);
        let examples = self.rule.num_distinct_examples(shape);
        let rows = match self.row_axis {
            RowAxis::Queries => shape.seq_q.div_ceil(tile_q),
            RowAxis::Keys => shape.seq_k.div_ceil(tile_k),
        };
        let mut bitmaps = Bitmaps::default();
        let mut begins = Vec::with_capacity(examples * rows + 1);
        let mut runs: Vec<Run> = Vec::new();
        for example in 0..examples {
            let mut by_row: Vec<Vec<Run>> = vec![Vec::new(); rows];
            for row in 0..plan.rows() {
                let queries = plan.queries(row);
                for (keys, is_unmasked) in plan.tiles(example, row) {
                    let column = keys.start / tile_k;
                    let is_full = queries.len() == tile_q && keys.len() == tile_k;
                    let bitmap = if is_unmasked && is_full {
                        0
                    } else {
                        let bits = self.bits(shape, example, [row, column]);
                        match bitmaps.number(bits) {
                            Some(number) => number,
                            // The tile is fully masked after all.
                            None => continue,
                        }
                    };
                    let (row, tile) = match self.row_axis {
                        RowAxis::Queries => (row, column),
                        RowAxis::Keys => (column, row),
                    };
                    push_tile(&mut by_row[row], tile as u32, bitmap);
                }
            }
            for row in by_row {
                for part in split(&row, self.splits) {
                    begins.push(runs.len() as u32);
                    runs.extend(part);
                }
            }
        }
        begins.push(runs.len() as u32);
        let runs_offset = begins.len();
        let bitmaps_offset = runs_offset + 3 * runs.len();
        let mut words = begins;
        words.extend(runs.as_flattened());
        words.extend(bitmaps.words);
        DevicePlan {
            words,
            example_stride: if examples > 1 {
                (rows * self.splits) as u32
            } else {
                0
            },
            runs_offset: runs_offset as u32,
            bitmaps_offset: bitmaps_offset as u32,
            rows: rows * self.splits,
            splits: self.splits,
        }
    }

    /// For each key of a tile, the queries that attend to it; zero outside the sequences.
    fn bits(&self, shape: &AttentionShape, example: usize, [row, column]: [usize; 2]) -> Vec<u32> {
        let [tile_q, tile_k] = self.tile;
        let words = tile_q.div_ceil(32);
        let mut bits = vec![0; tile_k * words];
        let (first, end) = (row * tile_q, shape.seq_q.min((row + 1) * tile_q));
        let keys = column * tile_k..shape.seq_k.min((column + 1) * tile_k);
        for (key, words) in keys.zip(bits.chunks_mut(words)) {
            for (part, words) in words.chunks_mut(2).enumerate() {
                let start = first + 64 * part;
                if start >= end {
                    break;
                }
                let queries = start..end.min(start + 64);
                let in_sequence = u64::MAX >> (64 - queries.len());
                let visible = in_sequence & self.rule.visible_queries(shape, example, queries, key);
                let halves = [visible as u32, (visible >> 32) as u32];
                for (word, half) in words.iter_mut().zip(halves) {
                    *word = half;
                }
            }
        }
        bits
    }
}

/// Adds a tile to a row: to the last run if it continues it, else as a new run.
fn push_tile(row: &mut Vec<Run>, tile: u32, bitmap: u32) {
    match row.last_mut() {
        Some([_, end, last]) if *end == tile && *last == bitmap => *end += 1,
        _ => row.push([tile, tile + 1, bitmap]),
    }
}

/// Divides the tiles of a row into parts of about equal numbers, in order.
fn split(row: &[Run], parts: usize) -> impl Iterator<Item = Vec<Run>> {
    let tiles: u32 = row.iter().map(|[first, end, _]| end - first).sum();
    let begin = move |part: usize| (tiles as usize * part / parts) as u32;
    (0..parts).map(move |part| {
        let (begin, end) = (begin(part), begin(part + 1));
        let mut runs = Vec::new();
        let mut before = 0;
        for &[first, last, bitmap] in row {
            let count = last - first;
            let from = begin.saturating_sub(before).min(count);
            let to = end.saturating_sub(before).min(count);
            if from < to {
                runs.push([first + from, first + to, bitmap]);
            }
            before += count;
        }
        runs
    })
}

/// The distinct bitmaps of a plan.
#[derive(Default)]
struct Bitmaps {
    numbers: HashMap<Vec<u32>, u32>,
    words: Vec<u32>,
}

impl Bitmaps {
    /// The number of a bitmap from 1 on, 0 if nothing is masked, `None` if everything is.
    fn number(&mut self, bits: Vec<u32>) -> Option<u32> {
        if bits.iter().all(|&word| word == u32::MAX) {
            return Some(0);
        }
        if bits.iter().all(|&word| word == 0) {
            return None;
        }
        if let Some(&number) = self.numbers.get(&bits) {
            return Some(number);
        }
        self.words.extend(&bits);
        let number = self.numbers.len() as u32 + 1;
        self.numbers.insert(bits, number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pattern;

    /// 64 queries and 32 keys, or 32 queries and 64 keys for [`RowAxis::Keys`].
    const TILE: [usize; 2] = [64, 32];

    fn patterns(seq_k: usize) -> Vec<Pattern> {
        vec![
            Pattern::Full,
            Pattern::Causal,
            Pattern::longformer(9, [0, 70]),
            Pattern::Block { size: 40 },
            Pattern::sparse_transformer(13),
            Pattern::documents([
                (0..seq_k).map(|j| j / 50).collect::<Vec<_>>(),
                (0..seq_k).map(|j| j / 64).collect(),
            ]),
            Pattern::Causal.and(Pattern::key_lengths([seq_k, 3])),
            Pattern::key_lengths([0, 1]),
        ]
    }

    /// For each pair of query and key of an example, how often the kernels would compute it.
    fn read(plan: &DevicePlan, row_axis: RowAxis, example: usize, seq: [usize; 2]) -> Vec<u32> {
        let [tile_q, tile_k] = row_axis.tile(TILE);
        let words = tile_q.div_ceil(32);
        let mut counts = vec![0; seq[0] * seq[1]];
        for row in 0..plan.rows {
            let index = example * plan.example_stride as usize + row;
            let row = row / plan.splits;
            for run in plan.words[index]..plan.words[index + 1] {
                let run = &plan.words[plan.runs_offset as usize + 3 * run as usize..][..3];
                for tile in run[0]..run[1] {
                    let (row_q, row_k) = match row_axis {
                        RowAxis::Queries => (row, tile as usize),
                        RowAxis::Keys => (tile as usize, row),
                    };
                    for pair in 0..tile_q * tile_k {
                        let (query_in, key_in) = (pair / tile_k, pair % tile_k);
                        let is_visible = run[2] == 0 || {
                            let bitmap = (run[2] as usize - 1) * words * tile_k;
                            let offset = plan.bitmaps_offset as usize + bitmap;
                            let word = plan.words[offset + key_in * words + query_in / 32];
                            word >> (query_in % 32) & 1 == 1
                        };
                        if is_visible {
                            let (query, key) = (row_q * tile_q + query_in, row_k * tile_k + key_in);
                            assert!(query < seq[0] && key < seq[1], "{query} {key}");
                            counts[query * seq[1] + key] += 1;
                        }
                    }
                }
            }
        }
        counts
    }

    #[test]
    fn device_plan_matches_the_rule() {
        for (seq_q, seq_k) in [(64, 64), (130, 100), (1, 77), (100, 65)] {
            let shape = AttentionShape::single_head(2, seq_q, seq_k);
            for pattern in patterns(seq_k) {
                let settings = TiledSettings::from_rule(shape, pattern.rule());
                for (row_axis, splits) in [
                    (RowAxis::Queries, 1),
                    (RowAxis::Queries, 3),
                    (RowAxis::Keys, 1),
                ] {
                    let key = PlanKey::new(&settings, TILE, row_axis).with_splits(splits);
                    let plan = key.device_plan(&shape);
                    for example in 0..2 {
                        let mut mask = Vec::new();
                        let all = [0..seq_q, 0..seq_k];
                        settings.rule.write_mask(&shape, example, all, &mut mask);
                        let expected: Vec<u32> = mask.iter().map(|&is| u32::from(!is)).collect();
                        let counts = read(&plan, row_axis, example, [seq_q, seq_k]);
                        assert!(
                            counts == expected,
                            "{pattern:?} {row_axis:?} {splits} {seq_q} {seq_k}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn equal_tiles_share_a_bitmap() {
        let shape = AttentionShape::single_head(1, 4096, 4096);
        let settings = TiledSettings::from_rule(shape, Pattern::Causal.rule());
        let plan = PlanKey::new(&settings, TILE, RowAxis::Queries).device_plan(&shape);
        // Each row has two tiles on the diagonal and one run before them.
        let bitmaps = plan.words.len() - plan.bitmaps_offset as usize;
        assert_eq!(bitmaps, 2 * 2 * 32);
        // A row of tiles is 64 queries and has two tiles more than the previous one.
        assert_eq!(plan.num_rows(), 64);
        assert_eq!(plan.num_tiles(), 64 * 65);
        assert!((plan.bitmaps_offset as usize) < 10 * plan.rows);
    }
}
