//! A pattern evaluated on the host, for keys in any order.

use burn::tensor::Device;

use crate::flash::Broadcast;
use crate::pattern::rule::Rule;
use crate::{AttentionShape, Pattern};

/// The rule and the tensor mask of a pattern, on the host.
pub(super) struct Visibility<'a> {
    pub(super) shape: &'a AttentionShape,
    rule: Rule,
    /// The tensor mask and its dimensions.
    mask: Option<(Vec<bool>, [usize; 4])>,
}

impl<'a> Visibility<'a> {
    pub(super) fn from_pattern(
        op: &str,
        pattern: &Pattern,
        shape: &'a AttentionShape,
        device: &Device,
    ) -> Self {
        let (rule, mask) = pattern.split(op, shape, device);
        let mask = mask.map(|mask| {
            let dims = mask.dims();
            (mask.into_data().iter().collect(), dims)
        });
        Self { shape, rule, mask }
    }

    /// Sets `masked` to `true` for the keys that a query of `[example, head]` may not attend to.
    pub(super) fn mask(
        &self,
        [example, head]: [usize; 2],
        query: u32,
        keys: &[u32],
        masked: &mut [bool],
    ) {
        self.apply(&self.rule, example, query, keys, masked);
        if let Some((mask, dims)) = &self.mask {
            let mask = Broadcast::new(mask, *dims);
            for (masked, &key) in masked.iter_mut().zip(keys) {
                *masked = *masked || mask.get([example, head, query as usize, key as usize]);
            }
        }
    }

    /// For each key, a bit for each of up to 64 queries of `[example, head]` that may attend to it.
    #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
    pub(super) fn visible_pairs(
        &self,
        [example, head]: [usize; 2],
        queries: &[u32],
        keys: &[u32],
    ) -> Vec<u64> {
        let mut visible = self.rule.visible_pairs(self.shape, example, queries, keys);
        if let Some((mask, dims)) = &self.mask {
            let mask = Broadcast::new(mask, *dims);
            for (visible, &key) in visible.iter_mut().zip(keys) {
                for (i, &query) in queries.iter().enumerate() {
                    if mask.get([example, head, query as usize, key as usize]) {
                        *visible &= !(1 << i);
                    }
                }
            }
        }
        visible
    }

    fn apply(&self, rule: &Rule, example: usize, query: u32, keys: &[u32], masked: &mut [bool]) {
        let pairs = masked.iter_mut().zip(keys);
        match rule {
            Rule::Full => {}
            // There are as many queries as keys, so indices are positions.
            Rule::Causal => pairs.for_each(|(masked, &key)| *masked |= key > query),
            Rule::KeyLengths(lengths) => {
                let length = lengths[example] as u32;
                pairs.for_each(|(masked, &key)| *masked |= key >= length);
            }
            Rule::And(a, b) => {
                self.apply(a, example, query, keys, masked);
                self.apply(b, example, query, keys, masked);
            }
            rule => {
                let query = query as usize..query as usize + 1;
                for (masked, &key) in pairs.filter(|(masked, _)| !**masked) {
                    let bits =
                        rule.visible_queries(self.shape, example, query.clone(), key as usize);
                    *masked = bits & 1 == 0;
                }
            }
        }
    }
}
