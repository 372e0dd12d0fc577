//! Incremental decoding of a GPT.

use burn::tensor::{Device, Int, Tensor};
use zoo_attention::Pattern;

use super::Gpt;
use crate::blocks::LayerState;
use crate::generate::checked_dims;
use crate::{Generative, ModelError};

/// Decoding state of a [`Gpt`]: a key/value cache for each layer.
#[derive(Debug, Clone)]
pub struct GptState {
    layers: Vec<LayerState>,
    rows: usize,
}

impl Gpt {
    /// Creates an empty state for `rows` sequences, at least one.
    ///
    /// # Errors
    ///
    /// [`ModelError::Attention`] if the mechanism does not support incremental decoding.
    pub fn start(&self, rows: usize) -> Result<GptState, ModelError> {
        assert!(rows > 0, "GPT: a state needs at least one row, got 0");
        let layers = LayerState::start(&self.layers, "attention", None)?;
        Ok(GptState { layers, rows })
    }
}

impl Generative for Gpt {
    type State = GptState;

    fn vocabulary(&self) -> usize {
        self.limits().vocabulary
    }

    fn longest(&self) -> Option<usize> {
        self.limits().longest
    }

    fn device(&self) -> Device {
        self.embedding.weight.device()
    }

    fn rows(&self, state: &GptState) -> usize {
        state.rows
    }

    fn advance(&self, tokens: Tensor<2, Int>, state: &mut GptState) -> Tensor<2> {
        let [rows, new] = checked_dims("GPT", &tokens, state.rows);
        let mut hidden = self.embed(tokens, state.layers[0].cache.len());
        for (layer, state) in self.layers.iter().zip(&mut state.layers) {
            hidden = layer.advance(hidden, state, Pattern::Full);
        }
        let last = hidden.slice_dim(1, new - 1..new);
        self.predict(last).reshape([rows, self.vocabulary()])
    }

    fn select(&self, state: &GptState, rows: &[usize]) -> GptState {
        let select = |layer: &LayerState| layer.select(rows);
        GptState {
            layers: state.layers.iter().map(select).collect(),
            rows: rows.len(),
        }
    }
}
