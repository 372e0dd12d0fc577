//! How much there is to multiply.

use super::MultiHeadAttention;
use crate::mechanisms;
use crate::{AttentionOptions, AttentionShape, Pattern};

impl MultiHeadAttention {
    /// Floating-point operations of the matmuls of one forward pass over one example, two
    /// for each product: the projections, and what the mechanism does over the pairs of query
    /// and key that see each other. Training takes about three times as many.
    ///
    /// # Panics
    ///
    /// If there is no query or no key.
    pub fn flops(&self, seq_q: usize, seq_k: usize, causal: bool) -> f64 {
        let width = |linear: &burn::nn::Linear| linear.weight.dims().iter().product::<usize>();
        let of_query = width(&self.query) + width(&self.output);
        let of_key = self.key.as_ref().map_or(0, width) + width(&self.value);
        let projections = seq_q * of_query + seq_k * of_key;
        2.0 * projections as f64 + self.flops_of_mechanism(seq_q, seq_k, causal)
    }

    fn flops_of_mechanism(&self, seq_q: usize, seq_k: usize, causal: bool) -> f64 {
        let (heads, d_head) = (self.heads, self.d_head);
        let shape = AttentionShape {
            batch: 1,
            heads,
            kv_heads: self.kv_heads,
            seq_q,
            seq_k,
            d_head,
            d_value: d_head,
        };
        let options = AttentionOptions::new().with_pattern(match causal {
            true => Pattern::Causal,
            false => Pattern::Full,
        });
        mechanisms::of(&self.mechanism).flops(&shape, &options)
    }
}
