//! Incremental decoding of a Transformer.

use burn::tensor::{Device, Int, Tensor};

use super::{EncoderOutput, Transformer};
use crate::blocks::LayerState;
use crate::generate::checked_dims;
use crate::tokens::padding_pattern;
use crate::{Generative, ModelError, Tokens};

/// Decoding state of a [`Transformer`]: caches of the target and projections of the source.
#[derive(Debug, Clone)]
pub struct TransformerState {
    layers: Vec<LayerState>,
    /// Source length of each row, without padding.
    source_lengths: Vec<usize>,
    /// Padded source length.
    seq_k: usize,
}

impl Transformer {
    /// Encodes the source and creates a state for decoding.
    ///
    /// # Errors
    ///
    /// [`ModelError::Attention`] if the decoder's mechanism does not support incremental
    /// decoding.
    pub fn start(&self, source: &Tokens) -> Result<TransformerState, ModelError> {
        let EncoderOutput { hidden, lengths } = self.encode(source);
        Ok(TransformerState {
            layers: LayerState::start(&self.decoder.layers, "decoder_attention", Some(&hidden))?,
            source_lengths: lengths,
            seq_k: hidden.dims()[1],
        })
    }
}

impl Generative for Transformer {
    type State = TransformerState;

    fn vocabulary(&self) -> usize {
        self.target_limits().vocabulary
    }

    fn longest(&self) -> Option<usize> {
        self.target_limits().longest
    }

    fn device(&self) -> Device {
        self.target_embedding.weight.device()
    }

    fn rows(&self, state: &TransformerState) -> usize {
        state.source_lengths.len()
    }

    fn advance(&self, tokens: Tensor<2, Int>, state: &mut TransformerState) -> Tensor<2> {
        let [rows, new] = checked_dims("Transformer", &tokens, self.rows(state));
        let mut hidden = self.embed_target(tokens, state.layers[0].cache.len());
        let pattern = padding_pattern(&state.source_lengths, state.seq_k);
        for (layer, state) in self.decoder.layers.iter().zip(&mut state.layers) {
            hidden = layer.advance(hidden, state, pattern.clone());
        }
        let last = hidden.slice_dim(1, new - 1..new);
        self.predict(last).reshape([rows, self.vocabulary()])
    }

    fn select(&self, state: &TransformerState, rows: &[usize]) -> TransformerState {
        let select = |layer: &LayerState| layer.select(rows);
        TransformerState {
            layers: state.layers.iter().map(select).collect(),
            source_lengths: rows.iter().map(|row| state.source_lengths[*row]).collect(),
            seq_k: state.seq_k,
        }
    }
}
