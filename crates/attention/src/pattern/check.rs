//! Sees to it that a pattern fits the tensors it is used with.

use super::Pattern;
use crate::AttentionShape;

impl Pattern {
    /// Panics unless every part fits `shape`.
    pub(crate) fn check(&self, op: &str, shape: &AttentionShape) {
        let [batch, heads, seq_q, seq_k] = shape.scores();
        match self {
            Self::Full
            | Self::Causal
            | Self::Window { .. }
            | Self::Monotonic { .. }
            | Self::Sees(_) => {}
            Self::Block { size } | Self::Summaries { block: size, .. } => assert!(
                *size > 0,
                "{op}: the blocks of a pattern must have a size, got 0"
            ),
            Self::Blocks { size, seen } => {
                assert!(
                    *size > 0,
                    "{op}: the blocks of a pattern must have a size, got 0"
                );
                let blocks = seq_k.div_ceil(*size);
                assert!(
                    seen.len() == blocks,
                    "{op}: a pattern of blocks of {size} must say what each of the {blocks} \
                     blocks of seq_k = {seq_k} sees, got {}",
                    seen.len()
                );
                if let Some(block) = seen.iter().flatten().find(|&&block| block >= blocks) {
                    panic!("{op}: a block must be one of the {blocks}, got {block}");
                }
            }
            Self::Strided { stride } => {
                assert!(*stride > 0, "{op}: a stride must be at least 1, got 0");
            }
            Self::Global(places) => {
                if let Some(place) = places.iter().find(|&&place| place >= seq_k) {
                    panic!("{op}: a global place must be below seq_k = {seq_k}, got {place}");
                }
            }
            Self::Documents(ids) => {
                assert!(
                    ids.len() == batch,
                    "{op}: document ids must be given for each of the {batch} examples, got {}",
                    ids.len()
                );
                if let Some(ids) = ids.iter().find(|ids| ids.len() != seq_k) {
                    panic!(
                        "{op}: a document id must be given for each of seq_k = {seq_k} keys, got {}",
                        ids.len()
                    );
                }
            }
            Self::KeyLengths(lengths) => {
                assert!(
                    lengths.len() == batch,
                    "{op}: key lengths must be given for each of the {batch} examples, got {}",
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
                    fits(mask.dims(), shape.scores()),
                    "{op}: a dense mask must be [batch = {batch}, heads = {heads}, \
                     seq_q = {seq_q}, seq_k = {seq_k}], or 1 in place of any, got {:?}",
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

/// Whether `dims` are `full`, or 1 where one stands for all.
pub(crate) fn fits(dims: [usize; 4], full: [usize; 4]) -> bool {
    dims.iter()
        .zip(full)
        .all(|(&got, full)| got == full || got == 1)
}
