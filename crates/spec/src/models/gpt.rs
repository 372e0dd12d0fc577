//! The decoder-only Transformer.

use super::{ATTENTION, Activation, PositionEncoding, flash};
use crate::MechanismConfig;
use crate::keys::{LENGTH, Values};

layer_keys! {
    /// Keys of a GPT.
    pub struct GptSpec => gpt_keys {
        layers: 4,
        activation: Activation::GeluTanh,
        positions: PositionEncoding::LEARNED,
        dropout: 0.0;
        /// Tokens of a training sequence.
        context: usize = 128, LENGTH;
        /// Self-attention.
        attention: MechanismConfig = flash(), ATTENTION;
        /// Whether the output layer shares its weights with the embedding.
        tied: bool = true, Values::Flag;
    }
}
