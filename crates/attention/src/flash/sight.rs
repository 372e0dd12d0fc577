//! Who sees whom in one call: a rule, and a mask on the host that hides more.

use std::ops::Range;

use super::spread::Spread;
use crate::AttentionShape;
use crate::pattern::rule::Rule;

/// Everything that says who sees whom: a rule, and a mask that hides more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sights<'a> {
    pub(crate) shape: &'a AttentionShape,
    pub(crate) rule: &'a Rule,
    /// A byte a place, zero where seen.
    pub(crate) hidden: Option<Spread<'a, u8>>,
}

impl Sights<'_> {
    /// Which of up to 64 queries of `[example, head]` see a key.
    pub(crate) fn seen(
        &self,
        [example, head]: [usize; 2],
        queries: Range<usize>,
        key: usize,
    ) -> u64 {
        let mut seen = self.rule.seen(self.shape, example, queries.clone(), key);
        if let Some(hidden) = self.hidden {
            for (bit, query) in queries.enumerate() {
                if hidden.at([example, head, query, key]) != 0 {
                    seen &= !(1 << bit);
                }
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_hides_from_all_where_one_stands_for_all() {
        // [batch 2, heads 1, seq_q 1, seq_k 3]
        let hidden = Spread::new(&[0, 1, 0, 1, 0, 0], [2, 1, 1, 3]);
        let shape = AttentionShape::of_sequences(2, 4, 3);
        let sights = Sights {
            shape: &shape,
            rule: &Rule::Full,
            hidden: Some(hidden),
        };
        assert_eq!(sights.seen([0, 0], 0..4, 1) & 0b1111, 0);
        assert_eq!(sights.seen([0, 0], 0..4, 2) & 0b1111, 0b1111);
        assert_eq!(sights.seen([1, 0], 0..4, 0) & 0b1111, 0);
    }
}
