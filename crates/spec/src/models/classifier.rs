//! The encoder-only Transformer with a classification head.

use super::{ATTENTION, Activation, Norm, Pooling, PositionEncoding, flash};
use crate::MechanismConfig;
use crate::keys::Values;

layer_keys! {
    /// Keys of a classifier.
    pub struct ClassifierSpec => classifier_keys {
        layers: 2,
        activation: Activation::Gelu,
        positions: PositionEncoding::Sinusoidal,
        dropout: 0.1;
        /// Self-attention.
        attention: MechanismConfig = flash(), ATTENTION;
        /// How a sequence is pooled into one vector.
        pooling: Pooling = Pooling::Mean, Values::Words(Pooling::WORDS);
        /// Where layers normalise.
        norm: Norm = Norm::Pre, Values::Words(Norm::WORDS);
        /// Whether a norm follows the last layer.
        final_norm: bool = true, Values::Flag;
        /// Whether embeddings are multiplied by `sqrt(d_model)`.
        scale_embeddings: bool = true, Values::Flag;
    }
}
