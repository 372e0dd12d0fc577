//! How much there is to multiply.

use super::MultiHeadAttention;
use crate::mechanisms::strided_pattern;
use crate::mechanisms::{MechanismConfig, as_flash, within};
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
        let by_state = |features: usize| {
            // Keys into the state, queries out of it.
            let rows = heads * seq_q + self.kv_heads * seq_k;
            2.0 * (rows * features * d_head) as f64
        };
        let options = AttentionOptions::new().with_pattern(match causal {
            true => Pattern::Causal,
            false => Pattern::Full,
        });
        // Queries go through a matrix, or a place is predicted from them by one.
        let through_matrix = match self.matrix {
            Some(_) => 2.0 * (heads * seq_q * d_head * d_head) as f64,
            None => 0.0,
        };
        let seen = match self.mechanism {
            MechanismConfig::Linear { .. } | MechanismConfig::Retention { .. } => {
                return by_state(d_head);
            }
            MechanismConfig::Performer { features, .. } => return by_state(features),
            MechanismConfig::Lsh { bucket, rounds, .. } => {
                // The own chunk and the one before, in each round.
                let keys = (2 * bucket * rounds).min(seq_k);
                return 4.0 * (heads * seq_q * keys * d_head) as f64;
            }
            MechanismConfig::Strided { stride } => {
                let stride = MechanismConfig::stride(stride, seq_k);
                within(&options, strided_pattern(stride))
            }
            MechanismConfig::Fixed { block, summary } => {
                let block = MechanismConfig::stride(block, seq_k);
                within(&options, Pattern::fixed(block, summary))
            }
            _ => as_flash(&self.mechanism, &options, seq_k).unwrap_or(options),
        };
        let share = seen.pattern.plan(&shape, [1, 1]).density();
        let pairs = share * (heads * seq_q * seq_k) as f64;
        // Scores, and what they weigh.
        pairs * 4.0 * d_head as f64 + through_matrix
    }
}
