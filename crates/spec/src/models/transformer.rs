//! The encoder-decoder Transformer.

use super::{ATTENTION, Activation, Norm, PositionEncoding, Tying, flash};
use crate::MechanismConfig;
use crate::keys::{LAYERS, Presence, Values};

layer_keys! {
    /// Keys of a Transformer.
    pub struct TransformerSpec => transformer_keys {
        layers: 2,
        activation: Activation::Relu,
        positions: PositionEncoding::Sinusoidal,
        dropout: 0.1;
        /// Layers of the encoder.
        encoder_layers: Option<usize> = None, LAYERS, Presence::Optional("as many as `layers`");
        /// Layers of the decoder.
        decoder_layers: Option<usize> = None, LAYERS, Presence::Optional("as many as `layers`");
        /// Self-attention of the encoder.
        encoder_attention: MechanismConfig = flash(), ATTENTION;
        /// Self-attention of the decoder.
        decoder_attention: MechanismConfig = flash(), ATTENTION;
        /// Cross-attention of the decoder.
        cross_attention: MechanismConfig = flash(), ATTENTION;
        /// Where layers normalise.
        norm: Norm = Norm::Pre, Values::Words(Norm::WORDS);
        /// Whether a norm follows the last layer of encoder and decoder.
        final_norm: bool = true, Values::Flag;
        /// Which embeddings share their weights.
        tying: Tying = Tying::Decoder, Values::Words(Tying::WORDS);
        /// Whether embeddings are multiplied by `sqrt(d_model)`.
        scale_embeddings: bool = true, Values::Flag;
    }
}
