//! Validation of a pattern against the shape of a call.

use super::Pattern;
use crate::AttentionShape;

impl Pattern {
    /// Panics unless every part of the pattern is valid for `shape`.
    pub(crate) fn check(&self, op: &str, shape: &AttentionShape) {
        let [batch, heads, seq_q, seq_k] = shape.scores();
        match self {
            Self::Full
            | Self::Causal
            | Self::Window { .. }
            | Self::Monotonic { .. }
            | Self::Predicate(_) => {}
            Self::Block { size } | Self::SummaryColumns { block: size, .. } => {
                assert!(*size > 0, "{op}: a block size must be at least 1, got 0")
            }
            Self::Blocks { size, visible } => {
                assert!(*size > 0, "{op}: a block size must be at least 1, got 0");
                let blocks = seq_k.div_ceil(*size);
                assert!(
                    visible.len() == blocks,
                    "{op}: the visible blocks must be given for each of the {blocks} blocks of \
                     size {size} of seq_k = {seq_k}, got {}",
                    visible.len()
                );
                if let Some(block) = visible.iter().flatten().find(|&&block| block >= blocks) {
                    panic!("{op}: a block index must be below {blocks}, got {block}");
                }
            }
            Self::Strided { stride } => {
                assert!(*stride > 0, "{op}: a stride must be at least 1, got 0");
            }
            Self::Global(positions) => {
                if let Some(position) = positions.iter().find(|&&position| position >= seq_k) {
                    panic!("{op}: a global position must be below seq_k = {seq_k}, got {position}");
                }
            }
            Self::Documents(ids) => {
                assert!(
                    ids.len() == batch,
                    "{op}: expected document ids for {batch} examples (the batch size), got {}",
                    ids.len()
                );
                if let Some(ids) = ids.iter().find(|ids| ids.len() != seq_k) {
                    panic!(
                        "{op}: expected {seq_k} document ids per example (seq_k), got {}",
                        ids.len()
                    );
                }
            }
            Self::KeyLengths(lengths) => {
                assert!(
                    lengths.len() == batch,
                    "{op}: expected {batch} key lengths (the batch size), got {}",
                    lengths.len()
                );
                if let Some(length) = lengths.iter().find(|&&length| length > seq_k) {
                    panic!("{op}: a key length must be at most seq_k = {seq_k}, got {length}");
                }
            }
            Self::KeyPadding(padding) => assert!(
                padding.dims() == [batch, seq_k],
                "{op}: a key padding mask must be [batch = {batch}, seq_k = {seq_k}], got {:?}",
                padding.dims()
            ),
            Self::Dense(mask) => {
                assert!(
                    is_broadcastable(mask.dims(), shape.scores()),
                    "{op}: a dense mask must be broadcastable to [batch = {batch}, heads = {heads}, \
                     seq_q = {seq_q}, seq_k = {seq_k}], got {:?}",
                    mask.dims()
                );
            }
            Self::And(a, b) | Self::Or(a, b) => {
                a.check(op, shape);
                b.check(op, shape);
            }
        }
    }
}

/// Whether every dimension is that of `full` or 1.
pub(crate) fn is_broadcastable(dims: [usize; 4], full: [usize; 4]) -> bool {
    dims.iter()
        .zip(full)
        .all(|(&got, full)| got == full || got == 1)
}
