//! Where tokens are, added to what they are.
//!
//! ```text
//! sinusoidal   p(i, 2x) = sin(i / 10000^(2x / d_model)),  p(i, 2x + 1) = cos of the same
//! learned      p(i) = a vector of its own
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

/// What is added to embedded tokens; nothing, where heads learn about places by themselves.
#[derive(Module, Debug)]
pub struct AddedPositions {
    /// `[longest, d_model]`, where they are learned.
    pub table: Option<Param<Tensor<2>>>,
    #[module(skip)]
    kind: PositionEncoding,
}

impl AddedPositions {
    pub(crate) fn new(
        kind: PositionEncoding,
        d_model: usize,
        initializer: &Initializer,
        device: &Device,
    ) -> Self {
        let table = kind
            .longest()
            .map(|longest| initializer.init([longest, d_model], device));
        Self { table, kind }
    }

    /// Tokens with their places, the first of them at `first`.
    ///
    /// # Shapes
    ///
    /// - tokens: `[batch, seq, d_model]`
    /// - result: the same
    ///
    /// # Panics
    ///
    /// If there are more places than were learned.
    pub fn forward(&self, tokens: Tensor<3>, first: usize) -> Tensor<3> {
        let [_, seq, d_model] = tokens.dims();
        let places = first..first + seq;
        let positions = match (&self.table, self.kind) {
            (Some(table), _) => {
                let [longest, _] = table.dims();
                assert!(
                    places.end <= longest,
                    "positions: there are {longest} learned ones, got a sequence of {} places",
                    places.end
                );
                table.val().slice_dim(0, places) // [seq, d_model]
            }
            (None, PositionEncoding::Sinusoidal) => {
                let waves = TensorData::new(sinusoids(places, d_model), [seq, d_model]);
                Tensor::from_data(waves, (&tokens.device(), tokens.dtype()))
            }
            (None, _) => return tokens,
        };
        tokens + positions.reshape([1, seq, d_model])
    }
}

/// The waves at these places, row by row. They are worked out once.
fn sinusoids(places: Range<usize>, d_model: usize) -> Vec<f32> {
    static TABLES: Mutex<BTreeMap<usize, Vec<f32>>> = Mutex::new(BTreeMap::new());
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let table = tables.entry(d_model).or_default();
    let known = table.len() / d_model;
    if known < places.end {
        let turns: Vec<f64> = (0..d_model)
            .map(|number| 1e4f64.powf(-((number - number % 2) as f64) / d_model as f64))
            .collect();
        for place in known..places.end {
            table.extend(turns.iter().enumerate().map(|(number, turn)| {
                let angle = place as f64 * turn;
                let wave = match number % 2 {
                    0 => angle.sin(),
                    _ => angle.cos(),
                };
                wave as f32
            }));
        }
    }
    table[places.start * d_model..places.end * d_model].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_are_those_of_the_paper() {
        // Three numbers: a sine and a cosine of the place, and a slow sine.
        let slow = 1e4f64.powf(-2.0 / 3.0);
        let row = |place: f64| [place.sin(), place.cos(), (place * slow).sin()];
        let want: Vec<f32> = [2.0, 3.0]
            .into_iter()
            .flat_map(row)
            .map(|x| x as f32)
            .collect();
        assert_eq!(sinusoids(2..4, 3), want);
        // Out of what is kept, too.
        assert_eq!(sinusoids(2..4, 3), want);
        assert_eq!(sinusoids(0..2, 3)[..2], [0.0, 1.0]);
    }
}
