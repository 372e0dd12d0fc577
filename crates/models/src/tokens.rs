//! Batches of token sequences, validated on the host.

use std::fmt::Display;

use burn::tensor::{Device, Int, Tensor, TensorData};
use zoo_attention::Pattern;

use crate::ModelError;

/// Limits of a model's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Vocabulary size; token ids are below it.
    pub vocabulary: usize,
    /// Maximum sequence length (context), if limited.
    pub longest: Option<usize>,
}

impl Limits {
    pub(crate) fn new(vocabulary: usize, longest: Option<usize>) -> Self {
        Self {
            vocabulary,
            longest,
        }
    }

    /// These limits for mechanisms that support sequences up to this length, if that is limited.
    pub(crate) fn with_max_length(self, max_length: Option<usize>) -> Self {
        let limits = [self.longest, max_length].into_iter().flatten();
        Self {
            longest: limits.min(),
            ..self
        }
    }

    /// Checks a sequence, whose name appears in the error.
    ///
    /// # Errors
    ///
    /// [`ModelError::Token`] or [`ModelError::TooLong`].
    pub fn check(&self, sequence: impl Display, ids: &[u32]) -> Result<(), ModelError> {
        let length = ids.len();
        if let Some(longest) = self.longest.filter(|longest| length > *longest) {
            return Err(ModelError::TooLong {
                sequence: sequence.to_string(),
                length,
                max: longest,
            });
        }
        let is_outside = |id: &u32| *id as usize >= self.vocabulary;
        match ids.iter().position(is_outside) {
            Some(position) => Err(ModelError::Token {
                sequence: sequence.to_string(),
                position,
                id: ids[position],
                vocabulary: self.vocabulary,
            }),
            None => Ok(()),
        }
    }
}

/// A batch of token sequences of different lengths, padded at the end. Padding is masked in every
/// model.
#[derive(Debug, Clone)]
pub struct Tokens {
    ids: Tensor<2, Int>,
    lengths: Vec<usize>,
}

impl Tokens {
    /// Pads and moves sequences to a device. The padded length is at least 1, so that a batch of
    /// empty sequences is not an empty tensor.
    ///
    /// # Errors
    ///
    /// [`ModelError::Token`] or [`ModelError::TooLong`] if a sequence exceeds the limits,
    /// [`ModelError::EmptyBatch`] if there are no rows.
    pub fn new<Row: AsRef<[u32]>>(
        rows: &[Row],
        limits: Limits,
        device: &Device,
    ) -> Result<Self, ModelError> {
        if rows.is_empty() {
            return Err(ModelError::EmptyBatch);
        }
        for (row, ids) in rows.iter().enumerate() {
            limits.check(format_args!("row {row}"), ids.as_ref())?;
        }
        let lengths: Vec<usize> = rows.iter().map(|row| row.as_ref().len()).collect();
        let seq = lengths.iter().copied().max().unwrap_or(0).max(1);
        let mut ids = vec![0_i64; rows.len() * seq];
        for (row, padded) in rows.iter().zip(ids.chunks_mut(seq)) {
            for (id, slot) in row.as_ref().iter().zip(padded) {
                *slot = i64::from(*id);
            }
        }
        let ids = Tensor::from_data(TensorData::new(ids, [rows.len(), seq]), device);
        Ok(Self { ids, lengths })
    }

    /// Wraps ids `[batch, seq]` that are already on a device. The ids are not validated: the
    /// result for ids outside of the vocabulary depends on the backend.
    ///
    /// # Panics
    ///
    /// If there is not one length for each row, or a length exceeds `seq`.
    pub fn from_tensor(ids: Tensor<2, Int>, lengths: Vec<usize>) -> Self {
        let [batch, seq] = ids.dims();
        assert!(
            lengths.len() == batch && lengths.iter().all(|length| *length <= seq),
            "tokens: [batch = {batch}, seq = {seq}] needs {batch} lengths up to {seq}, got {lengths:?}"
        );
        Self { ids, lengths }
    }

    /// Token ids, `[batch, seq]`.
    pub fn ids(&self) -> Tensor<2, Int> {
        self.ids.clone()
    }

    /// Number of tokens in each row, without padding.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// `[batch, seq]`.
    pub fn dims(&self) -> [usize; 2] {
        self.ids.dims()
    }

    pub(crate) fn assert_unpadded(&self, op: &str) {
        let [_, seq] = self.dims();
        assert!(
            self.lengths.iter().all(|length| *length == seq),
            "{op}: attention weights need sequences of equal, non-zero length, got {:?}",
            self.lengths
        );
    }

    /// Pattern that masks padding.
    pub fn pattern(&self) -> Pattern {
        let [_, seq] = self.dims();
        padding_pattern(&self.lengths, seq)
    }
}

/// Whether each position of the rows, padded to `seq`, is a token.
pub(crate) fn is_token(lengths: &[usize], seq: usize) -> impl Iterator<Item = bool> {
    let row = move |&length: &usize| (0..seq).map(move |position| position < length);
    lengths.iter().flat_map(row)
}

/// Pattern that masks the padding of rows padded to `seq`.
pub(crate) fn padding_pattern(lengths: &[usize], seq: usize) -> Pattern {
    if lengths.iter().all(|length| *length == seq) {
        Pattern::Full
    } else {
        Pattern::key_lengths(lengths)
    }
}

/// Row indices for `Tensor::select`.
pub(crate) fn row_indices(rows: &[usize], device: &Device) -> Tensor<1, Int> {
    let indices: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
    Tensor::from_data(TensorData::new(indices, [rows.len()]), device)
}
