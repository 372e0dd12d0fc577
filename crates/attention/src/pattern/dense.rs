//! Dense bool masks, for mechanisms that materialise the score matrix.

use std::ops::Range;

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use super::Pattern;
use super::rule::Rule;
use crate::AttentionShape;
use crate::shape::check_device;

impl Pattern {
    /// This pattern as a bool mask, `true` where masked, or `None` if nothing is masked.
    ///
    /// # Shapes
    ///
    /// `[batch, heads, seq_q, seq_k]`; a dimension is 1 where the pattern is the same for all.
    ///
    /// # Panics
    ///
    /// If a part of the pattern does not match `shape`; the message names `op`.
    pub fn dense_mask(
        &self,
        op: &str,
        shape: &AttentionShape,
        device: &Device,
    ) -> Option<Tensor<4, Bool>> {
        self.check(op, shape);
        let [batch, _, seq_q, seq_k] = shape.scores();
        match self {
            Self::Full => None,
            // A single query is aligned with the last key, so nothing is masked.
            Self::Causal if seq_q == 1 => None,
            Self::Causal => {
                let offset = seq_k as i64 - seq_q as i64;
                Some(Tensor::tril_mask([1, 1, seq_q, seq_k], offset, device))
            }
            Self::Window { left, right } => {
                let offset = seq_k as i64 - seq_q as i64;
                Some(window_mask([*left, *right], offset, shape, device))
            }
            Self::Monotonic { window } => Some(window_mask([*window; 2], 0, shape, device)),
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
            Self::KeyPadding(padding) => {
                check_device(op, "a key padding mask", device, &padding.device());
                Some(padding.clone().reshape([batch, 1, 1, seq_k]))
            }
            Self::Dense(mask) => {
                check_device(op, "a dense mask", device, &mask.device());
                Some(mask.clone())
            }
            Self::And(a, b) => mask_union(
                a.dense_mask(op, shape, device),
                b.dense_mask(op, shape, device),
            ),
            Self::Or(a, b) => mask_intersection(
                a.dense_mask(op, shape, device),
                b.dense_mask(op, shape, device),
            ),
            Self::Block { .. }
            | Self::Blocks { .. }
            | Self::Strided { .. }
            | Self::SummaryColumns { .. }
            | Self::Global(_)
            | Self::Documents(_)
            | Self::Predicate(_) => {
                let queries = std::iter::once(0..seq_q);
                Some(mask_from_rule(self, shape, queries, device))
            }
        }
    }
}

/// The mask of a window of keys to the left and right of the key `query + offset`.
fn window_mask(
    sides: [usize; 2],
    offset: i64,
    shape: &AttentionShape,
    device: &Device,
) -> Tensor<4, Bool> {
    let dims = [1, 1, shape.seq_q, shape.seq_k];
    // Clamped, so that the offsets below cannot overflow.
    let [left, right] = sides.map(|side| side.min(shape.seq_q + shape.seq_k) as i64);
    let later = Tensor::<4, Bool>::tril_mask(dims, offset + right, device);
    let earlier = Tensor::<4, Bool>::triu_mask(dims, offset - left, device);
    later.bool_or(earlier)
}

/// The mask of a pattern without tensors, for some ranges of queries.
pub(super) fn mask_from_rule(
    pattern: &Pattern,
    shape: &AttentionShape,
    queries: impl Iterator<Item = Range<usize>> + Clone,
    device: &Device,
) -> Tensor<4, Bool> {
    let heads = if pattern.depends_on_head() {
        shape.heads
    } else {
        1
    };
    let rules: Vec<Rule> = (0..heads)
        .map(|head| pattern.at_head(head).rule())
        .collect();
    let examples = rules[0].num_distinct_examples(shape);
    let rows = queries.clone().map(|range| range.len()).sum();
    let mut mask = Vec::with_capacity(examples * heads * rows * shape.seq_k);
    for example in 0..examples {
        for rule in &rules {
            for range in queries.clone() {
                rule.write_mask(shape, example, [range, 0..shape.seq_k], &mut mask);
            }
        }
    }
    let dims = [examples, heads, rows, shape.seq_k];
    Tensor::from_data(TensorData::new(mask, dims), device)
}

type Mask = Option<Tensor<4, Bool>>;

/// Masks what either of two masks excludes.
pub(crate) fn mask_union(a: Mask, b: Mask) -> Mask {
    match (a, b) {
        (Some(a), Some(b)) => {
            let (a, b) = broadcast(a, b);
            Some(a.bool_or(b))
        }
        (a, b) => a.or(b),
    }
}

/// Masks what both masks exclude; `None` excludes nothing.
pub(super) fn mask_intersection(a: Mask, b: Mask) -> Mask {
    let (a, b) = broadcast(a?, b?);
    Some(a.bool_and(b))
}

/// Broadcasts two masks against each other.
fn broadcast(a: Tensor<4, Bool>, b: Tensor<4, Bool>) -> (Tensor<4, Bool>, Tensor<4, Bool>) {
    let (a_dims, b_dims) = (a.dims(), b.dims());
    let dims: [usize; 4] = std::array::from_fn(|dim| a_dims[dim].max(b_dims[dim]));
    (a.expand(dims), b.expand(dims))
}
