//! A pattern written out for some of the queries only.

use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Device, Int, Tensor};

use super::Pattern;
use super::dense::{both, either, written_out};
use crate::AttentionShape;

impl Pattern {
    /// What is [`hidden`](Self::hidden) from the queries `rows`:
    /// `[batch, heads, rows, seq_k]`, any of them 1 where the pattern is the same for all,
    /// or `None` when nothing is.
    pub(crate) fn hidden_from(
        &self,
        op: &str,
        shape: &AttentionShape,
        rows: &[usize],
        device: &Device,
    ) -> Option<Tensor<4, Bool>> {
        self.check(op, shape);
        let from = |part: &Self| part.hidden_from(op, shape, rows, device);
        match self {
            Self::Full => None,
            Self::KeyPadding(_) => self.hidden(op, shape, device),
            Self::Dense(mask) => Some(taken(mask.clone(), rows)),
            Self::And(a, b) if self.needs_a_tensor() => either(from(a), from(b)),
            Self::Or(a, b) if self.needs_a_tensor() => both(from(a), from(b)),
            _ => {
                let queries = rows.iter().map(|&row| row..row + 1);
                Some(written_out(self, shape, queries, device))
            }
        }
    }
}

/// The given rows of a `[_, _, seq_q, _]` mask or bias; one that stands for all stays.
pub(crate) fn taken<K: Basic>(tensor: Tensor<4, K>, rows: &[usize]) -> Tensor<4, K> {
    match tensor.dims() {
        [_, _, 1, _] => tensor,
        _ => rows_of(tensor, rows),
    }
}

/// The given rows of a `[_, _, seq_q, _]` tensor.
pub(crate) fn rows_of<K: Basic>(tensor: Tensor<4, K>, rows: &[usize]) -> Tensor<4, K> {
    let [_, _, count, _] = tensor.dims();
    if rows.iter().copied().eq(0..count) {
        return tensor;
    }
    let rows: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
    let rows = Tensor::<1, Int>::from_ints(rows.as_slice(), &tensor.device());
    tensor.select(2, rows)
}
