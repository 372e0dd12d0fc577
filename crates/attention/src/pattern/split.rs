//! A pattern taken apart: what can be said without a tensor, and the mask that is left.

use burn::tensor::{Bool, Device, Tensor};

use super::Pattern;
use super::dense::either;
use super::rule::Rule;
use super::summary::Summaries;
use crate::AttentionShape;

impl Pattern {
    /// The rule and the mask that together are this pattern: seen is what the rule
    /// shows and the mask does not hide.
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
                (rule_a.and(rule_b), either(mask_a, mask_b))
            }
            Self::Or(..) if self.needs_a_tensor() => {
                // What either side shows depends on a tensor: it is all in the mask then.
                (Rule::Full, self.hidden(op, shape, device))
            }
            _ => (self.rule(), None),
        }
    }

    /// What of this pattern can be said without a tensor. A mask shows everything.
    pub(crate) fn rule(&self) -> Rule {
        match self {
            Self::Full | Self::KeyPadding(_) | Self::Dense(_) => Rule::Full,
            Self::Causal => Rule::Causal,
            &Self::Window { left, right } => Rule::Window {
                left: left.min(FAR),
                right: right.min(FAR),
            },
            &Self::Block { size } => Rule::Block {
                size: size.min(FAR),
            },
            Self::Blocks { size, seen } => Rule::blocks((*size).min(FAR), seen),
            &Self::Strided { stride } => Rule::Strided {
                stride: stride.min(FAR),
            },
            &Self::Summaries { block, summary } => Rule::Summaries(Summaries {
                block: block.min(FAR),
                summary: summary.min(FAR),
            }),
            &Self::Monotonic { window } => Rule::Monotonic {
                window: window.min(FAR),
            },
            Self::Global(places) => Rule::global(places),
            Self::Documents(ids) => Rule::documents(ids),
            Self::KeyLengths(lengths) => Rule::KeyLengths(lengths.clone()),
            Self::Sees(sees) => Rule::Sees(sees.clone()),
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

/// Further than any sequence reaches, and far enough from the end of the numbers that
/// places can be added to it: `usize::MAX` is how people say "without end".
const FAR: usize = i64::MAX as usize / 4;

#[cfg(test)]
mod tests {
    use crate::{AttentionShape, Pattern};

    #[test]
    fn without_end_is_further_than_any_key() {
        let shape = AttentionShape::of_sequences(1, 5, 5);
        let hidden = |pattern: Pattern| {
            let mut hidden = Vec::new();
            let rule = pattern.rule();
            rule.write_hidden(&shape, 0, [0..5, 0..5], &mut hidden);
            // A plan that leaves out what is seen would hide it too.
            assert!(pattern.plan(&shape, [1, 1]).density() > 0.0);
            hidden
        };
        let end = usize::MAX;
        let window = |left, right| Pattern::Window { left, right };
        let one_block = Pattern::Blocks {
            size: end,
            seen: vec![vec![0]],
        };
        let summaries = Pattern::Summaries {
            block: 3,
            summary: end,
        };
        for (endless, same) in [
            (window(end, 0), Pattern::Causal),
            (window(end, end), Pattern::Full),
            (Pattern::Block { size: end }, Pattern::Full),
            (one_block, Pattern::Full),
            (Pattern::Strided { stride: end }, window(0, 0)),
            (Pattern::Monotonic { window: end }, Pattern::Full),
            (summaries, Pattern::Full),
            (Pattern::fixed(end, 2), Pattern::Full),
        ] {
            assert_eq!(hidden(endless), hidden(same));
        }
    }
}
