//! A pattern taken apart: what can be said without a tensor, and the mask that is left.

use burn::tensor::{Bool, Device, Tensor};

use super::Pattern;
use super::dense::level;
use super::rule::Rule;
use crate::AttentionShape;

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
                (rule_a.and(rule_b), mask)
            }
            Self::Or(..) if self.needs_a_tensor() => {
                // What either side shows depends on a tensor: it is all in the mask then.
                (Rule::Full, self.hidden(op, shape, device))
            }
            _ => (self.rule(), None),
        }
    }

    /// What of this pattern can be said without a tensor. A mask shows everything.
    pub(super) fn rule(&self) -> Rule {
        match self {
            Self::Full | Self::KeyPadding(_) | Self::Dense(_) => Rule::Full,
            Self::Causal => Rule::Causal,
            &Self::Window { left, right } => Rule::Window { left, right },
            &Self::Block { size } => Rule::Block { size },
            Self::Blocks { size, seen } => Rule::blocks(*size, seen),
            &Self::Strided { stride } => Rule::Strided { stride },
            Self::Global(places) => Rule::global(places),
            Self::Documents(ids) => Rule::documents(ids),
            Self::KeyLengths(lengths) => Rule::KeyLengths(lengths.clone()),
            Self::And(a, b) => a.rule().and(b.rule()),
            Self::Or(a, b) => Rule::Or(Box::new(a.rule()), Box::new(b.rule())),
        }
    }

    pub(super) fn needs_a_tensor(&self) -> bool {
        match self {
            Self::KeyPadding(_) | Self::Dense(_) => true,
            Self::And(a, b) | Self::Or(a, b) => a.needs_a_tensor() || b.needs_a_tensor(),
            _ => false,
        }
    }
}
