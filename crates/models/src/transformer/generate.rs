//! Incremental decoding of a Transformer.

use burn::tensor::{Device, Int, Tensor};

use super::{EncoderOutput, Transformer};
use crate::blocks::{DecoderLayer, DecoderLayerState};
use crate::tokens::padding_pattern;
use crate::{Generative, ModelError, Tokens};

/// Decoding state of a [`Transformer`]: caches of the target and projections of the source.
#[derive(Debug, Clone)]
pub struct TransformerState {
    layers: Vec<DecoderLayerState>,
    /// Source length of each row, without padding.
    source_lengths: Vec<usize>,
    /// Padded source length.
    seq_k: usize,
    /// Position of the next target token.
    position: usize,
}

impl Transformer {
    /// Encodes the source and creates a state for decoding.
    ///
    /// # Errors
    ///
    /// [`ModelError::Attention`] if the decoder's mechanism does not support incremental
    /// decoding.
    ///
    /// # Panics
    ///
    /// As [`encode`](Self::encode).
    pub fn start(&self, source: &Tokens) -> Result<TransformerState, ModelError> {
        self.start_from(&self.encode(source))
    }

    /// [`start`](Self::start) with the encoder output.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_from(&self, source: &EncoderOutput) -> Result<TransformerState, ModelError> {
        let start = |layer: &DecoderLayer| {
            let state = layer.start(&source.hidden);
            state.map_err(|source| ModelError::Attention {
                field: "decoder_attention",
                source,
            })
        };
        let layers = self.decoder.layers.iter().map(start);
        Ok(TransformerState {
            layers: layers.collect::<Result<_, _>>()?,
            source_lengths: source.lengths.clone(),
            seq_k: source.hidden.dims()[1],
            position: 0,
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
        let [rows, new] = tokens.dims();
        assert!(
            rows == state.source_lengths.len() && new > 0,
            "Transformer: tokens must be [rows = {}, new], at least one new, got {:?}",
            state.source_lengths.len(),
            tokens.dims()
        );
        let mut hidden = self.embed_target(tokens, state.position);
        state.position += new;
        let pattern = padding_pattern(&state.source_lengths, state.seq_k);
        for (layer, state) in self.decoder.layers.iter().zip(&mut state.layers) {
            hidden = layer.advance(hidden, state, pattern.clone());
        }
        let last = hidden.slice_dim(1, new - 1..new);
        self.predict(last).reshape([rows, self.vocabulary()])
    }

    fn select(&self, state: &TransformerState, rows: &[usize]) -> TransformerState {
        let select = |layer: &DecoderLayerState| layer.select(rows);
        TransformerState {
            layers: state.layers.iter().map(select).collect(),
            source_lengths: rows.iter().map(|row| state.source_lengths[*row]).collect(),
            ..*state
        }
    }
}
