//! Keys of Transformer layers, common to several models.

use super::{Activation, PositionEncoding};

/// Declares a struct of the keys below, with the given defaults, and the model's own keys.
macro_rules! layer_keys {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident => $fields:ident {
            layers: $layers:expr,
            activation: $activation:expr,
            positions: $positions:expr,
            dropout: $dropout:expr;
            $($own:tt)*
        }
    ) => {
        crate::keys! {
            $(#[doc = $about])+
            pub struct $name => $fields {
                /// Model (embedding) dimension.
                d_model: usize = 128, crate::keys::WIDTH;
                /// Number of attention (query) heads.
                n_heads: usize = 4, crate::keys::HEADS;
                /// Number of key and value heads.
                n_heads_kv: Option<usize> = None, crate::keys::HEADS,
                    crate::keys::Presence::Optional("as the mechanism requires, else `n_heads`");
                /// Dimension of each attention head.
                d_head: Option<usize> = None, crate::keys::WIDTH,
                    crate::keys::Presence::Optional("`d_model / n_heads`");
                /// Number of layers; in a transformer, of the encoder and of the decoder.
                layers: usize = $layers, crate::keys::LAYERS;
                $($own)*
                /// Feed-forward hidden size.
                d_feed_forward: Option<usize> = None, crate::keys::count(1, 1 << 22),
                    crate::keys::Presence::Optional("`4 · d_model`");
                /// Feed-forward activation.
                activation: $crate::Activation = $activation,
                    crate::keys::Values::Names(crate::Activation::NAMES);
                /// Position encoding: sinusoidal, learned, rotary, ALiBi or none.
                positions: $crate::PositionEncoding = $positions,
                    crate::keys::choice("positions", crate::PositionEncoding::KINDS);
                /// RMSNorm instead of layer norm: rows are divided by their root mean square, without a
                /// mean and biases.
                rms_norm: bool = false, crate::keys::Values::Bool;
                /// RMSNorm of the queries and keys of each head (QK-norm).
                qk_norm: bool = false, crate::keys::Values::Bool;
                /// Multiply the output of attention by a sigmoid gate, computed from its input.
                output_gate: bool = false, crate::keys::Values::Bool;
                /// Softmax temperature of the attention scores: above 1 flattens, below 1 sharpens.
                temperature: f64 = 1.0, crate::keys::TEMPERATURE;
                /// Softcap of the attention scores: `softcap · tanh(score / softcap)`.
                softcap: Option<f64> = None, crate::keys::SOFTCAP,
                    crate::keys::Presence::Optional("no cap");
                /// Coefficient of the mean attention entropy in the training loss: above 0 sharpens
                /// attention, below 0 flattens it.
                entropy_penalty: f64 = 0.0, crate::keys::COEFFICIENT;
                /// Dropout probability (embeddings and sublayer outputs).
                dropout: f64 = $dropout, crate::keys::PROBABILITY;
                /// Dropout probability inside the feed-forward networks.
                feed_forward_dropout: Option<f64> = None, crate::keys::PROBABILITY,
                    crate::keys::Presence::Optional("`dropout`");
                /// Dropout probability for attention weights.
                attention_dropout: f64 = 0.0, crate::keys::PROBABILITY;
                /// Bias in linear layers and layer norms.
                bias: bool = true, crate::keys::Values::Bool;
                /// Bias of the query, key and value projections.
                qkv_bias: Option<bool> = None, crate::keys::Values::Bool,
                    crate::keys::Presence::Optional("`bias`");
                /// Epsilon of layer norms, RMSNorms and QK-norm.
                epsilon: f64 = 1e-5, crate::keys::POSITIVE;
            }
        }

        impl From<&$name> for crate::LayerSpec {
            fn from(spec: &$name) -> Self {
                Self {
                    d_model: spec.d_model,
                    n_heads: spec.n_heads,
                    n_heads_kv: spec.n_heads_kv,
                    d_head: spec.d_head,
                    d_feed_forward: spec.d_feed_forward.unwrap_or(4 * spec.d_model),
                    activation: spec.activation,
                    positions: spec.positions,
                    rms_norm: spec.rms_norm,
                    qk_norm: spec.qk_norm,
                    output_gate: spec.output_gate,
                    temperature: spec.temperature,
                    softcap: spec.softcap,
                    entropy_penalty: spec.entropy_penalty,
                    dropout: spec.dropout,
                    feed_forward_dropout: spec.feed_forward_dropout.unwrap_or(spec.dropout),
                    attention_dropout: spec.attention_dropout,
                    bias: spec.bias,
                    qkv_bias: spec.qkv_bias.unwrap_or(spec.bias),
                    epsilon: spec.epsilon,
                }
            }
        }
    };
}

/// The layer keys of a model, with defaults resolved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerSpec {
    /// Model (embedding) dimension.
    pub d_model: usize,
    /// Number of attention (query) heads.
    pub n_heads: usize,
    /// Number of key and value heads; `None` is as the mechanism requires, else `n_heads`.
    pub n_heads_kv: Option<usize>,
    /// Dimension of each attention head; `None` is `d_model / n_heads`.
    pub d_head: Option<usize>,
    /// Feed-forward hidden size.
    pub d_feed_forward: usize,
    /// Feed-forward activation.
    pub activation: Activation,
    /// Position encoding.
    pub positions: PositionEncoding,
    /// RMSNorm instead of layer norm.
    pub rms_norm: bool,
    /// RMSNorm of the queries and keys of each head.
    pub qk_norm: bool,
    /// A sigmoid gate of the output of attention.
    pub output_gate: bool,
    /// Softmax temperature of the attention scores.
    pub temperature: f64,
    /// Softcap of the attention scores.
    pub softcap: Option<f64>,
    /// Coefficient of the mean attention entropy in the training loss.
    pub entropy_penalty: f64,
    /// Dropout probability for embeddings and sublayer outputs.
    pub dropout: f64,
    /// Dropout probability inside the feed-forward networks.
    pub feed_forward_dropout: f64,
    /// Dropout probability for attention weights.
    pub attention_dropout: f64,
    /// Bias in linear layers and layer norms.
    pub bias: bool,
    /// Bias of the query, key and value projections.
    pub qkv_bias: bool,
    /// Epsilon of layer norms, RMSNorms and QK-norm.
    pub epsilon: f64,
}
