//! Several documents in one sequence, each of which sees itself alone.

use std::ops::Range;

use super::coverage::{Coverage, as_keys};

/// The places of an example, in stretches of one document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Documents(Vec<Stretch>);

/// Neighbouring places of one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Stretch {
    /// The first place after it.
    end: usize,
    document: usize,
}

impl Documents {
    /// From the document of each place.
    pub(super) fn new(ids: &[usize]) -> Self {
        let mut end = 0;
        let stretches = ids.chunk_by(|a, b| a == b).map(|same| {
            end += same.len();
            Stretch {
                end,
                document: same[0],
            }
        });
        Self(stretches.collect())
    }

    /// What queries at the places from `first` to `last` see of some keys.
    pub(super) fn tile(&self, [first, last]: [i64; 2], keys: Range<usize>) -> Coverage {
        let own = self.overlapping(&as_keys(first, last));
        let others = self.overlapping(&keys);
        // Mostly one or two of each.
        let meets = |a: &Stretch| others.iter().any(|b| a.document == b.document);
        let one = |stretches: &[Stretch]| {
            let documents = stretches.iter().map(|stretch| stretch.document);
            documents
                .clone()
                .all(|id| Some(id) == documents.clone().next())
        };
        let any = own.iter().any(meets);
        Coverage::by(!any, any && first >= 0 && one(own) && one(others))
    }

    /// The stretches of a key's document that have places in a range; they may reach beyond it.
    pub(super) fn seen(
        &self,
        places: Range<usize>,
        key: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        let document = self.overlapping(&(key..key + 1))[0].document;
        let from = self.first_after(places.start);
        let mut begin = match from {
            0 => 0,
            _ => self.0[from - 1].end,
        };
        let stretches = self.overlapping(&places).iter();
        stretches
            .map(move |stretch| {
                let places = std::mem::replace(&mut begin, stretch.end)..stretch.end;
                (places, stretch.document)
            })
            .filter(move |(_, own)| *own == document)
            .map(|(places, _)| places)
    }

    /// Those stretches that have a place in a range.
    fn overlapping(&self, range: &Range<usize>) -> &[Stretch] {
        if range.is_empty() {
            return &[];
        }
        let start = self.first_after(range.start);
        let end = self.0.partition_point(|stretch| stretch.end < range.end);
        &self.0[start..self.0.len().min(end + 1)]
    }

    /// The number of the first stretch that does not end before a place.
    fn first_after(&self, place: usize) -> usize {
        self.0.partition_point(|stretch| stretch.end <= place)
    }
}
