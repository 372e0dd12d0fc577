//! A pattern taken apart: what can be said without a tensor, and the mask that is left.

use burn::tensor::{Bool, Device, Tensor};

use super::Pattern;
use super::dense::level;
use crate::AttentionShape;
use crate::tiled::sight::Rule;

impl Pattern {
    /// The rule and the mask that together are this pattern: seen is what the rule
    /// shows and the mask does not hide.
    ///
    /// # Panics
    ///
    /// As [`hidden`](Self::hidden).
    pub(crate) fn split(
        &self,
        op: &str,
        shape: &AttentionShape,
        device: &Device,
    ) -> (Rule, Option<Tensor<4, Bool>>) {
        self.check(op, shape);
        match self {
            Self::Full => (Rule::Full, None),
            Self::Causal => (Rule::Causal, None),
            &Self::Window { left, right } => (Rule::Window { left, right }, None),
            Self::KeyLengths(lengths) => (Rule::KeyLengths(lengths.clone()), None),
            Self::KeyPadding(_) | Self::Dense(_) => (Rule::Full, self.hidden(op, shape, device)),
            Self::And(a, b) => {
                let (rule_a, mask_a) = a.split(op, shape, device);
                let (rule_b, mask_b) = b.split(op, shape, device);
                let mask = match (mask_a, mask_b) {
                    (Some(a), Some(b)) => {
                        let (a, b) = level(a, b);
                        Some(a.bool_or(b))
                    }
                    (a, b) => a.or(b),
                };
                (Rule::And(Box::new(rule_a), Box::new(rule_b)), mask)
            }
            Self::Or(a, b) => match (a.split(op, shape, device), b.split(op, shape, device)) {
                ((rule_a, None), (rule_b, None)) => {
                    (Rule::Or(Box::new(rule_a), Box::new(rule_b)), None)
                }
                // What either side shows depends on a tensor: it is all in the mask then.
                _ => (Rule::Full, self.hidden(op, shape, device)),
            },
        }
    }
}
