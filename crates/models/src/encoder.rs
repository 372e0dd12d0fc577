//! Transformer encoder over embedded inputs: burn-nn's `TransformerEncoder` with any mechanism.
//!
//! [`import::burn_encoder`](crate::weights::import::burn_encoder) imports the weights of burn-nn's.

use burn::module::Module;
use burn::nn::LayerNorm;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use zoo_attention::mechanisms::Mechanism;
use zoo_attention::{AttentionInput, MechanismConfig, Pattern};
use zoo_spec::keys::check_keys;
use zoo_spec::{Activation, ClassifierSpec, LayerSpec, Norm, PositionEncoding};

use crate::ModelError;
use crate::blocks::{LayerPlan, Normalization, Role, TransformerLayer};

zoo_spec::builder! {
    /// Configuration of a [`TransformerEncoder`]. The defaults are burn-nn's, except that attention
    /// weights have no dropout.
    ///
    /// ```
    /// # use zoo_attention::mechanisms::Longformer;
    /// # use zoo_models::{Norm, TransformerEncoderConfig};
    /// let config = TransformerEncoderConfig::new(256, 1024, 8, 4)
    ///     .with_norm(Norm::Pre)
    ///     .with_mechanism(Longformer { window: 64, global: 1 });
    /// assert!(config.check().is_ok());
    /// ```
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct TransformerEncoderConfig {
        /// Model (embedding) dimension.
        d_model: usize,
        /// Feed-forward hidden size.
        d_feed_forward: usize,
        /// Query heads.
        n_heads: usize,
        /// Layers.
        layers: usize,
        ;
        /// Key and value heads; `None` is the mechanism's default, usually one for each query head.
        n_heads_kv: Option<usize> = None,
        /// Attention mechanism. Default: flash.
        mechanism: MechanismConfig = Mechanism::Flash.into(),
        /// Pre- or post-norm. Default: post.
        norm: Norm = Norm::Post,
        /// Whether a layer norm follows the last layer. Default: no.
        final_norm: bool = false,
        /// Activation of the feed-forward networks. Default: gelu.
        activation: Activation = Activation::Gelu,
        /// Position encoding inside attention: none, rotary or ALiBi. Absolute positions belong to
        /// the input. Default: none.
        positions: PositionEncoding = PositionEncoding::None,
        /// Dropout probability of each sublayer's output. Default: 0.1.
        dropout: f64 = 0.1,
        /// Dropout probability inside the feed-forward networks; `None` is `dropout`.
        feed_forward_dropout: Option<f64> = None,
        /// Dropout probability of the attention weights. Default: 0.
        attention_dropout: f64 = 0.0,
        /// Epsilon of layer norms. Default: 1e-5.
        epsilon: f64 = 1e-5,
    }
}

initializers!(
    TransformerEncoder,
    TransformerEncoderConfig,
    "TransformerEncoder"
);

/// Stack of encoder layers. Created by a [`TransformerEncoderConfig`].
#[derive(Module, Debug)]
pub struct TransformerEncoder {
    /// Layers, first to last.
    pub layers: Vec<TransformerLayer>,
    /// Final layer norm.
    pub norm: Option<LayerNorm>,
    #[module(skip)]
    normalization: Normalization,
}

impl TransformerEncoderConfig {
    /// Checks the config without creating the model. An error names the field and allowed values.
    pub fn check(&self) -> Result<(), ModelError> {
        // The fields have the names of the classifier's keys.
        check_keys(self, ClassifierSpec::KEYS)?;
        let is_inside_attention = matches!(
            self.positions,
            PositionEncoding::None | PositionEncoding::Rotary(_) | PositionEncoding::Alibi
        );
        let allowed = "none, rotary or alibi for embedded inputs";
        let got = format!("{:?}", self.positions);
        ModelError::require(is_inside_attention, "positions", allowed, got)?;
        self.plan().check("mechanism", &self.mechanism, Role::Any)
    }

    fn build(&self, device: &Device) -> TransformerEncoder {
        let plan = self.plan();
        let layer = |_| plan.layer(&self.mechanism, None, device);
        TransformerEncoder {
            layers: (0..self.layers).map(layer).collect(),
            norm: self.final_norm.then(|| plan.layer_norm(device)),
            normalization: Normalization::of_layers(plan.spec),
        }
    }

    fn plan(&self) -> LayerPlan {
        let spec = LayerSpec {
            d_model: self.d_model,
            n_heads: self.n_heads,
            n_heads_kv: self.n_heads_kv,
            d_head: None,
            d_feed_forward: self.d_feed_forward,
            activation: self.activation,
            positions: self.positions,
            rms_norm: false,
            qk_norm: false,
            output_gate: false,
            temperature: 1.0,
            softcap: None,
            entropy_penalty: 0.0,
            dropout: self.dropout,
            feed_forward_dropout: self.feed_forward_dropout.unwrap_or(self.dropout),
            attention_dropout: self.attention_dropout,
            bias: true,
            qkv_bias: true,
            epsilon: self.epsilon,
        };
        LayerPlan::new(spec, self.norm)
    }
}

impl TransformerEncoder {
    /// Applies all layers; the pattern masks attention.
    ///
    /// # Shapes
    ///
    /// - x: `[batch, seq, d_model]`
    /// - output: `[batch, seq, d_model]`
    ///
    /// # Panics
    ///
    /// If the pattern does not fit the shape of `x`, or the mechanism does not support it.
    pub fn forward(&self, x: Tensor<3>, pattern: Pattern) -> Tensor<3> {
        let layers = self.layers.iter();
        let hidden = layers.fold(x, |hidden, layer| {
            let self_attention = |x| {
                let input = AttentionInput::self_attn(x).pattern(pattern.clone());
                layer.attention.forward(input).context
            };
            // There is no cross-attention.
            layer.forward_sublayers(hidden, self_attention, |_, x| x)
        });
        self.normalization.apply_final(self.norm.as_ref(), hidden)
    }
}
