//! The decoder-only Transformer.

use super::{ATTENTIONS, Activation, LayerMechanisms, PositionEncoding, flash};
use crate::keys::{LENGTH, Values};

layer_keys! {
    /// Keys of a GPT.
    pub struct GptSpec => gpt_keys {
        layers: 4,
        activation: Activation::GeluTanh,
        positions: PositionEncoding::LEARNED,
        dropout: 0.0;
        /// Context length: tokens per training sequence.
        context: usize = 128, LENGTH;
        /// Self-attention of all layers, or a list of mechanisms that repeats.
        attention: LayerMechanisms = flash().into(), ATTENTIONS;
        /// Tie the output layer to the token embedding.
        tie_embeddings: bool = true, Values::Bool;
    }
}
