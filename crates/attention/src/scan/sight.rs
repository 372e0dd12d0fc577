//! What of a pattern can be seen without a matrix.

use burn::tensor::{Bool, Device, Tensor};

use crate::finite::{FiniteRows, poison};
use crate::pattern::either;
use crate::{AttentionShape, Pattern};

/// Who sees whom, as far as it can be said of keys alone.
pub(crate) struct Sight {
    /// Queries see keys up to their own place.
    pub(crate) is_causal: bool,
    /// `[batch, 1, seq_k, 1]`: keys that nobody sees.
    pub(crate) hidden: Option<Tensor<4, Bool>>,
}

impl Sight {
    /// Keys or values with zeros for those that nobody sees.
    pub(crate) fn clear(&self, tensor: Tensor<4>) -> Tensor<4> {
        match &self.hidden {
            Some(hidden) => {
                let dims = tensor.dims();
                tensor.mask_fill(hidden.clone().expand(dims), 0.0)
            }
            None => tensor,
        }
    }

    /// Keys and values with zeros for those that nobody sees and, where queries see no further
    /// than their own position, for elements that are not finite; and what makes the queries
    /// NaN that do see one of these, `[batch, heads, seq_q, 1]`.
    ///
    /// Sums over chunks multiply what is ahead of a query by zero, which NaN survives.
    pub(crate) fn finite(
        &self,
        key: Tensor<4>,
        value: Tensor<4>,
        shape: &AttentionShape,
        assume_finite: bool,
    ) -> (Tensor<4>, Tensor<4>, Option<Tensor<4>>) {
        let [key, value] = [key, value].map(|tensor| self.clear(tensor));
        if !self.is_causal || assume_finite {
            return (key, value, None);
        }
        let [key, value] = [key, value].map(FiniteRows::of);
        let [batch, heads, seq_q, seq_k] = shape.scores();
        let kv_heads = shape.kv_heads;
        // The last query is aligned with the last key; those before the first key see nothing.
        let met = (key.infinite + value.infinite).cumsum(2); // [batch, kv_heads, seq_k, 1]
        let met = if seq_q <= seq_k {
            met.slice_dim(2, seq_k - seq_q..seq_k)
        } else {
            let options = (&met.device(), met.dtype());
            let zeros = Tensor::zeros([batch, kv_heads, seq_q - seq_k, 1], options);
            Tensor::cat(vec![zeros, met], 2)
        };
        let met = met
            .reshape([batch, kv_heads, 1, seq_q])
            .expand([batch, kv_heads, shape.group(), seq_q])
            .reshape([batch, heads, seq_q, 1]);
        (key.finite, value.finite, Some(poison(met)))
    }

    /// Panics unless nobody sees ahead.
    pub(crate) fn check_causal(&self, op: &str, pattern: &Pattern) {
        assert!(
            self.is_causal,
            "{op}: it is causal, so the pattern must be causal, got {}",
            pattern.kind()
        );
    }

    /// Reads it off a pattern.
    pub(crate) fn of(op: &str, pattern: &Pattern, shape: &AttentionShape, device: &Device) -> Self {
        let (is_causal, hidden) = match pattern {
            Pattern::Full => (false, None),
            Pattern::Causal => (true, None),
            Pattern::KeyLengths(_) | Pattern::KeyPadding(_) => {
                let hidden = pattern.hidden(op, shape, device);
                (false, hidden.map(|hidden| hidden.swap_dims(2, 3)))
            }
            Pattern::And(a, b) => {
                let [a, b] = [a, b].map(|part| Self::of(op, part, shape, device));
                (a.is_causal || b.is_causal, either(a.hidden, b.hidden))
            }
            other => panic!(
                "{op}: it accepts full and causal patterns, key lengths and key padding only, got {}",
                other.kind()
            ),
        };
        Self { is_causal, hidden }
    }
}
