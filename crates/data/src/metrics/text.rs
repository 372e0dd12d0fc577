//! Letters and blanks as Python's strings have them, since sacreBLEU's scores depend on both, and
//! runs of neighbours.

use std::collections::HashMap;
use std::hash::Hash;

/// Whether `The` and `the` are the same word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Case {
    /// They are not.
    #[default]
    Mixed,
    /// They are: everything is made lower case before it is compared.
    Lower,
}

impl Case {
    /// The word in sacreBLEU's signatures.
    pub(crate) fn in_signature(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Lower => "lc",
        }
    }

    pub(crate) fn apply(self, line: &str) -> String {
        match self {
            Self::Mixed => line.to_owned(),
            Self::Lower => line.to_lowercase(),
        }
    }
}

/// What Python's `str.split` parts words at: Unicode's white space, and four control
/// characters that separate records, which Rust does not count.
pub(crate) fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_blank).filter(|word| !word.is_empty())
}

/// How often each run of `order` neighbours is in `items`.
pub(crate) fn ngrams<T: Eq + Hash>(items: &[T], order: usize) -> HashMap<&[T], usize> {
    let mut counts = HashMap::new();
    for run in items.windows(order) {
        *counts.entry(run).or_insert(0) += 1;
    }
    counts
}

/// How many of `counts` are in `others` too, each as often as it is in both.
pub(crate) fn shared<T: Eq + Hash>(
    counts: &HashMap<&[T], usize>,
    others: &HashMap<&[T], usize>,
) -> usize {
    counts
        .iter()
        .filter_map(|(run, count)| others.get(run).map(|other| *count.min(other)))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_between_blanks_of_any_kind() {
        let line = " a\u{3000}b\u{1d}c\u{a0}\td\u{200b}e ";
        assert_eq!(
            words(line).collect::<Vec<_>>(),
            ["a", "b", "c", "d\u{200b}e"]
        );
        assert_eq!(words(" \n ").count(), 0);
    }
}
