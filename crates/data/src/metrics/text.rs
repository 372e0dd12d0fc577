//! Case, whitespace and n-grams. Case and whitespace follow Python, since sacreBLEU's scores depend
//! on them.

use std::collections::HashMap;
use std::hash::Hash;

/// Letter case handling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Case {
    /// Case-sensitive.
    #[default]
    Mixed,
    /// Lowercased before comparison.
    Lower,
}

impl Case {
    /// Value in sacreBLEU's signature.
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

/// Whitespace of Python's `str.split`: Unicode whitespace and the four record separators, which
/// Rust does not include.
pub(crate) fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_blank).filter(|word| !word.is_empty())
}

/// Counts of the n-grams of order `order`.
pub(crate) fn ngrams<T: Eq + Hash>(items: &[T], order: usize) -> HashMap<&[T], usize> {
    let mut counts = HashMap::new();
    for ngram in items.windows(order) {
        *counts.entry(ngram).or_insert(0) += 1;
    }
    counts
}

/// Clipped number of n-grams that occur in both.
pub(crate) fn matches<T: Eq + Hash>(
    counts: &HashMap<&[T], usize>,
    others: &HashMap<&[T], usize>,
) -> usize {
    counts
        .iter()
        .filter_map(|(ngram, count)| others.get(ngram).map(|other| *count.min(other)))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_any_whitespace() {
        let line = " a\u{3000}b\u{1d}c\u{a0}\td\u{200b}e ";
        let words = |line| words(line).collect::<Vec<_>>().join("|");
        assert_eq!(words(line), "a|b|c|d\u{200b}e");
        assert_eq!(words(" \n "), "");
    }
}
