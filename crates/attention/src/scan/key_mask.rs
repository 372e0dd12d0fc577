//! Masks of linear attention: causal order and masked keys.

use burn::tensor::{Bool, Device, Tensor};

use crate::finite::{FiniteRows, poison};
use crate::pattern::mask_union;
use crate::shape::pad_rows;
use crate::{AttentionShape, Pattern};

/// A pattern that masks keys for all queries alike, apart from causal order.
pub(crate) struct KeyMask {
    /// Queries attend to the keys up to their own position.
    pub(crate) is_causal: bool,
    /// `[batch, 1, seq_k, 1]`: keys masked for every query.
    pub(crate) masked: Option<Tensor<4, Bool>>,
}

impl KeyMask {
    /// Panics if the pattern is not one that linear attention supports.
    pub(crate) fn from_pattern(
        op: &str,
        pattern: &Pattern,
        shape: &AttentionShape,
        device: &Device,
    ) -> Self {
        let (is_causal, masked) = match pattern {
            Pattern::Full => (false, None),
            Pattern::Causal => (true, None),
            Pattern::KeyLengths(_) | Pattern::KeyPadding(_) => {
                let masked = pattern.dense_mask(op, shape, device);
                (false, masked.map(|masked| masked.swap_dims(2, 3)))
            }
            Pattern::And(a, b) => {
                let [a, b] = [a, b].map(|part| Self::from_pattern(op, part, shape, device));
                (a.is_causal || b.is_causal, mask_union(a.masked, b.masked))
            }
            other => panic!(
                "{op}: it accepts full and causal patterns, key lengths and key padding only, got {}",
                other.kind()
            ),
        };
        Self { is_causal, masked }
    }

    /// The mask of a mechanism that cannot be causal for this reason. Panics if the pattern does not
    /// only mask keys for all queries.
    pub(crate) fn of_all_queries(
        op: &str,
        reason: &str,
        pattern: &Pattern,
        shape: &AttentionShape,
        device: &Device,
    ) -> Self {
        check_all_queries(op, reason, pattern);
        Self::from_pattern(op, pattern, shape, device)
    }

    /// Panics unless the mask is causal.
    pub(crate) fn check_causal(&self, op: &str, pattern: &Pattern) {
        assert!(
            self.is_causal,
            "{op}: it is causal, so the pattern must be causal, got {}",
            pattern.kind()
        );
    }

    /// Sets masked keys or values to zero.
    pub(crate) fn clear(&self, tensor: Tensor<4>) -> Tensor<4> {
        match &self.masked {
            Some(masked) => {
                let dims = tensor.dims();
                tensor.mask_fill(masked.clone().expand(dims), 0.0)
            }
            None => tensor,
        }
    }

    /// Keys and values with zeros for masked rows and, if causal, for non-finite elements; and a
    /// tensor `[batch, heads, seq_q, 1]` to add to the context, which is NaN for the queries that
    /// attend to a non-finite row.
    ///
    /// Chunked sums multiply the keys after a query by zero, which would propagate NaN.
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
        let [key, value] = [key, value].map(FiniteRows::new);
        let [batch, heads, seq_q, seq_k] = shape.scores();
        let kv_heads = shape.kv_heads;
        // Aligned at the end; queries before the first key are fully masked.
        let counts = (key.non_finite + value.non_finite).cumsum(2); // [batch, kv_heads, seq_k, 1]
        let counts = if seq_q <= seq_k {
            counts.slice_dim(2, seq_k - seq_q..seq_k)
        } else {
            pad_rows(counts, [seq_q - seq_k, 0], 0.0)
        };
        let counts = counts
            .reshape([batch, kv_heads, 1, seq_q])
            .expand([batch, kv_heads, shape.group(), seq_q])
            .reshape([batch, heads, seq_q, 1]);
        (key.finite, value.finite, Some(poison(counts)))
    }
}

fn check_all_queries(op: &str, reason: &str, pattern: &Pattern) {
    match pattern {
        Pattern::Full | Pattern::KeyLengths(_) | Pattern::KeyPadding(_) => {}
        Pattern::And(a, b) => {
            check_all_queries(op, reason, a);
            check_all_queries(op, reason, b);
        }
        Pattern::Causal => panic!("{op}: the pattern must not be causal: {reason}"),
        other => panic!(
            "{op}: it accepts the full pattern, key lengths and key padding only, got {}",
            other.kind()
        ),
    }
}
