//! Dense masks for a subset of the queries.

use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Device, Int, Tensor};

use super::Pattern;
use super::dense::{mask_from_rule, mask_intersection, mask_union};
use crate::AttentionShape;

impl Pattern {
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

/// [`select_rows`] of a mask or bias, which may be broadcast over the queries.
pub(crate) fn select_rows_broadcast<K: Basic>(
    tensor: Tensor<4, K>,
    rows: &[usize],
) -> Tensor<4, K> {
    match tensor.dims() {
        [_, _, 1, _] => tensor,
        _ => select_rows(tensor, rows),
    }
}

/// The given rows of a tensor `[_, _, seq_q, _]`.
pub(crate) fn select_rows<K: Basic>(tensor: Tensor<4, K>, rows: &[usize]) -> Tensor<4, K> {
    let [_, _, count, _] = tensor.dims();
    if rows.iter().copied().eq(0..count) {
        return tensor;
    }
    let rows: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
    let rows = Tensor::<1, Int>::from_ints(rows.as_slice(), &tensor.device());
    tensor.select(2, rows)
}
