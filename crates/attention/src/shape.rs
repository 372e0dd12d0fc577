//! The sizes of one attention call, checked once at its door.

use burn::tensor::{Device, Tensor};

/// The sizes that query, key and value agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    /// Examples.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; `heads / kv_heads` query heads share each.
    pub kv_heads: usize,
    /// Queries.
    pub seq_q: usize,
    /// Keys and values.
    pub seq_k: usize,
    /// Numbers in a query and in a key.
    pub d_head: usize,
    /// Numbers in a value.
    pub d_value: usize,
}

impl AttentionShape {
    /// Reads the sizes off the tensors of a call to `op`.
    ///
    /// # Panics
    ///
    /// If the tensors do not fit together, naming `op`, what was expected and what came.
    pub fn of(op: &str, query: &Tensor<4>, key: &Tensor<4>, value: &Tensor<4>) -> Self {
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
            "{op}: the {heads} heads of query must be a multiple of the {kv_heads} heads of key and value",
        );
        assert!(
            ![batch, heads, seq_q, seq_k, d_head, d_value].contains(&0),
            "{op}: no size may be zero, got query {:?}, key {:?}, value {:?}",
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

    /// So many queries and keys of one head of one number, for tests of what is visible.
    #[cfg(test)]
    pub(crate) const fn of_sequences(batch: usize, seq_q: usize, seq_k: usize) -> Self {
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

    /// Query heads that share one key and value head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// The sizes of the scores: `[batch, heads, seq_q, seq_k]`.
    pub(crate) fn scores(&self) -> [usize; 4] {
        [self.batch, self.heads, self.seq_q, self.seq_k]
    }

    /// Numbers in a query and a key, and in a value.
    #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
    pub(crate) fn widths(&self) -> [usize; 2] {
        [self.d_head, self.d_value]
    }

    /// Numbers of the context.
    #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
    pub(crate) fn context(&self) -> usize {
        self.batch * self.heads * self.seq_q * self.d_value
    }

    /// `1/sqrt(d_head)`, what scores are multiplied by unless said otherwise.
    pub fn default_scale(&self) -> f64 {
        1.0 / (self.d_head as f64).sqrt()
    }
}

/// Panics unless a tensor of a call is on the device of its queries.
pub(crate) fn check_device(op: &str, name: &str, query: &Device, got: &Device) {
    assert!(
        got == query,
        "{op}: {name} must be on the device of query, {query:?}, got {got:?}"
    );
}
