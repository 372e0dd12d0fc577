//! Keys that all models of attention and feed-forward layers have.

use super::{Activation, PositionEncoding};

/// Declares a struct of the keys below, with the given defaults, and of the model's own.
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
                /// Width of the hidden states.
                d_model: usize = 128, crate::keys::WIDTH;
                /// Query heads.
                heads: usize = 4, crate::keys::HEADS;
                /// Key and value heads.
                kv_heads: Option<usize> = None, crate::keys::HEADS,
                    crate::keys::Presence::Optional(
                        "as the mechanism requires, else one for each query head"
                    );
                /// Width of each attention head.
                d_head: Option<usize> = None, crate::keys::WIDTH,
                    crate::keys::Presence::Optional("`d_model / heads`");
                /// Layers; with an encoder and a decoder, of each.
                layers: usize = $layers, crate::keys::LAYERS;
                $($own)*
                /// Hidden width of the feed-forward networks.
                d_feed_forward: Option<usize> = None, crate::keys::count(1, 1 << 22),
                    crate::keys::Presence::Optional("`4 · d_model`");
                /// Activation of the feed-forward networks.
                activation: $crate::Activation = $activation,
                    crate::keys::Values::Words(crate::Activation::WORDS);
                /// Position encoding.
                positions: $crate::PositionEncoding = $positions, super::POSITIONS;
                /// Whether the queries and keys of each head are normalised (RMSNorm).
                qk_norm: bool = false, crate::keys::Values::Flag;
                /// Temperature of the attention scores: above 1 flattens the weights, below 1
                /// sharpens them.
                temperature: f64 = 1.0, crate::keys::TEMPERATURE;
                /// Cap of the attention scores: `softcap · tanh(score / softcap)`.
                softcap: Option<f64> = None, crate::keys::SOFTCAP,
                    crate::keys::Presence::Optional("no cap");
                /// Coefficient of the mean entropy of the attention weights, which is added to the
                /// training loss: above 0 sharpens attention, below 0 flattens it.
                entropy_penalty: f64 = 0.0, crate::keys::COEFFICIENT;
                /// Dropout of embeddings and of the output of each sublayer.
                dropout: f64 = $dropout, crate::keys::SHARE;
                /// Dropout within the feed-forward networks.
                feed_forward_dropout: Option<f64> = None, crate::keys::SHARE,
                    crate::keys::Presence::Optional("as `dropout`");
                /// Dropout of attention weights.
                attention_dropout: f64 = 0.0, crate::keys::SHARE;
                /// Whether linear layers and norms have a bias.
                bias: bool = true, crate::keys::Values::Flag;
                /// Epsilon of the norms.
                epsilon: f64 = 1e-5, crate::keys::POSITIVE;
            }
        }

        impl From<&$name> for crate::LayerSpec {
            fn from(spec: &$name) -> Self {
                Self {
                    d_model: spec.d_model,
                    heads: spec.heads,
                    kv_heads: spec.kv_heads,
                    d_head: spec.d_head,
                    d_feed_forward: spec.d_feed_forward.unwrap_or(4 * spec.d_model),
                    activation: spec.activation,
                    positions: spec.positions,
                    qk_norm: spec.qk_norm,
                    temperature: spec.temperature,
                    softcap: spec.softcap,
                    entropy_penalty: spec.entropy_penalty,
                    dropout: spec.dropout,
                    feed_forward_dropout: spec.feed_forward_dropout.unwrap_or(spec.dropout),
                    attention_dropout: spec.attention_dropout,
                    bias: spec.bias,
                    epsilon: spec.epsilon,
                }
            }
        }
    };
}

/// What the layers of a model have in common, every default filled in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerSpec {
    /// Width of the hidden states.
    pub d_model: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; `None` is as the mechanism requires, else one for each query head.
    pub kv_heads: Option<usize>,
    /// Width of each attention head; `None` is `d_model / heads`.
    pub d_head: Option<usize>,
    /// Hidden width of the feed-forward networks.
    pub d_feed_forward: usize,
    /// Activation of the feed-forward networks.
    pub activation: Activation,
    /// Position encoding.
    pub positions: PositionEncoding,
    /// Whether the queries and keys of each head are normalised.
    pub qk_norm: bool,
    /// Temperature of the attention scores.
    pub temperature: f64,
    /// Cap of the attention scores.
    pub softcap: Option<f64>,
    /// Coefficient of the mean entropy of the attention weights in the training loss.
    pub entropy_penalty: f64,
    /// Dropout of embeddings and of the output of each sublayer.
    pub dropout: f64,
    /// Dropout within the feed-forward networks.
    pub feed_forward_dropout: f64,
    /// Dropout of attention weights.
    pub attention_dropout: f64,
    /// Whether linear layers and norms have a bias.
    pub bias: bool,
    /// Epsilon of the norms.
    pub epsilon: f64,
}
