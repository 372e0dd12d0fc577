//! Absolute position embeddings, added to token embeddings.
//!
//! ```text
//! sinusoidal   p(i, 2x) = sin(i / 10000^(2x / d_model)),  p(i, 2x + 1) = cos of the same
//! learned      p(i) = row i of a table
//! ```
//!
//! Vaswani et al., [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use burn::module::{Module, Param};
use burn::nn::Initializer;
use burn::tensor::{Device, Tensor, TensorData};

use zoo_spec::PositionEncoding;

/// Sinusoidal or learned position embedding; the identity for encodings inside attention.
#[derive(Module, Debug)]
pub struct PositionEmbedding {
    /// `[longest, d_model]`, if learned.
    pub table: Option<Param<Tensor<2>>>,
    #[module(skip)]
    kind: PositionEncoding,
}

impl PositionEmbedding {
    pub(crate) fn new(
        kind: PositionEncoding,
        d_model: usize,
        initializer: &Initializer,
        device: &Device,
    ) -> Self {
        let table = kind
            .max_positions()
            .map(|longest| initializer.init([longest, d_model], device));
        Self { table, kind }
    }

    /// Adds position embeddings from position `first` on.
    ///
    /// # Shapes
    ///
    /// - x: `[batch, seq, d_model]`
    /// - output: `[batch, seq, d_model]`
    ///
    /// # Panics
    ///
    /// If a position exceeds the learned table.
    pub fn forward(&self, x: Tensor<3>, first: usize) -> Tensor<3> {
        let [_, seq, d_model] = x.dims();
        let range = first..first + seq;
        let positions = match (&self.table, self.kind) {
            (Some(table), _) => {
                let [longest, _] = table.dims();
                assert!(
                    range.end <= longest,
                    "position embedding: sequence length {} exceeds the maximum of {longest}",
                    range.end
                );
                table.val().slice_dim(0, range) // [seq, d_model]
            }
            (None, PositionEncoding::Sinusoidal) => {
                let values = TensorData::new(sinusoids(range, d_model), [seq, d_model]);
                Tensor::from_data(values, (&x.device(), x.dtype()))
            }
            (None, _) => return x,
        };
        x + positions.reshape([1, seq, d_model])
    }
}

/// Sinusoidal embeddings of these positions, row by row, from a table that is computed once.
fn sinusoids(range: Range<usize>, d_model: usize) -> Vec<f32> {
    static TABLES: Mutex<BTreeMap<usize, Vec<f32>>> = Mutex::new(BTreeMap::new());
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let table = tables.entry(d_model).or_default();
    let computed = table.len() / d_model;
    if computed < range.end {
        let frequencies: Vec<f64> = (0..d_model)
            .map(|i| 1e4f64.powf(-((i - i % 2) as f64) / d_model as f64))
            .collect();
        for position in computed..range.end {
            table.extend(frequencies.iter().enumerate().map(|(i, frequency)| {
                let angle = position as f64 * frequency;
                let value = if i % 2 == 0 { angle.sin() } else { angle.cos() };
                value as f32
            }));
        }
    }
    table[range.start * d_model..range.end * d_model].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sinusoids_match_the_paper() {
        // d_model = 3: sine and cosine of the position, and a sine of lower frequency.
        let slow = 1e4f64.powf(-2.0 / 3.0);
        let row = |position: f64| [position.sin(), position.cos(), (position * slow).sin()];
        let expected = [2.0, 3.0].into_iter().flat_map(row);
        let expected: Vec<f32> = expected.map(|x| x as f32).collect();
        assert_eq!(sinusoids(2..4, 3), expected);
        // Again, from the table.
        assert_eq!(sinusoids(2..4, 3), expected);
        assert_eq!(sinusoids(0..2, 3)[..2], [0.0, 1.0]);
    }
}
