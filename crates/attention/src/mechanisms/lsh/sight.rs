//! What a pattern shows, asked of places in any order.

use burn::tensor::Device;

use crate::flash::Spread;
use crate::pattern::rule::Rule;
use crate::{AttentionShape, Pattern};

/// What a pattern shows, on the host.
pub(super) struct Sight<'a> {
    pub(super) shape: &'a AttentionShape,
    pub(super) rule: Rule,
    /// A mask that hides more, and its sizes.
    pub(super) mask: Option<(Vec<bool>, [usize; 4])>,
}

impl<'a> Sight<'a> {
    pub(super) fn of(
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

    /// Hides from a query of `[example, head]` what of these keys it may not see.
    pub(super) fn hide(
        &self,
        [example, head]: [usize; 2],
        query: u32,
        keys: &[u32],
        hidden: &mut [bool],
    ) {
        self.hide_by(&self.rule, example, query, keys, hidden);
        if let Some((mask, dims)) = &self.mask {
            let mask = Spread::new(mask, *dims);
            for (hidden, &key) in hidden.iter_mut().zip(keys) {
                *hidden = *hidden || mask.at([example, head, query as usize, key as usize]);
            }
        }
    }

    fn hide_by(&self, rule: &Rule, example: usize, query: u32, keys: &[u32], hidden: &mut [bool]) {
        let pairs = hidden.iter_mut().zip(keys);
        match rule {
            Rule::Full => {}
            // There are as many queries as keys: each has its own place.
            Rule::Causal => pairs.for_each(|(hidden, &key)| *hidden |= key > query),
            Rule::KeyLengths(lengths) => {
                let length = lengths[example] as u32;
                pairs.for_each(|(hidden, &key)| *hidden |= key >= length);
            }
            Rule::And(a, b) => {
                self.hide_by(a, example, query, keys, hidden);
                self.hide_by(b, example, query, keys, hidden);
            }
            rule => {
                let query = query as usize..query as usize + 1;
                for (hidden, &key) in pairs.filter(|(hidden, _)| !**hidden) {
                    let seen = rule.seen(self.shape, example, query.clone(), key as usize);
                    *hidden = seen & 1 == 0;
                }
            }
        }
    }
}
