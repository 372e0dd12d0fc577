//! Recurrent encoder-decoder with attention.
//!
//! ```text
//! s_j    = [GRU→(x_j); GRU←(x_j)]              the source
//! h_t    = GRU([y_t; fed_t], h_(t-1))          the target;  h_0 = tanh(W_0 [s→_last; s←_first])
//! c_t    = Σ_j α_tj s_j,   α_t = attention(h_t, s)
//! h~_t   = tanh(W [c_t; h_t])
//! logits = head(h~_t)
//! ```
//!
//! `fed_t` is one of:
//!
//! - `h~_(t-1)` (input feeding): Luong et al., [Effective Approaches to Attention-based Neural
//!   Machine Translation](https://arxiv.org/abs/1508.04025), 2015, also for most scores;
//! - the context, computed from `h_(t-1)`: Bahdanau et al., [Neural Machine Translation by Jointly
//!   Learning to Align and Translate](https://arxiv.org/abs/1409.0473), 2014;
//! - nothing, so that the decoder processes the whole target at once.
//!
//! Parameters, by their names in weight files:
//!
//! | name | |
//! |---|---|
//! | `source_embedding.weight` | `[source_vocabulary, d_embedding]`; shared with the target with `tie_embeddings: all` |
//! | `target_embedding.weight` | `[target_vocabulary, d_embedding]` |
//! | `encoder.layers.N.{forward,reverse}.{input,hidden}.{weight,bias}` | `d_hidden / 2` each |
//! | `bridge.N.{weight,bias}` | from the encoder's last state to layer `N` of the decoder |
//! | `decoder.layers.N.forward.{input,hidden}.{weight,bias}` | input: token embedding, then `fed` |
//! | `attention.{query,key}.…`, `attention.{vector,matrix}` | parameters of the score |
//! | `combination.weight` | `[2 d_hidden, d_hidden]`: rows of the context, then of the state |
//! | `head.{weight,bias}` | `[d_hidden, target_vocabulary]`, with `tie_embeddings: none` |

mod alignment;
mod decoder;
mod generate;

use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use zoo_kernels::dropout;
use zoo_kernels::recurrent::{Direction, Recurrent, RecurrentConfig};
use zoo_spec::keys::check_keys;
use zoo_spec::{Alignment, InputFeeding, Seq2SeqSpec, Tying};

pub use self::alignment::SourceAttention;
pub use self::decoder::Seq2SeqState;
use crate::summary::matrix_or_tied;
use crate::{Limits, ModelError, Summary, Tokens};

/// Configuration of a [`Seq2Seq`]. The defaults are Luong's input feeding and Bahdanau's score.
///
/// ```
/// # use zoo_models::{Alignment, Seq2SeqConfig};
/// let config = Seq2SeqConfig::new(8000, 6000)
///     .with_d_hidden(256)
///     .with_attention(Alignment::local_p(5));
/// assert!(config.check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Seq2SeqConfig {
    /// Source vocabulary size.
    pub source_vocabulary: usize,
    /// Target vocabulary size.
    pub target_vocabulary: usize,
    /// Keys of a config file.
    #[serde(flatten)]
    pub spec: Seq2SeqSpec,
}

zoo_spec::seq2seq_keys!(setters Seq2SeqConfig);

impl Seq2SeqConfig {
    /// Creates a config with defaults for everything else.
    pub fn new(source_vocabulary: usize, target_vocabulary: usize) -> Self {
        Self {
            source_vocabulary,
            target_vocabulary,
            spec: Seq2SeqSpec::default(),
        }
    }

    /// Checks the config without creating the model. An error names the field and allowed values.
    pub fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("source_vocabulary", 1, self.source_vocabulary)?;
        ModelError::at_least("target_vocabulary", 1, self.target_vocabulary)?;
        let spec = &self.spec;
        check_keys(spec, Seq2SeqSpec::KEYS)?;
        let (tie_embeddings, d_embedding, d_hidden) =
            (spec.tie_embeddings, spec.d_embedding, spec.d_hidden);
        let allowed = "even, half for each direction of the encoder";
        ModelError::require(d_hidden.is_multiple_of(2), "d_hidden", allowed, d_hidden)?;
        ModelError::check_tying(
            tie_embeddings,
            [self.source_vocabulary, self.target_vocabulary],
        )?;
        let is_valid = tie_embeddings == Tying::None || d_embedding == d_hidden;
        let allowed =
            format!("none where d_embedding = {d_embedding} and d_hidden = {d_hidden} differ");
        ModelError::require(is_valid, "tie_embeddings", allowed, tie_embeddings.name())
    }

    fn build(&self, device: &Device) -> Seq2Seq {
        let spec = &self.spec;
        let (d_embedding, d_hidden) = (spec.d_embedding, spec.d_hidden);
        let [encoder_layers, decoder_layers] = spec.encoder_and_decoder_layers();
        let embedding =
            |vocabulary: usize| EmbeddingConfig::new(vocabulary, d_embedding).init(device);
        let linear = |from: usize, to: usize, bias: bool| {
            LinearConfig::new(from, to).with_bias(bias).init(device)
        };
        let d_fed = match spec.input_feeding {
            InputFeeding::None => 0,
            InputFeeding::Attentional | InputFeeding::Context => d_hidden,
        };
        let encoder = RecurrentConfig::new(d_embedding, d_hidden / 2)
            .with_direction(Direction::Both)
            .with_layers(encoder_layers)
            .with_dropout(spec.dropout);
        let decoder = RecurrentConfig::new(d_embedding + d_fed, d_hidden)
            .with_layers(decoder_layers)
            .with_dropout(spec.dropout);
        let bridge = |_| linear(d_hidden, d_hidden, true);
        Seq2Seq {
            source_embedding: (spec.tie_embeddings != Tying::All)
                .then(|| embedding(self.source_vocabulary)),
            target_embedding: embedding(self.target_vocabulary),
            encoder: encoder.init(device),
            bridge: (0..decoder_layers).map(bridge).collect(),
            decoder: decoder.init(device),
            attention: SourceAttention::new(spec.attention, d_hidden, device),
            combination: linear(2 * d_hidden, d_hidden, false),
            head: (spec.tie_embeddings == Tying::None)
                .then(|| linear(d_hidden, self.target_vocabulary, true)),
            dropout: DropoutConfig::new(spec.dropout).init(),
            config: self.clone(),
        }
    }
}

/// Recurrent encoder-decoder with attention. Created by a [`Seq2SeqConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Seq2Seq {
    /// Source embedding; `None` if shared with the target.
    pub source_embedding: Option<Embedding>,
    /// Target embedding.
    pub target_embedding: Embedding,
    /// Bidirectional encoder.
    pub encoder: Recurrent,
    /// Projections of the encoder's last state to the initial states of the decoder's layers.
    pub bridge: Vec<Linear>,
    /// Decoder.
    pub decoder: Recurrent,
    /// Attention to the source.
    pub attention: SourceAttention,
    /// `W` of `h~`: combines context and state.
    pub combination: Linear,
    /// Output projection; `None` if tied to the target embedding.
    pub head: Option<Linear>,
    /// Dropout of the embeddings and of `h~`.
    pub dropout: Dropout,
    #[module(skip)]
    config: Seq2SeqConfig,
}

/// Output of a [`Seq2Seq`].
#[derive(Debug, Clone)]
pub struct Seq2SeqOutput {
    /// `[batch, seq_q, target_vocabulary]`.
    pub logits: Tensor<3>,
    /// Attention weights, `[batch, seq_q, seq_k]`; zero at padding. They sum to one, except with
    /// `local-p` (less than one) and where the window of `local-m` is past the source (zero).
    pub alignment: Tensor<3>,
}

model!(Seq2Seq, Seq2SeqConfig, "Seq2Seq");

impl Seq2Seq {
    /// Predicts the token after each target token, given the source and the tokens before it.
    /// Logits at padding are undefined.
    ///
    /// `teacher_forcing` is the probability that a step after the first gets the target's token
    /// instead of the predicted one; all rows share one sample per step. Bengio et al., [Scheduled
    /// Sampling](https://arxiv.org/abs/1506.03099), 2015. With 1, the seed is not used.
    ///
    /// # Shapes
    ///
    /// - source: `[batch, seq_k]`
    /// - target: `[batch, seq_q]`
    ///
    /// # Panics
    ///
    /// If the batch sizes differ, or `teacher_forcing` is not from 0 to 1.
    pub fn forward(
        &self,
        source: &Tokens,
        target: &Tokens,
        teacher_forcing: f64,
        seed: u64,
    ) -> Seq2SeqOutput {
        let ([batch, _], [rows, _]) = (source.dims(), target.dims());
        assert!(
            batch == rows,
            "Seq2Seq: a target must be [batch = {batch}, seq] as the source is, got {:?}",
            target.dims()
        );
        assert!(
            (0.0..=1.0).contains(&teacher_forcing),
            "Seq2Seq: teacher forcing must be from 0 to 1, got {teacher_forcing}"
        );
        let mut state = self.start(source);
        let (hidden, alignment) = match self.config.spec.input_feeding {
            InputFeeding::None if teacher_forcing == 1.0 => self.decode_parallel(target, state),
            _ => self.decode_sequential(target, &mut state, teacher_forcing, seed),
        };
        Seq2SeqOutput {
            logits: self.predict(dropout(&self.dropout, hidden)),
            alignment,
        }
    }

    /// Limits of the source.
    pub fn source_limits(&self) -> Limits {
        Limits::new(self.config.source_vocabulary, None)
    }

    /// Limits of the target.
    pub fn target_limits(&self) -> Limits {
        Limits::new(self.config.target_vocabulary, None)
    }

    /// Floating-point operations of the matmuls of one forward pass over `batch` pairs of
    /// `source` and `target` tokens.
    pub fn flops(&self, batch: usize, source: usize, target: usize) -> f64 {
        let elements = |linear: &Linear| linear.weight.num_params();
        let d_hidden = self.config.spec.d_hidden;
        let bridge: usize = self.bridge.iter().map(elements).sum();
        let head = d_hidden * self.config.target_vocabulary;
        let dense = bridge + target * (elements(&self.combination) + head);
        let recurrent = self.encoder.flops(batch * source) + self.decoder.flops(batch * target);
        let attention = self.attention.flops(source, target, d_hidden);
        batch as f64 * (2.0 * dense as f64 + attention) + recurrent
    }

    /// Summary of the model.
    pub fn summary(&self) -> Summary {
        let config = &self.config;
        let spec = &config.spec;
        let (d_embedding, d_hidden) = (spec.d_embedding, spec.d_hidden);
        let attention = spec.attention.name();
        let [encoder_layers, decoder_layers] = spec.encoder_and_decoder_layers();
        let sizes = [config.source_vocabulary, d_embedding];
        let source = matrix_or_tied(self.source_embedding.as_ref(), sizes, "target embedding");
        let sizes = [d_hidden, config.target_vocabulary];
        let head = matrix_or_tied(self.head.as_ref(), sizes, "target embedding");
        let bridge = self.bridge.iter().map(Module::num_params).sum();
        let target = format!("{} x {d_embedding}", config.target_vocabulary);
        let encoder = format!("{encoder_layers} x 2 x {}", d_hidden / 2);
        let feeding = spec.input_feeding.name();
        let decoder = format!("{decoder_layers} x {d_hidden}, feeding {feeding}");
        let combination = format!("{} x {d_hidden}", 2 * d_hidden);
        let source_params = self.source_embedding.num_params();
        let target_params = self.target_embedding.num_params();
        let layers = format!("{encoder_layers} + {decoder_layers} layers");
        Summary::new(format!("Seq2Seq of {layers}, {attention}"))
            .with("source embedding", source, source_params)
            .with("encoder", encoder, self.encoder.num_params())
            .with("bridge", format!("{decoder_layers} x {d_hidden}"), bridge)
            .with("target embedding", target, target_params)
            .with("decoder", decoder, self.decoder.num_params())
            .with("attention", attention, self.attention.num_params())
            .with("combination", combination, self.combination.num_params())
            .with("output", head, self.head.num_params())
    }
}
