//! A pattern written out as a bool mask, for mechanisms that hold every score.

use std::ops::Range;

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use super::Pattern;
use crate::AttentionShape;
use crate::shape::check_device;

impl Pattern {
    /// The mask this pattern stands for, `true` where hidden, or `None` when it hides nothing.
    ///
    /// # Shapes
    ///
    /// `[batch, heads, seq_q, seq_k]`, any of them 1 where the pattern is the
    /// same for all.
    ///
    /// # Panics
    ///
    /// If a part of the pattern does not fit `shape`, naming `op`, what was
    /// expected and what came.
    pub fn hidden(
        &self,
        op: &str,
        shape: &AttentionShape,
        device: &Device,
    ) -> Option<Tensor<4, Bool>> {
        self.check(op, shape);
        let [batch, _, seq_q, seq_k] = shape.scores();
        match self {
            Self::Full => None,
            // One query level with the last key sees everything: nothing to hide.
            Self::Causal if seq_q == 1 => None,
            Self::Causal => {
                let offset = seq_k as i64 - seq_q as i64;
                Some(Tensor::tril_mask([1, 1, seq_q, seq_k], offset, device))
            }
            Self::Window { left, right } => {
                let offset = seq_k as i64 - seq_q as i64;
                Some(outside([*left, *right], offset, shape, device))
            }
            Self::Monotonic { window } => Some(outside([*window; 2], 0, shape, device)),
            Self::KeyLengths(lengths) => {
                let lengths: Vec<i64> = lengths.iter().map(|&length| length as i64).collect();
                let lengths = Tensor::<1, Int>::from_ints(lengths.as_slice(), device)
                    .reshape([batch, 1, 1, 1])
                    .expand([batch, 1, 1, seq_k]);
                let keys = Tensor::<1, Int>::arange(0..seq_k as i64, device)
                    .reshape([1, 1, 1, seq_k])
                    .expand([batch, 1, 1, seq_k]);
                Some(keys.greater_equal(lengths)) // [batch, 1, 1, seq_k]
            }
            Self::Block { .. }
            | Self::Blocks { .. }
            | Self::Strided { .. }
            | Self::Summaries { .. }
            | Self::Global(_)
            | Self::Documents(_)
            | Self::Sees(_) => {
                let all = std::iter::once(0..seq_q);
                Some(written_out(self, shape, all, device))
            }
            Self::KeyPadding(padding) => {
                check_device(op, "a key padding mask", device, &padding.device());
                Some(padding.clone().reshape([batch, 1, 1, seq_k]))
            }
            Self::Dense(mask) => {
                check_device(op, "a dense mask", device, &mask.device());
                Some(mask.clone())
            }
            Self::And(a, b) => either(a.hidden(op, shape, device), b.hidden(op, shape, device)),
            Self::Or(a, b) => both(a.hidden(op, shape, device), b.hidden(op, shape, device)),
        }
    }
}

/// What a window to the left and right of the key `query + offset` does not show.
fn outside(
    sides: [usize; 2],
    offset: i64,
    shape: &AttentionShape,
    device: &Device,
) -> Tensor<4, Bool> {
    let dims = [1, 1, shape.seq_q, shape.seq_k];
    // No window reaches further than all there is.
    let [left, right] = sides.map(|side| side.min(shape.seq_q + shape.seq_k) as i64);
    let later = Tensor::<4, Bool>::tril_mask(dims, offset + right, device);
    let earlier = Tensor::<4, Bool>::triu_mask(dims, offset - left, device);
    later.bool_or(earlier)
}

/// The mask of a pattern that is a rule, place by place, for some ranges of queries.
pub(super) fn written_out(
    pattern: &Pattern,
    shape: &AttentionShape,
    queries: impl Iterator<Item = Range<usize>> + Clone,
    device: &Device,
) -> Tensor<4, Bool> {
    let rule = pattern.rule();
    let examples = rule.different_examples(shape);
    let rows = queries.clone().map(|range| range.len()).sum();
    let mut hidden = Vec::with_capacity(examples * rows * shape.seq_k);
    for example in 0..examples {
        for range in queries.clone() {
            rule.write_hidden(shape, example, [range, 0..shape.seq_k], &mut hidden);
        }
    }
    let dims = [examples, 1, rows, shape.seq_k];
    Tensor::from_data(TensorData::new(hidden, dims), device)
}

type Mask = Option<Tensor<4, Bool>>;

/// What either of two masks hides.
pub(crate) fn either(a: Mask, b: Mask) -> Mask {
    match (a, b) {
        (Some(a), Some(b)) => {
            let (a, b) = level(a, b);
            Some(a.bool_or(b))
        }
        (a, b) => a.or(b),
    }
}

/// What both of two masks hide. A side that hides nothing lets everything be seen.
pub(super) fn both(a: Mask, b: Mask) -> Mask {
    let (a, b) = level(a?, b?);
    Some(a.bool_and(b))
}

/// Stretches both masks to the sizes they have together.
fn level(a: Tensor<4, Bool>, b: Tensor<4, Bool>) -> (Tensor<4, Bool>, Tensor<4, Bool>) {
    let (a_dims, b_dims) = (a.dims(), b.dims());
    let together: [usize; 4] = std::array::from_fn(|dim| a_dims[dim].max(b_dims[dim]));
    (a.expand(together), b.expand(together))
}
