//! Arguments of LibTorch's kernels.

use burn::backend::LibTorch;
use tch::{Kind, Tensor};
use zoo_kernels::aten::Mask;

use crate::AttentionShape;
use crate::flash::call::{Bias, Inputs, MoreHidden};
use crate::pattern::rule::Rule;

/// Visibility, as far as the kernels support it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) is_causal: bool,
    /// Visible keys before the query's position and after it.
    pub(super) window: Option<[usize; 2]>,
    /// Keys that each example has.
    pub(super) lengths: Option<Vec<usize>>,
}

impl Seen {
    /// What a rule shows, if it can be said so.
    pub(super) fn by(rule: &Rule, shape: &AttentionShape) -> Option<Self> {
        let &AttentionShape { seq_q, seq_k, .. } = shape;
        match rule {
            Rule::Full => Some(Self::default()),
            // One query, aligned with the last key, sees everything.
            Rule::Causal if seq_q == 1 => Some(Self::default()),
            // With more queries than keys, the first see nothing, which is not expected.
            Rule::Causal if seq_q <= seq_k => Some(Self {
                is_causal: true,
                ..Self::default()
            }),
            &Rule::Window { left, right } if seq_q == seq_k => Some(match [left, right] {
                [left, right] if left.min(right) >= seq_k - 1 => Self::default(),
                [left, 0] if left >= seq_k - 1 => Self {
                    is_causal: true,
                    ..Self::default()
                },
                sides => Self {
                    window: Some(sides.map(|side| side.min(seq_k))),
                    ..Self::default()
                },
            }),
            // Nor that an example has no key at all.
            Rule::KeyLengths(lengths) if !lengths.contains(&0) => Some(Self {
                lengths: lengths
                    .iter()
                    .any(|length| *length < seq_k)
                    .then(|| lengths.clone()),
                ..Self::default()
            }),
            Rule::And(a, b) => Self::by(a, shape)?.and(Self::by(b, shape)?),
            _ => None,
        }
    }

    fn and(self, other: Self) -> Option<Self> {
        let lengths = match (self.lengths, other.lengths) {
            (Some(_), Some(_)) => return None,
            (a, b) => a.or(b),
        };
        let is_causal = self.is_causal || other.is_causal;
        Some(match (self.window, other.window) {
            (Some(_), Some(_)) => return None,
            (None, None) => Self {
                is_causal,
                window: None,
                lengths,
            },
            (Some([left, right]), None) | (None, Some([left, right])) => Self {
                is_causal: false,
                window: Some([left, if is_causal { 0 } else { right }]),
                lengths,
            },
        })
    }
}

/// Arguments of the [memory-efficient kernel](super::efficient) besides its tensors.
#[derive(Debug)]
pub(super) struct Added {
    pub(super) mask: Mask,
    /// Of the kernel's `[batch, heads, seq_q, seq_k]`, laid out as it wants it.
    pub(super) bias: Option<Tensor>,
    /// Whether a query may see nothing at all.
    pub(super) may_blind: bool,
}

/// What the forward pass gave, and what arrives at it.
pub(super) struct Results<'a> {
    pub(super) context: &'a Tensor,
    /// `[batch, heads, seq_q, 1]`
    pub(super) log_sum_exp: &'a Tensor,
    pub(super) d_context: &'a Tensor,
}

/// Whether more is hidden or added than the settings say.
pub(crate) fn has_more(inputs: &Inputs<LibTorch>) -> bool {
    let Inputs { hidden, bias, .. } = inputs;
    !matches!((hidden, bias), (MoreHidden::Nothing, Bias::Nothing))
}

/// Numbers in 16 bytes.
pub(super) fn numbers_at_once(kind: Kind) -> usize {
    match kind {
        Kind::Float => 4,
        _ => 8,
    }
}

/// A tensor as the kernels can read it: numbers of a row side by side, rows 16 bytes or a
/// multiple apart, the first at such a place.
pub(super) fn laid_out(tensor: &Tensor) -> Tensor {
    let step = numbers_at_once(tensor.kind()) as i64;
    match tensor.stride().split_last() {
        Some((1, others))
            if others.iter().all(|stride| stride % step == 0)
                && (tensor.data_ptr() as usize).is_multiple_of(16) =>
        {
            tensor.shallow_clone()
        }
        _ => tensor.contiguous(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rule: &Rule, seq_q: usize, seq_k: usize) -> Option<Seen> {
        Seen::by(rule, &AttentionShape::of_sequences(2, seq_q, seq_k))
    }

    #[test]
    fn what_kernels_can_be_told_is_told_as_it_is() {
        let all = Seen::default();
        let causal = Seen {
            is_causal: true,
            ..Seen::default()
        };
        let window = |left, right| Seen {
            window: Some([left, right]),
            ..Seen::default()
        };
        let rule = |left, right| Rule::Window { left, right };
        assert_eq!(seen(&Rule::Full, 5, 9), Some(all.clone()));
        assert_eq!(seen(&Rule::Causal, 9, 9), Some(causal.clone()));
        assert_eq!(seen(&Rule::Causal, 1, 9), Some(all.clone()));
        assert_eq!(seen(&Rule::Causal, 9, 5), None);
        assert_eq!(seen(&rule(3, 1), 9, 9), Some(window(3, 1)));
        assert_eq!(seen(&rule(3, 1), 8, 9), None);
        assert_eq!(seen(&rule(8, 8), 9, 9), Some(all.clone()));
        assert_eq!(seen(&rule(8, 0), 9, 9), Some(causal));
        assert_eq!(
            seen(&rule(3, 2).and(Rule::Causal), 9, 9),
            Some(window(3, 0))
        );
        assert_eq!(seen(&rule(3, 2).and(rule(1, 1)), 9, 9), None);
        assert_eq!(seen(&Rule::Strided { stride: 2 }, 9, 9), None);
        assert_eq!(seen(&Rule::KeyLengths(vec![9, 9]), 9, 9), Some(all));
        assert_eq!(seen(&Rule::KeyLengths(vec![9, 0]), 9, 9), None);
        let lengths = Rule::KeyLengths(vec![9, 4]).and(Rule::Causal);
        let both = Seen {
            is_causal: true,
            lengths: Some(vec![9, 4]),
            window: None,
        };
        assert_eq!(seen(&lengths, 9, 9), Some(both));
    }
}
