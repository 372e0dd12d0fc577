//! The tile plan as the device reads it: one list of words.
//!
//! First, for each row of tiles, where its runs begin, and where the last one's end. Then
//! the runs, three words each: the first tile, the first one after it, and the number of a
//! bitmap from 1 on, or 0 if everything in it is seen. Then the bitmaps, for each key of a
//! tile a bit for each query. Tiles that are alike share a bitmap; what lies outside the
//! sequences is hidden.

use std::collections::HashMap;
use std::sync::Arc;

use super::layout::Layout;
use crate::AttentionShape;
use crate::kept::Kept;
use crate::pattern::rule::Rule;
use crate::pattern::{Examples, kept};

/// What goes down the tiles of a kernel; the other goes across.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Rowwise {
    /// A row of tiles is a tile of queries.
    Queries,
    /// A row of tiles is a tile of keys.
    Keys,
}

impl Rowwise {
    pub(super) fn tile(self, layout: Layout) -> [usize; 2] {
        match self {
            Self::Queries => [layout.down(), layout.across()],
            Self::Keys => [layout.across(), layout.down()],
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    rule: Arc<Rule>,
    batch: usize,
    seq: [usize; 2],
    /// Queries and keys in a tile.
    tile: [usize; 2],
    rowwise: Rowwise,
}

/// The words, and where in them what begins.
#[derive(Debug)]
pub(super) struct PlanWords {
    pub(super) words: Vec<u32>,
    /// How far the rows of an example lie from those of the next; zero if they are alike.
    pub(super) per_example: u32,
    pub(super) runs_at: u32,
    pub(super) bitmaps_at: u32,
    pub(super) rows: usize,
}

#[cfg(any(feature = "autotune", test))]
impl PlanWords {
    /// Rows of tiles of all examples that differ.
    pub(super) fn all_rows(&self) -> usize {
        (self.runs_at as usize - 1).max(1)
    }

    /// Tiles that are computed in them.
    pub(super) fn tiles(&self) -> usize {
        let runs = &self.words[self.runs_at as usize..self.bitmaps_at as usize];
        let tiles = runs.chunks_exact(3).map(|run| run[1] - run[0]);
        tiles.sum::<u32>() as usize
    }
}

/// Some tiles of a row, and their bitmap.
type Run = [u32; 3];

impl Wanted {
    pub(super) fn new(
        rule: &Arc<Rule>,
        shape: &AttentionShape,
        layout: Layout,
        rowwise: Rowwise,
    ) -> Self {
        Self {
            rule: Arc::clone(rule),
            batch: shape.batch,
            seq: [shape.seq_q, shape.seq_k],
            tile: rowwise.tile(layout),
            rowwise,
        }
    }

    /// The words, made once and kept.
    pub(super) fn words(&self, shape: &AttentionShape) -> Arc<PlanWords> {
        static KEPT: Kept<Wanted, PlanWords> = Kept::new();
        KEPT.get(self.clone(), |wanted| wanted.write(shape))
    }

    fn write(&self, shape: &AttentionShape) -> PlanWords {
        let [tile_q, tile_k] = self.tile;
        let plan = kept(&self.rule, shape, self.tile, Examples::Each);
        let examples = self.rule.different_examples(shape);
        let rows = match self.rowwise {
            Rowwise::Queries => shape.seq_q.div_ceil(tile_q),
            Rowwise::Keys => shape.seq_k.div_ceil(tile_k),
        };
        let mut bitmaps = Bitmaps::default();
        let mut begins = Vec::with_capacity(examples * rows + 1);
        let mut runs: Vec<Run> = Vec::new();
        for example in 0..examples {
            let mut by_row: Vec<Vec<Run>> = vec![Vec::new(); rows];
            for row in 0..plan.rows() {
                let queries = plan.queries(row);
                for (keys, is_whole) in plan.tiles(example, row) {
                    let column = keys.start / tile_k;
                    let is_full = queries.len() == tile_q && keys.len() == tile_k;
                    let bitmap = if is_whole && is_full {
                        0
                    } else {
                        let bits = self.bits(shape, example, [row, column]);
                        match bitmaps.number(bits) {
                            Some(number) => number,
                            // Nobody sees anything after all.
                            None => continue,
                        }
                    };
                    let (row, at) = match self.rowwise {
                        Rowwise::Queries => (row, column),
                        Rowwise::Keys => (column, row),
                    };
                    add(&mut by_row[row], at as u32, bitmap);
                }
            }
            for row in by_row {
                begins.push(runs.len() as u32);
                runs.extend(row);
            }
        }
        begins.push(runs.len() as u32);
        let runs_at = begins.len();
        let bitmaps_at = runs_at + 3 * runs.len();
        let mut words = begins;
        words.extend(runs.iter().flatten());
        words.extend(bitmaps.words);
        PlanWords {
            words,
            per_example: if examples > 1 { rows as u32 } else { 0 },
            runs_at: runs_at as u32,
            bitmaps_at: bitmaps_at as u32,
            rows,
        }
    }

    /// For each key of a tile, which queries see it; nothing outside the sequences.
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
                let some = start..end.min(start + 64);
                let there = u64::MAX >> (64 - some.len());
                let seen = there & self.rule.seen(shape, example, some, key);
                for (word, half) in words.iter_mut().zip([seen as u32, (seen >> 32) as u32]) {
                    *word = half;
                }
            }
        }
        bits
    }
}

/// Adds a tile to its row, to the last run if it goes on with it.
fn add(row: &mut Vec<Run>, at: u32, bitmap: u32) {
    match row.last_mut() {
        Some([_, end, last]) if *end == at && *last == bitmap => *end += 1,
        _ => row.push([at, at + 1, bitmap]),
    }
}

/// The different bitmaps there are.
#[derive(Default)]
struct Bitmaps {
    numbers: HashMap<Vec<u32>, u32>,
    words: Vec<u32>,
}

impl Bitmaps {
    /// The number of a bitmap from 1 on, 0 if all is seen, and nothing if nothing is.
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
    use crate::flash::cube::layout::By;

    /// Tiles of 64 by 32, the other way round for [`Rowwise::Keys`].
    const LAYOUT: Layout = Layout {
        by: By::Units,
        side: 8,
        rows: 8,
        fours: 1,
        chunk: 4,
    };

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

    /// Who sees whom in an example, read as the kernels do: a number for each pair, how
    /// often it would be computed.
    fn read(plan: &PlanWords, rowwise: Rowwise, example: usize, seq: [usize; 2]) -> Vec<u32> {
        let [tile_q, tile_k] = rowwise.tile(LAYOUT);
        let words = tile_q.div_ceil(32);
        let mut seen = vec![0; seq[0] * seq[1]];
        for row in 0..plan.rows {
            let at = example * plan.per_example as usize + row;
            for run in plan.words[at]..plan.words[at + 1] {
                let run = &plan.words[plan.runs_at as usize + 3 * run as usize..][..3];
                for tile in run[0]..run[1] {
                    let (row_q, row_k) = match rowwise {
                        Rowwise::Queries => (row, tile as usize),
                        Rowwise::Keys => (tile as usize, row),
                    };
                    for pair in 0..tile_q * tile_k {
                        let (query_in, key_in) = (pair / tile_k, pair % tile_k);
                        let is_seen = run[2] == 0 || {
                            let bitmap = (run[2] as usize - 1) * words * tile_k;
                            let at = plan.bitmaps_at as usize + bitmap;
                            let word = plan.words[at + key_in * words + query_in / 32];
                            word >> (query_in % 32) & 1 == 1
                        };
                        if is_seen {
                            // Outside the sequences this would fall.
                            let (query, key) = (row_q * tile_q + query_in, row_k * tile_k + key_in);
                            assert!(query < seq[0] && key < seq[1], "{query} {key}");
                            seen[query * seq[1] + key] += 1;
                        }
                    }
                }
            }
        }
        seen
    }

    #[test]
    fn the_device_reads_what_the_rule_says() {
        for (seq_q, seq_k) in [(64, 64), (130, 100), (1, 77), (100, 65)] {
            let shape = AttentionShape::of_sequences(2, seq_q, seq_k);
            for pattern in patterns(seq_k) {
                let rule = Arc::new(pattern.rule());
                for rowwise in [Rowwise::Queries, Rowwise::Keys] {
                    let wanted = Wanted::new(&rule, &shape, LAYOUT, rowwise);
                    let plan = wanted.words(&shape);
                    for example in 0..2 {
                        let mut hidden = Vec::new();
                        let all = [0..seq_q, 0..seq_k];
                        rule.write_hidden(&shape, example, all, &mut hidden);
                        let want: Vec<u32> = hidden.iter().map(|&is| u32::from(!is)).collect();
                        let got = read(&plan, rowwise, example, [seq_q, seq_k]);
                        assert!(got == want, "{pattern:?} {rowwise:?} {seq_q} {seq_k}");
                    }
                }
            }
        }
    }

    #[test]
    fn tiles_that_are_alike_share_a_bitmap() {
        let shape = AttentionShape::of_sequences(1, 4096, 4096);
        let rule = Arc::new(Pattern::Causal.rule());
        let plan = Wanted::new(&rule, &shape, LAYOUT, Rowwise::Queries).words(&shape);
        // Two tiles on the diagonal of each row, and one run before them.
        let bitmaps = plan.words.len() - plan.bitmaps_at as usize;
        assert_eq!(bitmaps, 2 * 2 * 32);
        // A row of tiles is 64 queries, and has two tiles more than the one before.
        assert_eq!(plan.all_rows(), 64);
        assert_eq!(plan.tiles(), 64 * 65);
        assert!((plan.bitmaps_at as usize) < 10 * plan.rows);
    }
}
