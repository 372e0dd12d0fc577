//! Sequences of tokens, checked where that costs nothing: on the host.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use zoo_attention::Pattern;

use crate::ModelError;

/// What a model takes: every model says its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many tokens there are; ids are below it.
    pub vocabulary: usize,
    /// Places there are positions for, if that is limited.
    pub longest: Option<usize>,
}

impl Limits {
    /// Whether a model with these limits takes the sequence, as row `row` of a batch.
    ///
    /// # Errors
    ///
    /// [`ModelError::Token`] or [`ModelError::TooLong`].
    pub fn check(&self, row: usize, ids: &[u32]) -> Result<(), ModelError> {
        let length = ids.len();
        if let Some(longest) = self.longest.filter(|longest| length > *longest) {
            return Err(ModelError::TooLong {
                row,
                length,
                longest,
            });
        }
        let outside = |id: &u32| *id as usize >= self.vocabulary;
        match ids.iter().position(outside) {
            Some(place) => Err(ModelError::Token {
                row,
                place,
                id: ids[place],
                vocabulary: self.vocabulary,
            }),
            None => Ok(()),
        }
    }
}

/// A batch of sequences of tokens, of any lengths. What comes after the end of a shorter one
/// is padding, which no model looks at.
#[derive(Debug, Clone)]
pub struct Tokens {
    ids: Tensor<2, Int>,
    lengths: Vec<usize>,
}

impl Tokens {
    /// Puts sequences side by side on a device. A batch is one place long at least, so that
    /// there is something to compute with where all sequences are empty.
    ///
    /// # Errors
    ///
    /// [`ModelError::Token`] or [`ModelError::TooLong`] if the model cannot take one of them,
    /// [`ModelError::NoRows`] if there is none.
    pub fn new<Row: AsRef<[u32]>>(
        rows: &[Row],
        limits: Limits,
        device: &Device,
    ) -> Result<Self, ModelError> {
        if rows.is_empty() {
            return Err(ModelError::NoRows);
        }
        for (row, ids) in rows.iter().enumerate() {
            limits.check(row, ids.as_ref())?;
        }
        let lengths: Vec<usize> = rows.iter().map(|row| row.as_ref().len()).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0).max(1);
        let mut ids = vec![0_i64; rows.len() * longest];
        for (row, places) in rows.iter().zip(ids.chunks_mut(longest)) {
            for (id, place) in row.as_ref().iter().zip(places) {
                *place = i64::from(*id);
            }
        }
        let ids = Tensor::from_data(TensorData::new(ids, [rows.len(), longest]), device);
        Ok(Self { ids, lengths })
    }

    /// Tokens that are on a device already: `[batch, seq]`, with the length of each row.
    /// The ids are not looked at: those outside of the vocabulary are whatever the backend
    /// makes of them.
    ///
    /// # Panics
    ///
    /// If there is not a length for each row, or one is beyond the tensor.
    pub fn of_tensor(ids: Tensor<2, Int>, lengths: Vec<usize>) -> Self {
        let [batch, seq] = ids.dims();
        assert!(
            lengths.len() == batch && lengths.iter().all(|length| *length <= seq),
            "tokens: [batch = {batch}, seq = {seq}] needs {batch} lengths up to {seq}, got {lengths:?}"
        );
        Self { ids, lengths }
    }

    /// `[batch, seq]`.
    pub fn ids(&self) -> Tensor<2, Int> {
        self.ids.clone()
    }

    /// How many tokens each row has.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// `[batch, seq]`.
    pub fn dims(&self) -> [usize; 2] {
        self.ids.dims()
    }

    /// Where somebody looks, there is no padding.
    pub(crate) fn assert_whole(&self, op: &str) {
        let [_, seq] = self.dims();
        assert!(
            self.lengths.iter().all(|length| *length == seq),
            "{op}: rows must be of one length, at least 1, got {:?}",
            self.lengths
        );
    }

    /// Hides what is padding from everybody.
    pub fn pattern(&self) -> Pattern {
        let [_, seq] = self.dims();
        shown(&self.lengths, seq)
    }

    /// One for a token, zero for padding: `[batch, seq]`, in `f32`.
    pub fn presence(&self) -> Tensor<2> {
        let [batch, seq] = self.dims();
        let numbers: Vec<f32> = (presence(&self.lengths, seq))
            .map(|is_token| f32::from(u8::from(is_token)))
            .collect();
        let options = (&self.ids.device(), DType::F32);
        Tensor::from_data(TensorData::new(numbers, [batch, seq]), options)
    }
}

/// For every place of rows of `seq`, whether it is within its row's length.
pub(crate) fn presence(lengths: &[usize], seq: usize) -> impl Iterator<Item = bool> {
    let row = move |length: &usize| {
        let length = *length;
        (0..seq).map(move |place| place < length)
    };
    lengths.iter().flat_map(row)
}

/// Shows so many places of each row of `seq`, and hides what is behind.
pub(crate) fn shown(lengths: &[usize], seq: usize) -> Pattern {
    match lengths.iter().all(|length| *length == seq) {
        true => Pattern::Full,
        false => Pattern::key_lengths(lengths),
    }
}

/// Numbers of rows, for a tensor's `select`.
pub(crate) fn row_numbers(rows: &[usize], device: &Device) -> Tensor<1, Int> {
    let numbers: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
    Tensor::from_data(TensorData::new(numbers, [rows.len()]), device)
}
