//! Arguments of LibTorch's kernels.

use burn::backend::LibTorch;
use tch::{Kind, Tensor};
use zoo_kernels::aten::{Dropout, Mask};

use crate::AttentionShape;
use crate::flash::call::{Inputs, TiledSettings};
use crate::pattern::rule::Rule;

/// Visibility, as far as the kernels support it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KernelMask {
    pub(super) is_causal: bool,
    /// Visible keys before the query's position and after it.
    pub(super) window: Option<[usize; 2]>,
    /// The number of keys of each example.
    pub(super) key_lengths: Option<Vec<usize>>,
}

impl KernelMask {
    const CAUSAL: Self = Self {
        is_causal: true,
        window: None,
        key_lengths: None,
    };

    /// The mask of a rule, if the kernels support it.
    pub(super) fn from_rule(rule: &Rule, shape: &AttentionShape) -> Option<Self> {
        let &AttentionShape { seq_q, seq_k, .. } = shape;
        match rule {
            Rule::Full => Some(Self::default()),
            // A single query is aligned with the last key and attends to everything.
            Rule::Causal if seq_q == 1 => Some(Self::default()),
            // With more queries than keys, the first rows are fully masked, which is not supported.
            Rule::Causal if seq_q <= seq_k => Some(Self::CAUSAL),
            // With as many queries as keys, both are aligned.
            &Rule::Monotonic { window } if seq_q == seq_k => {
                let (left, right) = (window, window);
                Self::from_rule(&Rule::Window { left, right }, shape)
            }
            &Rule::Window { left, right } if seq_q == seq_k => Some(match [left, right] {
                [left, right] if left.min(right) >= seq_k - 1 => Self::default(),
                [left, 0] if left >= seq_k - 1 => Self::CAUSAL,
                sides => Self {
                    window: Some(sides.map(|side| side.min(seq_k))),
                    ..Self::default()
                },
            }),
            // A single block.
            Rule::Block { size } if seq_q == seq_k && *size >= seq_k => Some(Self::default()),
            // Nor is an example without keys.
            Rule::KeyLengths(lengths) if !lengths.contains(&0) => Some(Self {
                key_lengths: lengths
                    .iter()
                    .any(|length| *length < seq_k)
                    .then(|| lengths.clone()),
                ..Self::default()
            }),
            Rule::And(a, b) => Self::from_rule(a, shape)?.and(Self::from_rule(b, shape)?),
            _ => None,
        }
    }

    fn and(self, other: Self) -> Option<Self> {
        let key_lengths = match (self.key_lengths, other.key_lengths) {
            (Some(_), Some(_)) => return None,
            (a, b) => a.or(b),
        };
        let window = match (self.window, other.window) {
            (Some(_), Some(_)) => return None,
            (a, b) => a.or(b),
        };
        let is_causal = self.is_causal || other.is_causal;
        Some(Self {
            is_causal: is_causal && window.is_none(),
            window: window.map(|[left, right]| [left, if is_causal { 0 } else { right }]),
            key_lengths,
        })
    }
}

/// Arguments of the [memory-efficient kernel](super::efficient) besides its tensors.
#[derive(Debug)]
pub(super) struct EfficientArgs {
    pub(super) mask: Mask,
    /// `[batch, heads, seq_q, seq_k]` of the kernel, with aligned rows.
    pub(super) bias: Option<Tensor>,
    /// Whether rows may be fully masked.
    pub(super) may_mask_rows: bool,
    pub(super) scale: f64,
    pub(super) dropout: Option<Dropout>,
}

/// The dropout of a call of the memory-efficient kernel, and of its backward pass. The calls of one
/// attention have different indices, and so drop different weights.
pub(super) fn kernel_dropout(settings: &TiledSettings, index: usize) -> Option<Dropout> {
    let dropout = settings.dropout?;
    let seed = dropout.kernel_seed().wrapping_add(index as u64);
    Some(Dropout {
        probability: dropout.probability,
        // Without the sign bit: the seed must be positive.
        seed: (seed & i64::MAX as u64) as i64,
    })
}

/// Results of the forward pass, and the output gradient.
pub(super) struct BackwardInputs<'a> {
    pub(super) context: &'a Tensor,
    /// `[batch, heads, seq_q, 1]`
    pub(super) log_sum_exp: &'a Tensor,
    pub(super) d_context: &'a Tensor,
}

pub(crate) fn has_mask_or_bias(inputs: &Inputs<LibTorch>) -> bool {
    inputs.mask.as_ref().is_some() || inputs.bias.as_ref().is_some()
}

/// Converts between `[batch, heads, seq, d]` and `[batch, seq, heads, d]`.
pub(super) fn swap_heads(tensor: &Tensor) -> Tensor {
    tensor.transpose(1, 2)
}

/// Elements in 16 bytes, by which the kernels read.
pub(super) fn alignment(kind: Kind) -> usize {
    match kind {
        Kind::Float => 4,
        _ => 8,
    }
}

/// A tensor as the kernels can read it: rows are contiguous and aligned to 16 bytes. Copied only if
/// they are not.
pub(super) fn aligned(tensor: &Tensor) -> Tensor {
    let step = alignment(tensor.kind()) as i64;
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

    fn mask(rule: &Rule, seq_q: usize, seq_k: usize) -> Option<KernelMask> {
        KernelMask::from_rule(rule, &AttentionShape::single_head(2, seq_q, seq_k))
    }

    #[test]
    fn supported_rules_become_kernel_masks() {
        let all = KernelMask::default();
        let window = |left, right| KernelMask {
            window: Some([left, right]),
            ..KernelMask::default()
        };
        let rule = |left, right| Rule::Window { left, right };
        assert_eq!(mask(&Rule::Full, 5, 9), Some(all.clone()));
        assert_eq!(mask(&Rule::Causal, 9, 9), Some(KernelMask::CAUSAL));
        assert_eq!(mask(&Rule::Causal, 1, 9), Some(all.clone()));
        assert_eq!(mask(&Rule::Causal, 9, 5), None);
        assert_eq!(mask(&rule(3, 1), 9, 9), Some(window(3, 1)));
        assert_eq!(mask(&rule(3, 1), 8, 9), None);
        assert_eq!(mask(&rule(8, 8), 9, 9), Some(all.clone()));
        let monotonic = Rule::Monotonic { window: 2 };
        assert_eq!(mask(&monotonic, 9, 9), Some(window(2, 2)));
        assert_eq!(mask(&monotonic, 8, 9), None);
        assert_eq!(mask(&rule(8, 0), 9, 9), Some(KernelMask::CAUSAL));
        assert_eq!(
            mask(&rule(3, 2).and(Rule::Causal), 9, 9),
            Some(window(3, 0))
        );
        assert_eq!(mask(&rule(3, 2).and(rule(1, 1)), 9, 9), None);
        assert_eq!(mask(&Rule::Strided { stride: 2 }, 9, 9), None);
        assert_eq!(mask(&Rule::Block { size: 9 }, 9, 9), Some(all.clone()));
        assert_eq!(mask(&Rule::Block { size: 8 }, 9, 9), None);
        assert_eq!(mask(&Rule::KeyLengths(vec![9, 9]), 9, 9), Some(all));
        assert_eq!(mask(&Rule::KeyLengths(vec![9, 0]), 9, 9), None);
        let lengths = Rule::KeyLengths(vec![9, 4]).and(Rule::Causal);
        let both = KernelMask {
            key_lengths: Some(vec![9, 4]),
            ..KernelMask::CAUSAL
        };
        assert_eq!(mask(&lengths, 9, 9), Some(both));
    }
}
