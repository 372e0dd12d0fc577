//! The dimensions of an attention call.

use burn::tensor::kind::Basic;
use burn::tensor::{Device, Int, Tensor};

/// Dimensions of query, key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    /// Batch size.
    pub batch: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key/value heads; each is shared by `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Number of queries.
    pub seq_q: usize,
    /// Number of keys and values.
    pub seq_k: usize,
    /// Dimension of a query and of a key.
    pub d_head: usize,
    /// Dimension of a value.
    pub d_value: usize,
}

impl AttentionShape {
    /// The dimensions of the tensors of a call to `op`.
    ///
    /// # Panics
    ///
    /// If the shapes or devices of the tensors do not match.
    pub fn from_tensors(op: &str, query: &Tensor<4>, key: &Tensor<4>, value: &Tensor<4>) -> Self {
        let [batch, heads, seq_q, d_head] = query.dims();
        let [key_batch, kv_heads, seq_k, key_d_head] = key.dims();
        let [value_batch, value_heads, value_seq, d_value] = value.dims();

        let device = query.device();
        check_device(op, "key", &device, &key.device());
        check_device(op, "value", &device, &value.device());
        assert!(
            key_batch == batch && key_d_head == d_head,
            "{op}: key must be [batch = {batch}, kv_heads, seq_k, d_head = {d_head}] \
             to fit query {:?}, got {:?}",
            query.dims(),
            key.dims(),
        );
        assert!(
            [value_batch, value_heads, value_seq] == [batch, kv_heads, seq_k],
            "{op}: value must be [batch = {batch}, kv_heads = {kv_heads}, seq_k = {seq_k}, d_value] \
             to fit key {:?}, got {:?}",
            key.dims(),
            value.dims(),
        );
        assert!(
            kv_heads > 0 && heads.is_multiple_of(kv_heads),
            "{op}: the number of query heads must be a multiple of the number of key and value heads, got {heads} and {kv_heads}",
        );
        assert!(
            ![batch, heads, seq_q, seq_k, d_head, d_value].contains(&0),
            "{op}: no dimension may be zero, got query {:?}, key {:?}, value {:?}",
            query.dims(),
            key.dims(),
            value.dims(),
        );

        Self {
            batch,
            heads,
            kv_heads,
            seq_q,
            seq_k,
            d_head,
            d_value,
        }
    }

    /// One head of dimension 1, for tests of masks.
    #[cfg(test)]
    pub(crate) const fn single_head(batch: usize, seq_q: usize, seq_k: usize) -> Self {
        Self {
            batch,
            heads: 1,
            kv_heads: 1,
            seq_q,
            seq_k,
            d_head: 1,
            d_value: 1,
        }
    }

    /// Number of query heads per key/value head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Dimensions of the scores: `[batch, heads, seq_q, seq_k]`.
    pub(crate) fn scores(&self) -> [usize; 4] {
        [self.batch, self.heads, self.seq_q, self.seq_k]
    }

    /// `[d_head, d_value]`
    #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
    pub(crate) fn widths(&self) -> [usize; 2] {
        [self.d_head, self.d_value]
    }

    /// Dimensions of the context.
    #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
    pub(crate) fn context_dims(&self) -> [usize; 4] {
        [self.batch, self.heads, self.seq_q, self.d_value]
    }

    /// Number of elements of the context.
    #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
    pub(crate) fn context_len(&self) -> usize {
        self.batch * self.heads * self.seq_q * self.d_value
    }

    /// The default scale of the scores, `1/sqrt(d_head)`.
    pub fn default_scale(&self) -> f64 {
        1.0 / (self.d_head as f64).sqrt()
    }
}

/// Panics unless a tensor is on the device of the queries.
pub(crate) fn check_device(op: &str, name: &str, query: &Device, got: &Device) {
    assert!(
        got == query,
        "{op}: {name} must be on the device of query, {query:?}, got {got:?}"
    );
}

/// `[batch, seq, heads * width]` to `[batch, heads, seq, width]`.
pub(crate) fn split_heads(tensor: Tensor<3>, heads: usize) -> Tensor<4> {
    let [batch, seq, all] = tensor.dims();
    let width = all / heads;
    if width == 1 {
        // Burn 0.22.1's fusion reads wrong elements of a tensor with swapped dimensions whose last
        // one is 1, if two operations read it.
        return tensor.swap_dims(1, 2).unsqueeze_dim(3);
    }
    tensor.reshape([batch, seq, heads, width]).swap_dims(1, 2)
}

/// Adds rows with a constant value before and after those of a tensor `[_, _, rows, _]`.
pub(crate) fn pad_rows(tensor: Tensor<4>, [before, after]: [usize; 2], value: f32) -> Tensor<4> {
    if before + after == 0 {
        return tensor;
    }
    let [batch, heads, _, width] = tensor.dims();
    let device = &tensor.device();
    let options = (device, tensor.dtype());
    let constant =
        |rows: usize| (rows > 0).then(|| Tensor::full([batch, heads, rows, width], value, options));
    let parts = [constant(before), Some(tensor), constant(after)];
    Tensor::cat(parts.into_iter().flatten().collect(), 2)
}

/// The elements of a dimension with the given indices, in this order. The identity copies nothing.
pub(crate) fn select_indices<const D: usize, K: Basic>(
    tensor: Tensor<D, K>,
    dim: usize,
    indices: &[usize],
) -> Tensor<D, K> {
    if indices.iter().copied().eq(0..tensor.dims()[dim]) {
        return tensor;
    }
    let indices: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
    let indices = Tensor::<1, Int>::from_ints(indices.as_slice(), &tensor.device());
    tensor.select(dim, indices)
}
