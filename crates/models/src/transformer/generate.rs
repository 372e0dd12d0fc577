//! A Transformer token by token.

use burn::tensor::{Device, Int, Tensor};

use super::{Encoded, Transformer};
use crate::blocks::{DecoderLayer, DecoderLayerState};
use crate::tokens::shown;
use crate::{Generative, ModelError, Tokens};

/// What a [`Transformer`] keeps of the source, and of the target so far.
#[derive(Debug, Clone)]
pub struct TransformerState {
    layers: Vec<DecoderLayerState>,
    /// How long the source of each row is, of `source` places.
    lengths: Vec<usize>,
    source: usize,
    /// Tokens of the target that were taken in.
    places: usize,
}

impl Transformer {
    /// Reads a source, for targets to be made of it.
    ///
    /// # Errors
    ///
    /// [`ModelError::CannotDecode`] if the target's mechanism cannot go token by token.
    ///
    /// # Panics
    ///
    /// As [`encode`](Self::encode).
    pub fn start(&self, source: &Tokens) -> Result<TransformerState, ModelError> {
        self.start_from(&self.encode(source))
    }

    /// The same, of a source that was read.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_from(&self, source: &Encoded) -> Result<TransformerState, ModelError> {
        let start = |layer: &DecoderLayer| {
            let state = layer.start(&source.places);
            state.map_err(|source| ModelError::CannotDecode {
                field: "decoder_mechanism",
                source,
            })
        };
        let layers = self.decoder.layers.iter().map(start);
        Ok(TransformerState {
            layers: layers.collect::<Result<_, _>>()?,
            lengths: source.lengths.clone(),
            source: source.places.dims()[1],
            places: 0,
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
        state.lengths.len()
    }

    fn advance(&self, tokens: Tensor<2, Int>, state: &mut TransformerState) -> Tensor<2> {
        let [rows, new] = tokens.dims();
        assert!(
            rows == state.lengths.len() && new > 0,
            "Transformer: tokens must be [rows = {}, new], at least one new, got {:?}",
            state.lengths.len(),
            tokens.dims()
        );
        let mut places = self.embedded_target(tokens, state.places);
        state.places += new;
        let pattern = shown(&state.lengths, state.source);
        for (layer, state) in self.decoder.layers.iter().zip(&mut state.layers) {
            places = layer.advance(places, state, pattern.clone());
        }
        let last = places.slice_dim(1, new - 1..new);
        self.predicted(last).reshape([rows, self.vocabulary()])
    }

    fn select(&self, state: &TransformerState, rows: &[usize]) -> TransformerState {
        let select = |layer: &DecoderLayerState| layer.select(rows);
        TransformerState {
            layers: state.layers.iter().map(select).collect(),
            lengths: rows.iter().map(|row| state.lengths[*row]).collect(),
            ..*state
        }
    }
}
