//! The queries whose attention weights are shown: all of a short text, or a selection.

use std::ops::RangeInclusive;
use std::str::FromStr;

use zoo_viz::units::count;

use crate::{Result, TrainError};

/// Weights that a page shows without a selection, about 3 bytes each.
const MAX_WEIGHTS: usize = 6_000_000;
/// Weights that can be selected.
const MAX_SELECTED_WEIGHTS: usize = 60_000_000;

/// A selection of queries by position, such as `1,5,100-120`, counted from 1. The default is all
/// queries, or evenly spaced ones of a text that is too long for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Queries(Vec<RangeInclusive<usize>>);

impl FromStr for Queries {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let [first, last] = [first, last].map(|number| number.trim().parse::<usize>().ok());
            first
                .zip(last)
                .filter(|(first, last)| 1 <= *first && first <= last)
        };
        let ranges = text.split(',').map(|part| match range(part) {
            Some((first, last)) => Ok(first..=last),
            None => Err(format!(
                "expected positions from 1 such as 1,5,100-120, got {part:?}"
            )),
        });
        ranges.collect::<Result<_, _>>().map(Self)
    }
}

impl Queries {
    /// Whether the default is not changed.
    pub(crate) fn is_default(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that at least one position is in one of the sequences.
    pub(crate) fn check(&self, lengths: &[usize]) -> Result<()> {
        let longest = lengths.iter().copied().max().unwrap_or_default();
        if self.is_default() || self.0.iter().any(|range| *range.start() <= longest) {
            return Ok(());
        }
        Err(TrainError::Refused(format!(
            "--queries selects none of {} tokens\n  help: positions are counted from 1, such as \
             --queries 1-{}",
            count(longest),
            count(longest.min(16)),
        )))
    }

    /// The selected rows of a sequence, from 0, with a note if they are not all. A sequence without
    /// a selected position is shown as by default. `heads` are those of all layers.
    pub(crate) fn rows(
        &self,
        sequence: &str,
        [length, keys]: [usize; 2],
        heads: usize,
        notes: &mut Vec<String>,
    ) -> Result<Vec<usize>> {
        let mut rows = vec![];
        for range in &self.0 {
            let end = (*range.end()).min(length);
            let new = (range.start() - 1..end).filter(|row| !rows.contains(row));
            rows.extend(new.collect::<Vec<_>>());
        }
        let per_query = (heads * keys).max(1);
        let shown = match rows.len() {
            0 => {
                let most = (MAX_WEIGHTS / per_query).clamp(1, length);
                rows = spaced(length, most);
                "evenly spaced"
            }
            selected if selected.saturating_mul(per_query) > MAX_SELECTED_WEIGHTS => {
                return Err(TrainError::Refused(format!(
                    "--queries selects {} queries of {} keys in {heads} heads; a page can show {} \
                     of them\n  help: select fewer",
                    count(selected),
                    count(keys),
                    count(MAX_SELECTED_WEIGHTS / per_query)
                )));
            }
            _ => "selected",
        };
        if rows.len() < length {
            let (shown_count, all) = (count(rows.len()), count(length));
            notes.push(format!(
                "{sequence}: {shown_count} of {all} queries, {shown}; --queries selects others"
            ));
        }
        Ok(rows)
    }
}

/// Up to `most` of `length` positions, with the first and the last.
fn spaced(length: usize, most: usize) -> Vec<usize> {
    match most {
        _ if most >= length => (0..length).collect(),
        1 => vec![length - 1],
        _ => (0..most).map(|i| i * (length - 1) / (most - 1)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(queries: &str, length: usize, keys: usize, heads: usize) -> (Vec<usize>, String) {
        let queries: Queries = match queries {
            "" => Queries::default(),
            queries => queries.parse().unwrap(),
        };
        let mut notes = vec![];
        let rows = queries.rows("source", [length, keys], heads, &mut notes);
        (rows.unwrap(), notes.concat())
    }

    #[test]
    fn positions_are_selected_in_order_and_once() {
        let (selected, note) = rows("3,1-2,2-4", 9, 9, 1);
        assert_eq!(selected, [2, 0, 1, 3]);
        assert_eq!(
            note,
            "source: 4 of 9 queries, selected; --queries selects others"
        );
        // Positions beyond the end; a sequence without any is shown as by default.
        assert_eq!(rows("2-900", 4, 4, 1).0, [1, 2, 3]);
        assert_eq!(rows("7", 3, 3, 1), (vec![0, 1, 2], String::new()));
        let error = "7"
            .parse::<Queries>()
            .unwrap()
            .check(&[3, 6])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("--queries selects none of 6 tokens"),
            "{error}"
        );
        for wrong in ["", "0", "3-1", "a", "1,,2", "1-2-3"] {
            let error = wrong.parse::<Queries>().unwrap_err();
            assert!(error.contains("such as 1,5,100-120"), "{wrong}: {error}");
        }
    }

    #[test]
    fn long_texts_show_evenly_spaced_queries() {
        let (all, note) = rows("", 200, 200, 48);
        assert_eq!((all.len(), note.as_str()), (200, ""));
        let (some, note) = rows("", 5000, 5000, 48);
        assert_eq!((some.len(), some[0], some[24]), (25, 0, 4999));
        assert!(
            note.starts_with("source: 25 of 5,000 queries, evenly spaced"),
            "{note}"
        );
        assert_eq!(rows("", 10_000_000, 10_000_000, 48).0, [9_999_999]);
        let all: Queries = "1-5000".parse().unwrap();
        let error = all
            .rows("source", [5000, 5000], 48, &mut vec![])
            .unwrap_err();
        let expected =
            "--queries selects 5,000 queries of 5,000 keys in 48 heads; a page can show 250";
        assert!(error.to_string().contains(expected), "{error}");
    }
}
