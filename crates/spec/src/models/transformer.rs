//! The encoder-decoder Transformer.

use super::{
    ATTENTION, ATTENTIONS, Activation, LayerMechanisms, Norm, PositionEncoding, Tying, flash,
};
use crate::MechanismConfig;
use crate::keys::{LAYERS, Presence, Values};

layer_keys! {
    /// Keys of a Transformer.
    pub struct TransformerSpec => transformer_keys {
        layers: 2,
        activation: Activation::Relu,
        positions: PositionEncoding::Sinusoidal,
        dropout: 0.1;
        /// Number of encoder layers.
        encoder_layers: Option<usize> = None, LAYERS, Presence::Optional("`layers`");
        /// Number of decoder layers.
        decoder_layers: Option<usize> = None, LAYERS, Presence::Optional("`layers`");
        /// Self-attention of the encoder, of all layers or as a list that repeats.
        encoder_attention: LayerMechanisms = flash().into(), ATTENTIONS;
        /// Self-attention of the decoder, of all layers or as a list that repeats.
        decoder_attention: LayerMechanisms = flash().into(), ATTENTIONS;
        /// Cross-attention of the decoder.
        cross_attention: MechanismConfig = flash(), ATTENTION;
        /// Pre-norm or post-norm.
        norm: Norm = Norm::Pre, Values::Names(Norm::NAMES);
        /// Final layer norm of encoder and decoder.
        final_norm: bool = true, Values::Bool;
        /// Weight tying of embeddings and output layer.
        tie_embeddings: Tying = Tying::Decoder, Values::Names(Tying::NAMES);
        /// Multiply embeddings by `sqrt(d_model)`.
        scale_embeddings: bool = true, Values::Bool;
    }
}
