//! Dense bool masks, for mechanisms that materialise the score matrix.

use std::ops::Range;

use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Device, Tensor, TensorData};

use super::Pattern;
use super::rule::Rule;
use crate::AttentionShape;
use crate::shape::{check_device, select_indices};

impl Pattern {
    /// This pattern as a bool mask `[batch, heads, seq_q, seq_k]`, `true` where masked; a dimension
    /// is 1 where the pattern is the same for all. `None` if nothing is masked.
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
        let mask_of = |part: &Self| part.dense_mask(op, shape, device);
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
                let of_example = |&length: &usize| (0..seq_k).map(move |key| key >= length);
                let mask: Vec<bool> = lengths.iter().flat_map(of_example).collect();
                let mask = TensorData::new(mask, [batch, 1, 1, seq_k]);
                Some(Tensor::from_data(mask, device))
            }
            Self::KeyPadding(padding) => {
                check_device(op, "a key padding mask", device, &padding.device());
                Some(padding.clone().reshape([batch, 1, 1, seq_k]))
            }
            Self::Dense(mask) => {
                check_device(op, "a dense mask", device, &mask.device());
                Some(mask.clone())
            }
            Self::And(a, b) => mask_union(mask_of(a), mask_of(b)),
            Self::Or(a, b) => mask_intersection(mask_of(a), mask_of(b)),
            _ => {
                let queries = std::iter::once(0..seq_q);
                Some(mask_from_rule(self, shape, queries, device))
            }
        }
    }

    /// The [`dense_mask`](Self::dense_mask) of the queries `rows`, `[batch, heads, rows, seq_k]`; a
    /// dimension is 1 where the pattern is the same for all. `None` if nothing is masked.
    pub(crate) fn dense_mask_rows(
        &self,
        op: &str,
        shape: &AttentionShape,
        rows: &[usize],
        device: &Device,
    ) -> Option<Tensor<4, Bool>> {
        self.check(op, shape);
        let mask_of = |part: &Self| part.dense_mask_rows(op, shape, rows, device);
        match self {
            Self::Full => None,
            Self::KeyPadding(_) => self.dense_mask(op, shape, device),
            Self::Dense(mask) => Some(select_rows_broadcast(mask.clone(), rows)),
            Self::And(a, b) if self.has_tensor_mask() => mask_union(mask_of(a), mask_of(b)),
            Self::Or(a, b) if self.has_tensor_mask() => mask_intersection(mask_of(a), mask_of(b)),
            _ => {
                let queries = rows.iter().map(|&row| row..row + 1);
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
fn mask_from_rule(
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
fn mask_intersection(a: Mask, b: Mask) -> Mask {
    let (a, b) = broadcast(a?, b?);
    Some(a.bool_and(b))
}

/// Broadcasts two masks against each other.
fn broadcast(a: Tensor<4, Bool>, b: Tensor<4, Bool>) -> (Tensor<4, Bool>, Tensor<4, Bool>) {
    let (a_dims, b_dims) = (a.dims(), b.dims());
    let dims: [usize; 4] = std::array::from_fn(|dim| a_dims[dim].max(b_dims[dim]));
    (a.expand(dims), b.expand(dims))
}

/// The given rows of a mask or bias `[_, _, seq_q, _]`, which may be broadcast over the queries.
pub(crate) fn select_rows_broadcast<K: Basic>(
    tensor: Tensor<4, K>,
    rows: &[usize],
) -> Tensor<4, K> {
    match tensor.dims() {
        [_, _, 1, _] => tensor,
        _ => select_indices(tensor, 2, rows),
    }
}
