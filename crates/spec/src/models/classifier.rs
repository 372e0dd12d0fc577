//! The encoder-only Transformer with a classification head.

use super::{ATTENTIONS, Activation, LayerMechanisms, Norm, Pooling, PositionEncoding, flash};
use crate::keys::Values;

layer_keys! {
    /// Keys of a classifier.
    pub struct ClassifierSpec => classifier_keys {
        layers: 2,
        activation: Activation::Gelu,
        positions: PositionEncoding::Sinusoidal,
        dropout: 0.1;
        /// Self-attention of all layers, or a list of mechanisms that repeats.
        attention: LayerMechanisms = flash().into(), ATTENTIONS;
        /// Causal attention: a position attends to itself and earlier ones, as in a decoder.
        causal: bool = false, Values::Bool;
        /// Pooling of the sequence into one vector.
        pooling: Pooling = Pooling::Mean, Values::Names(Pooling::NAMES);
        /// Pre-norm or post-norm.
        norm: Norm = Norm::Pre, Values::Names(Norm::NAMES);
        /// Final layer norm.
        final_norm: bool = true, Values::Bool;
        /// Multiply embeddings by `sqrt(d_model)`.
        scale_embeddings: bool = true, Values::Bool;
    }
}
