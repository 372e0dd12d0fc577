//! Encoder-decoder Transformer.
//!
//! ```text
//! encoder   x_(l+1) = norm(x' + feed_forward(x')),  x' = norm(x_l + attention(x_l))
//! decoder   the same, causal, with  x'' = norm(x' + cross_attention(x', encoded))  in between
//! logits    head(x_M)
//! ```
//!
//! with `norm: post`; with `norm: pre`, each norm is applied to the sublayer's input. Vaswani et
//! al., [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017.
//!
//! Parameters, by their names in weight files:
//!
//! | name | |
//! |---|---|
//! | `source_embedding.weight` | `[source_vocabulary, d_model]`; shared with the target with `tie_embeddings: all` |
//! | `source_positions.table` | `[longest, d_model]`, if learned |
//! | `target_embedding.weight` | `[target_vocabulary, d_model]` |
//! | `target_positions.table` | `[longest, d_model]`, if learned |
//! | `encoder.layers.N.…`, `decoder.layers.N.…` | see [`blocks`](crate::blocks) |
//! | `encoder.norm.{gamma,beta}`, `decoder.norm.{gamma,beta}` | with `final_norm` |
//! | `head.{weight,bias}` | `[d_model, target_vocabulary]`, with `tie_embeddings: none` |

mod generate;

use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Embedding, EmbeddingConfig, LayerNorm, Linear};
use burn::tensor::{Device, Int, Tensor};
use serde::{Deserialize, Serialize};
use zoo_attention::{AttentionError, MechanismConfig};
use zoo_kernels::dropout;
use zoo_spec::keys::check_keys;
use zoo_spec::{LayerMechanisms, Norm, TransformerSpec, Tying};

pub use self::generate::TransformerState;
use crate::blocks::{
    LayerPlan, Normalization, PositionEmbedding, Recorder, Role, SelfAttentionOptions,
    TransformerLayer, embed, init_linear, logits, normal,
};
use crate::summary::matrix_or_tied;
use crate::tokens::padding_pattern;
use crate::{Limits, ModelError, Summary, Tokens};

/// Configuration of a [`Transformer`]. [`base`](Self::base) is the paper's base model.
///
/// ```
/// # use zoo_attention::Mechanism;
/// # use zoo_models::{Norm, TransformerConfig};
/// let config = TransformerConfig::new(8000, 6000)
///     .with_norm(Norm::Pre)
///     .with_encoder_attention(Mechanism::Longformer)
///     .with_cross_attention(Mechanism::Additive);
/// assert!(config.check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransformerConfig {
    /// Source vocabulary size.
    pub source_vocabulary: usize,
    /// Target vocabulary size.
    pub target_vocabulary: usize,
    /// Keys of a config file.
    #[serde(flatten)]
    pub spec: TransformerSpec,
}

zoo_spec::transformer_keys!(setters TransformerConfig);

impl TransformerConfig {
    /// Creates a config with defaults for everything else.
    pub fn new(source_vocabulary: usize, target_vocabulary: usize) -> Self {
        Self {
            source_vocabulary,
            target_vocabulary,
            spec: TransformerSpec::default(),
        }
    }

    /// The paper's base model: 6 layers, d_model 512, 8 heads, post-norm.
    pub fn base(source_vocabulary: usize, target_vocabulary: usize) -> Self {
        Self::new(source_vocabulary, target_vocabulary)
            .with_d_model(512)
            .with_n_heads(8)
            .with_layers(6)
            .with_norm(Norm::Post)
    }

    /// Checks the config without creating the model. An error names the field and allowed values.
    pub fn check(&self) -> Result<(), ModelError> {
        let [source, target] = [self.source_vocabulary, self.target_vocabulary];
        ModelError::at_least("source_vocabulary", 1, source)?;
        ModelError::at_least("target_vocabulary", 1, target)?;
        let spec = &self.spec;
        check_keys(spec, TransformerSpec::KEYS)?;
        ModelError::check_tying(spec.tie_embeddings, [source, target])?;
        let plan = self.plan();
        let encoder = &spec.encoder_attention;
        plan.check_all("encoder_attention", encoder, Role::Bidirectional)?;
        plan.check_all("decoder_attention", &spec.decoder_attention, Role::Causal)?;
        plan.check("cross_attention", &spec.cross_attention, Role::Cross)
    }

    fn build(&self, device: &Device) -> Transformer {
        let (plan, spec) = (self.plan(), &self.spec);
        let [encoder_layers, decoder_layers] = spec.encoder_and_decoder_layers();
        // The scale an output head needs; `scale_embeddings` brings them to the scale of positions.
        let initializer = normal(1.0 / (spec.d_model as f64).sqrt());
        let embedding = |vocabulary: usize| {
            EmbeddingConfig::new(vocabulary, spec.d_model)
                .with_initializer(initializer.clone())
                .init(device)
        };
        let positions =
            || PositionEmbedding::new(spec.positions, spec.d_model, &initializer, device);
        let norm = || spec.final_norm.then(|| plan.layer_norm(device));
        let encoder_layer =
            |layer| plan.layer(spec.encoder_attention.of_layer(layer), None, device);
        let cross = Some(&spec.cross_attention);
        let decoder_layer =
            |layer| plan.layer(spec.decoder_attention.of_layer(layer), cross, device);
        let head_sizes = [spec.d_model, self.target_vocabulary];
        Transformer {
            source_embedding: (spec.tie_embeddings != Tying::All)
                .then(|| embedding(self.source_vocabulary)),
            source_positions: positions(),
            target_embedding: embedding(self.target_vocabulary),
            target_positions: positions(),
            dropout: DropoutConfig::new(spec.dropout).init(),
            encoder: LayerStack {
                layers: (0..encoder_layers).map(encoder_layer).collect(),
                norm: norm(),
            },
            decoder: LayerStack {
                layers: (0..decoder_layers).map(decoder_layer).collect(),
                norm: norm(),
            },
            head: (spec.tie_embeddings == Tying::None)
                .then(|| init_linear(head_sizes, spec.bias, &plan.initializer, device)),
            config: self.clone(),
        }
    }

    fn plan(&self) -> LayerPlan {
        LayerPlan::new((&self.spec).into(), self.spec.norm)
    }
}

/// Encoder-decoder Transformer. Created by a [`TransformerConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Transformer {
    /// Source embedding; `None` if shared with the target.
    pub source_embedding: Option<Embedding>,
    /// Source position embedding.
    pub source_positions: PositionEmbedding,
    /// Target embedding.
    pub target_embedding: Embedding,
    /// Target position embedding.
    pub target_positions: PositionEmbedding,
    /// Dropout of the embeddings.
    pub dropout: Dropout,
    /// Encoder.
    pub encoder: LayerStack,
    /// Decoder.
    pub decoder: LayerStack,
    /// Output projection; `None` if tied to the target embedding.
    pub head: Option<Linear>,
    #[module(skip)]
    config: TransformerConfig,
}

/// Encoder or decoder.
#[derive(Module, Debug)]
pub struct LayerStack {
    /// Layers, first to last.
    pub layers: Vec<TransformerLayer>,
    /// Final layer norm.
    pub norm: Option<LayerNorm>,
}

impl LayerStack {
    fn flops(&self, seq_q: usize, is_causal: bool, seq_k: usize) -> f64 {
        let layers = self.layers.iter();
        layers
            .map(|layer| layer.flops(seq_q, is_causal, seq_k))
            .sum()
    }

    fn parameters(&self) -> usize {
        let layers = self.layers.iter().map(TransformerLayer::parameters);
        layers.sum::<usize>() + self.norm.num_params()
    }
}

/// Output of the encoder.
#[derive(Debug, Clone)]
pub struct EncoderOutput {
    /// `[batch, seq, d_model]`; undefined at padding.
    pub hidden: Tensor<3>,
    /// Length of each row.
    pub lengths: Vec<usize>,
}

/// Attention weights of a [`Transformer`].
#[derive(Debug, Clone)]
pub struct TransformerAttention {
    /// Self-attention of each encoder layer, `[batch, heads, seq_k, seq_k]`.
    pub encoder: Vec<Tensor<4>>,
    /// Self-attention of each decoder layer, `[batch, heads, seq_q, seq_q]`.
    pub decoder: Vec<Tensor<4>>,
    /// Cross-attention of each decoder layer, `[batch, heads, seq_q, seq_k]`.
    pub cross: Vec<Tensor<4>>,
}

model!(Transformer, TransformerConfig, "Transformer");

impl Transformer {
    /// Predicts the token after each target token, given the source and the target tokens before
    /// it (teacher forcing). Logits at padding are undefined.
    ///
    /// # Shapes
    ///
    /// - source: `[batch, seq_k]`
    /// - target: `[batch, seq_q]`
    /// - output: `[batch, seq_q, target_vocabulary]`, logits
    ///
    /// # Panics
    ///
    /// If the batch sizes differ, or a sequence is longer than the learned positions.
    pub fn forward(&self, source: &Tokens, target: &Tokens) -> Tensor<3> {
        self.decode(target, &self.encode(source))
    }

    /// [`forward`](Self::forward), and the mean entropy of all attention weights, `[1]`, for an
    /// entropy penalty; an error for a mechanism whose weights do not sum to one.
    pub fn forward_with_entropy(
        &self,
        source: &Tokens,
        target: &Tokens,
    ) -> Result<(Tensor<3>, Tensor<1>), AttentionError> {
        Recorder::mean_entropy(|recorder| {
            let encoded = self.encode_with(source, recorder);
            self.predict(self.decode_with(target, &encoded, recorder))
        })
    }

    /// Encodes the source.
    ///
    /// # Shapes
    ///
    /// - source: `[batch, seq]`
    ///
    /// # Panics
    ///
    /// If a sequence is longer than the learned positions.
    pub fn encode(&self, source: &Tokens) -> EncoderOutput {
        self.encode_with(source, Recorder::Disabled)
    }

    fn encode_with(&self, source: &Tokens, recorder: Recorder<'_>) -> EncoderOutput {
        let options = SelfAttentionOptions::new(source.lengths(), false, recorder);
        let layers = self.encoder.layers.iter();
        let hidden = layers.fold(self.embed_source(source), |hidden, layer| {
            layer.forward(hidden, options, None)
        });
        EncoderOutput {
            hidden: Normalization::of_layers(&self.config.spec)
                .apply_final(self.encoder.norm.as_ref(), hidden),
            lengths: source.lengths().to_vec(),
        }
    }

    /// Predicts the token after each target token, given the encoder output.
    ///
    /// # Shapes
    ///
    /// - target: `[batch, seq]`
    /// - output: `[batch, seq, target_vocabulary]`, logits
    pub fn decode(&self, target: &Tokens, source: &EncoderOutput) -> Tensor<3> {
        self.predict(self.decode_with(target, source, Recorder::Disabled))
    }

    /// Output of the last decoder layer, `[batch, seq, d_model]`.
    fn decode_with(
        &self,
        target: &Tokens,
        source: &EncoderOutput,
        recorder: Recorder<'_>,
    ) -> Tensor<3> {
        let [batch, seq_k, _] = source.hidden.dims();
        assert!(
            target.dims()[0] == batch,
            "Transformer: a target must be [batch = {batch}, seq] as the source is, got {:?}",
            target.dims()
        );
        let options = SelfAttentionOptions::new(target.lengths(), true, recorder);
        let pattern = padding_pattern(&source.lengths, seq_k);
        let layers = self.decoder.layers.iter();
        layers.fold(self.embed_target(target.ids(), 0), |hidden, layer| {
            layer.forward(hidden, options, Some((&source.hidden, pattern.clone())))
        })
    }

    /// Attention weights of every layer, for any mechanism, as computed by
    /// [`explain`](zoo_attention::explain()).
    ///
    /// # Shapes
    ///
    /// - source: `[batch, seq_k]`
    /// - target: `[batch, seq_q]`, with the begin token
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward); if rows differ in length or are empty.
    pub fn attention_weights(&self, source: &Tokens, target: &Tokens) -> TransformerAttention {
        let [sources, targets] = [source, target].map(|it| (0..it.dims()[1]).collect::<Vec<_>>());
        self.attention_weights_of(source, target, &sources, &targets)
    }

    /// [`attention_weights`](Self::attention_weights) of some source positions in the encoder and
    /// some target positions in the decoder, for texts that are too long for all of them.
    ///
    /// # Panics
    ///
    /// As there; if there are no positions, or one is out of range.
    pub fn attention_weights_of(
        &self,
        source: &Tokens,
        target: &Tokens,
        source_queries: &[usize],
        target_queries: &[usize],
    ) -> TransformerAttention {
        for tokens in [source, target] {
            tokens.assert_unpadded("Transformer");
        }
        let (encoded, encoder) = Recorder::weights(source_queries, |recorder| {
            self.encode_with(source, recorder)
        });
        let (_, weights) = Recorder::weights(target_queries, |recorder| {
            self.decode_with(target, &encoded, recorder)
        });
        // Self-attention and cross-attention of the layers alternate.
        let layers = weights.chunks_exact(2);
        let (decoder, cross) = layers.map(|it| (it[0].clone(), it[1].clone())).unzip();
        TransformerAttention {
            encoder,
            decoder,
            cross,
        }
    }

    /// Limits of the source.
    pub fn source_limits(&self) -> Limits {
        let max_positions = self.config.spec.positions.max_positions();
        let limits = Limits::new(self.config.source_vocabulary, max_positions);
        let spec = &self.config.spec;
        let limits = limits.with_max_length(spec.encoder_attention.max_length());
        limits.with_max_length(spec.cross_attention.capabilities().max_length)
    }

    /// Limits of the target.
    pub fn target_limits(&self) -> Limits {
        let max_positions = self.config.spec.positions.max_positions();
        let limits = Limits::new(self.config.target_vocabulary, max_positions);
        limits.with_max_length(self.config.spec.decoder_attention.max_length())
    }

    /// Floating-point operations of the matmuls of one forward pass over `batch` pairs of
    /// `source` and `target` tokens, at least one each.
    pub fn flops(&self, batch: usize, source: usize, target: usize) -> f64 {
        let encoder = self.encoder.flops(source, false, 0);
        let decoder = self.decoder.flops(target, true, source);
        let head = target * self.config.spec.d_model * self.config.target_vocabulary;
        batch as f64 * (encoder + decoder + 2.0 * head as f64)
    }

    /// Summary of the model.
    pub fn summary(&self) -> Summary {
        let config = &self.config;
        let (spec, plan) = (&config.spec, config.plan());
        let d_model = spec.d_model;
        let [encoder_layers, decoder_layers] = spec.encoder_and_decoder_layers();
        let sizes = [config.source_vocabulary, d_model];
        let source = matrix_or_tied(self.source_embedding.as_ref(), sizes, "target embedding");
        let target = format!("{} x {d_model}", config.target_vocabulary);
        let positions = spec.positions.name();
        let encoder = plan.sizes(encoder_layers, &spec.encoder_attention.names());
        let own = spec.decoder_attention.names();
        let cross = spec.cross_attention.mechanism();
        let decoder = plan.sizes(decoder_layers, &format!("{own}, cross-attention {cross}"));
        let sizes = [d_model, config.target_vocabulary];
        let head = matrix_or_tied(self.head.as_ref(), sizes, "target embedding");
        let title = format!("Transformer of {encoder_layers} + {decoder_layers} layers");
        let [source_positions, target_positions] =
            [&self.source_positions, &self.target_positions].map(Module::num_params);
        let source_params = self.source_embedding.num_params();
        let target_params = self.target_embedding.num_params();
        Summary::new(title)
            .with("source embedding", source, source_params)
            .with("source positions", positions, source_positions)
            .with("encoder", encoder, self.encoder.parameters())
            .with("target embedding", target, target_params)
            .with("target positions", positions, target_positions)
            .with("decoder", decoder, self.decoder.parameters())
            .with("output", head, self.head.num_params())
    }

    fn embed_source(&self, source: &Tokens) -> Tensor<3> {
        let embedding = self.source_embedding.as_ref();
        let embedding = embedding.unwrap_or(&self.target_embedding);
        self.embed(embedding, &self.source_positions, source.ids(), 0)
    }

    fn embed_target(&self, target: Tensor<2, Int>, first: usize) -> Tensor<3> {
        self.embed(
            &self.target_embedding,
            &self.target_positions,
            target,
            first,
        )
    }

    fn embed(
        &self,
        embedding: &Embedding,
        positions: &PositionEmbedding,
        tokens: Tensor<2, Int>,
        first: usize,
    ) -> Tensor<3> {
        let is_scaled = self.config.spec.scale_embeddings;
        let hidden = embed(embedding, is_scaled, positions, tokens, first);
        dropout(&self.dropout, hidden)
    }

    fn predict(&self, hidden: Tensor<3>) -> Tensor<3> {
        let hidden = Normalization::of_layers(&self.config.spec)
            .apply_final(self.decoder.norm.as_ref(), hidden);
        logits(hidden, self.head.as_ref(), &self.target_embedding)
    }
}
