//! Arguments of the fused scan.

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, ExtensionType};

use crate::AttentionShape;
use crate::flash::DenseMask;

/// Arguments of the op besides its tensors.
#[derive(Debug, Clone)]
pub(crate) struct ScanSettings {
    pub(crate) shape: AttentionShape,
    /// Queries attend to the keys up to their own position.
    pub(crate) is_causal: bool,
    pub(crate) map: ScanMap,
    /// The factors of queries and of keys, before the feature map.
    pub(crate) scale: [f64; 2],
}

/// The feature map of queries and keys. Contexts are weighted means, except those of retention.
#[derive(Debug, Clone)]
pub(crate) enum ScanMap {
    Elu1,
    Relu,
    /// Random features.
    Exponential(Arc<Directions>),
    /// Queries and keys are features already.
    Features,
    /// Retention: the identity, with a decay for each key/value head.
    Decay(Arc<[f64]>),
}

impl ScanMap {
    /// Whether contexts are weighted means.
    pub(crate) fn is_normalised(&self) -> bool {
        match self {
            Self::Elu1 | Self::Relu | Self::Exponential(_) | Self::Features => true,
            Self::Decay(_) => false,
        }
    }
}

/// The directions of random features, as factors of matmuls: rows are padded with zeros to whole
/// registers.
#[derive(Debug)]
pub(crate) struct Directions {
    pub(crate) count: usize,
    /// `[count, padded(d_head)]`
    pub(crate) rows: Vec<f32>,
    /// `[d_head, padded(count)]`
    pub(crate) columns: Vec<f32>,
}

impl Directions {
    /// From `[count, d_head]` in row-major order.
    pub(crate) fn new(directions: &[f32], d_head: usize) -> Self {
        let count = directions.len() / d_head;
        let (wide_head, wide_count) = (padded(d_head), padded(count));
        let mut rows = vec![0.0; count * wide_head];
        let mut columns = vec![0.0; d_head * wide_count];
        for (i, direction) in directions.chunks_exact(d_head).enumerate() {
            rows[i * wide_head..][..d_head].copy_from_slice(direction);
            for (x, element) in direction.iter().enumerate() {
                columns[x * wide_count + i] = *element;
            }
        }
        Self {
            count,
            rows,
            columns,
        }
    }
}

/// A width rounded up to whole registers of every instruction set.
pub(crate) fn padded(width: usize) -> usize {
    width.next_multiple_of(16)
}

/// The input tensors of a call.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) struct ScanInputs<B: Backend> {
    pub(crate) query: FloatTensor<B>,
    pub(crate) key: FloatTensor<B>,
    pub(crate) value: FloatTensor<B>,
    /// Keys masked for all queries: `[batch or 1, 1, seq_k, 1]`.
    #[extension_type]
    pub(crate) masked: DenseMask<B>,
}
