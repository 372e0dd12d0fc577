//! Splitting a pattern into a rule and a tensor mask, and into heads.

use burn::tensor::{Bool, Device, Tensor};

use super::Pattern;
use super::dense::mask_union;
use super::rule::Rule;
use super::summary::SummaryColumns;
use crate::AttentionShape;

impl Pattern {
    /// The rule and the mask that together make up this pattern: a key is visible if the rule
    /// allows it and the mask does not exclude it.
    pub(crate) fn split(
        &self,
        op: &str,
        shape: &AttentionShape,
        device: &Device,
    ) -> (Rule, Option<Tensor<4, Bool>>) {
        self.check(op, shape);
        match self {
            Self::And(a, b) => {
                let (rule_a, mask_a) = a.split(op, shape, device);
                let (rule_b, mask_b) = b.split(op, shape, device);
                (rule_a.and(rule_b), mask_union(mask_a, mask_b))
            }
            // A union with a tensor cannot be split: all of it goes into the mask.
            _ if self.has_tensor_mask() => (Rule::Full, self.dense_mask(op, shape, device)),
            _ => (self.rule(), None),
        }
    }

    /// The part of this pattern that needs no tensor; tensor masks count as full.
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
            Self::Blocks { size, visible } => Rule::blocks((*size).min(FAR), visible),
            &Self::Strided { stride } => Rule::Strided {
                stride: stride.min(FAR),
            },
            &Self::SummaryColumns { block, summary } => Rule::SummaryColumns(SummaryColumns {
                block: block.min(FAR),
                summary: summary.min(FAR),
            }),
            &Self::Monotonic { window } => Rule::Monotonic {
                window: window.min(FAR),
            },
            Self::Global(positions) => Rule::global(positions),
            Self::Documents(ids) => Rule::documents(ids),
            Self::KeyLengths(lengths) => Rule::KeyLengths(lengths.clone()),
            Self::Predicate(predicate) if predicate.depends_on_head() => Rule::Full,
            Self::Predicate(predicate) => Rule::Predicate(predicate.clone()),
            Self::And(a, b) => a.rule().and(b.rule()),
            Self::Or(a, b) => Rule::Or(Box::new(a.rule()), Box::new(b.rule())),
        }
    }

    /// Whether a part of the pattern is a tensor, or needs one because it depends on the head.
    pub(super) fn has_tensor_mask(&self) -> bool {
        let is_tensor = |part: &Self| matches!(part, Self::KeyPadding(_) | Self::Dense(_));
        self.any_part(is_tensor) || self.depends_on_head()
    }

    /// Whether heads may have different masks without a tensor.
    pub(crate) fn depends_on_head(&self) -> bool {
        self.any_part(|part| match part {
            Self::Predicate(predicate) => predicate.depends_on_head(),
            _ => false,
        })
    }

    fn any_part(&self, is_match: impl Fn(&Self) -> bool + Copy) -> bool {
        match self {
            Self::And(a, b) | Self::Or(a, b) => a.any_part(is_match) || b.any_part(is_match),
            part => is_match(part),
        }
    }

    /// The pattern of a single head.
    pub(crate) fn at_head(&self, head: usize) -> Self {
        match self {
            Self::Predicate(predicate) => Self::Predicate(predicate.at_head(head)),
            Self::And(a, b) => a.at_head(head).and(b.at_head(head)),
            Self::Or(a, b) => a.at_head(head).or(b.at_head(head)),
            Self::Dense(mask) if mask.dims()[1] > 1 => {
                Self::Dense(mask.clone().slice_dim(1, head..head + 1))
            }
            Self::Full
            | Self::Causal
            | Self::Window { .. }
            | Self::Block { .. }
            | Self::Blocks { .. }
            | Self::Strided { .. }
            | Self::SummaryColumns { .. }
            | Self::Monotonic { .. }
            | Self::Global(_)
            | Self::Documents(_)
            | Self::KeyLengths(_)
            | Self::KeyPadding(_)
            | Self::Dense(_) => self.clone(),
        }
    }

    /// The pattern for tensors whose `heads` are part of the batch dimension, unless it contains a
    /// tensor.
    pub(crate) fn with_heads_in_batch(&self, heads: usize) -> Option<Self> {
        let repeated = |count: usize| (0..count * heads).map(move |index| index / heads);
        Some(match self {
            Self::Predicate(predicate) => Self::Predicate(predicate.with_heads_in_batch(heads)),
            Self::And(a, b) => {
                let [a, b] = [a, b].map(|part| part.with_heads_in_batch(heads));
                a?.and(b?)
            }
            Self::Or(a, b) => {
                let [a, b] = [a, b].map(|part| part.with_heads_in_batch(heads));
                a?.or(b?)
            }
            Self::KeyLengths(lengths) => Self::key_lengths(
                repeated(lengths.len())
                    .map(|i| lengths[i])
                    .collect::<Vec<_>>(),
            ),
            Self::Documents(ids) => {
                Self::Documents(repeated(ids.len()).map(|i| ids[i].clone()).collect())
            }
            Self::KeyPadding(_) | Self::Dense(_) => return None,
            Self::Full
            | Self::Causal
            | Self::Window { .. }
            | Self::Block { .. }
            | Self::Blocks { .. }
            | Self::Strided { .. }
            | Self::SummaryColumns { .. }
            | Self::Monotonic { .. }
            | Self::Global(_) => self.clone(),
        })
    }
}

/// An upper bound of sizes, larger than any sequence and small enough that adding positions does
/// not overflow. Callers pass `usize::MAX` for "unlimited".
const FAR: usize = i64::MAX as usize / 4;

#[cfg(test)]
mod tests {
    use crate::{AttentionShape, Pattern};

    #[test]
    fn usize_max_means_unlimited() {
        let shape = AttentionShape::single_head(1, 5, 5);
        let mask_of = |pattern: Pattern| {
            let mut mask = Vec::new();
            let rule = pattern.rule();
            rule.write_mask(&shape, 0, [0..5, 0..5], &mut mask);
            // A plan without visible tiles would mask everything.
            assert!(pattern.plan(&shape, [1, 1]).density() > 0.0);
            mask
        };
        let max = usize::MAX;
        let window = |left, right| Pattern::Window { left, right };
        let one_block = Pattern::Blocks {
            size: max,
            visible: vec![vec![0]],
        };
        let summaries = Pattern::SummaryColumns {
            block: 3,
            summary: max,
        };
        for (unlimited, same) in [
            (window(max, 0), Pattern::Causal),
            (window(max, max), Pattern::Full),
            (Pattern::Block { size: max }, Pattern::Full),
            (one_block, Pattern::Full),
            (Pattern::Strided { stride: max }, window(0, 0)),
            (Pattern::Monotonic { window: max }, Pattern::Full),
            (summaries, Pattern::Full),
            (Pattern::fixed(max, 2), Pattern::Full),
        ] {
            assert_eq!(mask_of(unlimited), mask_of(same));
        }
    }
}
