//! Runs of neighbours, counted.

use std::collections::HashMap;
use std::hash::Hash;

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
    fn runs_are_counted_and_shared() {
        let left = ngrams(b"abab", 2);
        assert_eq!(left[&b"ab"[..]], 2);
        assert_eq!(left.len(), 2);
        assert_eq!(shared(&left, &ngrams(b"abxab", 2)), 2);
        assert_eq!(shared(&left, &ngrams(b"ab", 2)), 1);
        assert!(ngrams(b"ab", 3).is_empty());
    }
}
