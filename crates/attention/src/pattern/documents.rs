//! Document masks: several documents packed into one sequence.

use std::ops::Range;

use super::coverage::{Coverage, as_keys};

/// The positions of an example as runs of one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Documents(Vec<Run>);

/// Consecutive positions of one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// The first position after the run.
    end: usize,
    document: usize,
}

impl Documents {
    /// From the document id of each position.
    pub(super) fn new(ids: &[usize]) -> Self {
        let mut end = 0;
        let runs = ids.chunk_by(|a, b| a == b).map(|same| {
            end += same.len();
            Run {
                end,
                document: same[0],
            }
        });
        Self(runs.collect())
    }

    /// The coverage of a tile: queries at the positions from `first` to `last`, and some keys.
    pub(super) fn coverage(&self, [first, last]: [i64; 2], keys: Range<usize>) -> Coverage {
        let query_runs = self.overlapping(&as_keys(first, last));
        let key_runs = self.overlapping(&keys);
        // Usually one or two of each.
        let is_visible = |a: &Run| key_runs.iter().any(|b| a.document == b.document);
        let is_one_document =
            |runs: &[Run]| runs.iter().all(|run| run.document == runs[0].document);
        let any = query_runs.iter().any(is_visible);
        let all = first >= 0 && is_one_document(query_runs) && is_one_document(key_runs);
        Coverage::new(!any, any && all)
    }

    /// The runs of a key's document that overlap a range; they may extend beyond it.
    pub(super) fn runs_of_key(
        &self,
        positions: Range<usize>,
        key: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        let document = self.overlapping(&(key..key + 1))[0].document;
        let mut start = match self.run_at(positions.start) {
            0 => 0,
            run => self.0[run - 1].end,
        };
        self.overlapping(&positions).iter().filter_map(move |run| {
            let positions = std::mem::replace(&mut start, run.end)..run.end;
            (run.document == document).then_some(positions)
        })
    }

    fn overlapping(&self, range: &Range<usize>) -> &[Run] {
        if range.is_empty() {
            return &[];
        }
        let start = self.run_at(range.start);
        let end = self.0.partition_point(|run| run.end < range.end);
        &self.0[start..self.0.len().min(end + 1)]
    }

    /// The index of the run that contains a position.
    fn run_at(&self, position: usize) -> usize {
        self.0.partition_point(|run| run.end <= position)
    }
}
