//! A recurrent encoder of one sequence, and a decoder of another that looks at it.
//!
//! ```text
//! s_j    = [GRU→(x_j); GRU←(x_j)]              the source
//! h_t    = GRU([y_t; fed_t], h_(t-1))          the target;  h_0 = tanh(W_0 [s→_last; s←_first])
//! c_t    = Σ_j α_tj s_j,   α_t = attention(h_t, s)
//! h~_t   = tanh(W [c_t; h_t])
//! logits = head(h~_t)
//! ```
//!
//! What is fed is `h~_(t-1)`, after Luong et al., [Effective Approaches to Attention-based
//! Neural Machine Translation](https://arxiv.org/abs/1508.04025), 2015, from whom most scores
//! are; or the context, which is then that of `h_(t-1)`, after Bahdanau et al., [Neural Machine
//! Translation by Jointly Learning to Align and Translate](https://arxiv.org/abs/1409.0473),
//! 2014; or nothing, and the whole target goes through the decoder at once.
//!
//! Parameters, by their names in weight files:
//!
//! | name | |
//! |---|---|
//! | `source_embedding.weight` | `[source_vocabulary, d_embedding]`; with `tying: all`, the target's |
//! | `target_embedding.weight` | `[target_vocabulary, d_embedding]` |
//! | `encoder.layers.N.{forward,reverse}.{input,hidden}.{weight,bias}` | half of `d_hidden` each |
//! | `bridge.N.{weight,bias}` | from the encoder's last state to layer `N` of the decoder |
//! | `decoder.layers.N.forward.{input,hidden}.{weight,bias}` | first the token's numbers, then what is fed |
//! | `attention.{query,key}.…`, `attention.{vector,matrix}` | what its score has |
//! | `combination.weight` | `[2 d_hidden, d_hidden]`: first the context's, then the state's |
//! | `head.{weight,bias}` | `[d_hidden, target_vocabulary]`, with `tying: none` |

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
use zoo_spec::{Alignment, Feeding, Seq2SeqSpec, Tying};

pub use self::alignment::SourceAttention;
pub use self::decoder::Seq2SeqState;
use crate::{Limits, ModelError, Summary, Tokens};

/// Configuration of a [`Seq2Seq`]. The defaults are Luong's input feeding with Bahdanau's score.
///
/// ```
/// # use zoo_models::{Alignment, Seq2SeqConfig};
/// let config = Seq2SeqConfig::new(8000, 6000)
///     .with_d_hidden(256)
///     .with_attention(Alignment::local_p(5));
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Seq2SeqConfig {
    /// Tokens of the source vocabulary.
    pub source_vocabulary: usize,
    /// Tokens of the target vocabulary.
    pub target_vocabulary: usize,
    /// Sizes and choices, as in a config file.
    #[serde(flatten)]
    pub spec: Seq2SeqSpec,
}

zoo_spec::seq2seq_keys!(setters Seq2SeqConfig);

impl Seq2SeqConfig {
    /// A recurrent model for two vocabularies of these sizes.
    pub fn new(source_vocabulary: usize, target_vocabulary: usize) -> Self {
        Self {
            source_vocabulary,
            target_vocabulary,
            spec: Seq2SeqSpec::default(),
        }
    }

    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("source_vocabulary", 1, self.source_vocabulary)?;
        ModelError::at_least("target_vocabulary", 1, self.target_vocabulary)?;
        check_keys(&self.spec, Seq2SeqSpec::KEYS)?;
        let Seq2SeqSpec {
            tying,
            d_embedding,
            d_hidden,
            ..
        } = self.spec;
        let allowed = "even, half for each direction of the encoder";
        ModelError::require(d_hidden.is_multiple_of(2), "d_hidden", allowed, d_hidden)?;
        ModelError::check_tied(tying, [self.source_vocabulary, self.target_vocabulary])?;
        let is_fine = tying == Tying::None || d_embedding == d_hidden;
        let allowed =
            format!("none where d_embedding = {d_embedding} and d_hidden = {d_hidden} differ");
        ModelError::require(is_fine, "tying", allowed, tying.word())
    }

    /// Makes the model, for sizes that come from a file.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn try_init(&self, device: &Device) -> Result<Seq2Seq, ModelError> {
        self.check()?;
        let spec = &self.spec;
        let &Seq2SeqSpec {
            d_embedding,
            d_hidden,
            ..
        } = spec;
        let [encoder_layers, decoder_layers] = spec.encoder_and_decoder_layers();
        let embedding =
            |vocabulary: usize| EmbeddingConfig::new(vocabulary, d_embedding).init(device);
        let linear = |from: usize, to: usize, bias: bool| {
            LinearConfig::new(from, to).with_bias(bias).init(device)
        };
        let fed = match spec.feeding {
            Feeding::None => 0,
            Feeding::Input | Feeding::Context => d_hidden,
        };
        let encoder = RecurrentConfig::new(d_embedding, d_hidden / 2)
            .with_direction(Direction::Both)
            .with_layers(encoder_layers)
            .with_dropout(spec.dropout);
        let decoder = RecurrentConfig::new(d_embedding + fed, d_hidden)
            .with_layers(decoder_layers)
            .with_dropout(spec.dropout);
        let bridge = |_| linear(d_hidden, d_hidden, true);
        Ok(Seq2Seq {
            source_embedding: (spec.tying != Tying::All).then(|| embedding(self.source_vocabulary)),
            target_embedding: embedding(self.target_vocabulary),
            encoder: encoder.init(device),
            bridge: (0..decoder_layers).map(bridge).collect(),
            decoder: decoder.init(device),
            attention: SourceAttention::new(spec.attention, d_hidden, device),
            combination: linear(2 * d_hidden, d_hidden, false),
            head: (spec.tying == Tying::None)
                .then(|| linear(d_hidden, self.target_vocabulary, true)),
            dropout: DropoutConfig::new(spec.dropout).init(),
            config: self.clone(),
        })
    }
}

/// A model that makes one sequence of another. Made by a [`Seq2SeqConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Seq2Seq {
    /// What tokens of the source are; none where the target's say it.
    pub source_embedding: Option<Embedding>,
    /// What tokens of the target are.
    pub target_embedding: Embedding,
    /// The source's half.
    pub encoder: Recurrent,
    /// What the states of the decoder's layers begin with.
    pub bridge: Vec<Linear>,
    /// The target's half.
    pub decoder: Recurrent,
    /// Where it looks.
    pub attention: SourceAttention,
    /// What becomes of context and state together.
    pub combination: Linear,
    /// What predicts tokens; none where the target's embedding does.
    pub head: Option<Linear>,
    /// Numbers that are forgotten while training.
    pub dropout: Dropout,
    #[module(skip)]
    config: Seq2SeqConfig,
}

/// What a [`Seq2Seq`] says of a target.
#[derive(Debug, Clone)]
pub struct Seq2SeqOutput {
    /// `[batch, seq_q, target_vocabulary]`: what follows each token.
    pub logits: Tensor<3>,
    /// `[batch, seq_q, seq_k]`: how much of each place of the source was looked at for it;
    /// nothing of padding. Together they are one, but for `local-p`, where they are less, and
    /// where `local-m` is past the end of the source, which is nothing.
    pub alignment: Tensor<3>,
}

model!(Seq2Seq, Seq2SeqConfig, "Seq2Seq");

impl Seq2Seq {
    /// What follows each token of the target, given those before it and the source, and where
    /// it was looked for. What is said behind the end of a row has no meaning.
    ///
    /// With a `teacher_forcing` below one, a token but the first is the target's by that
    /// chance, and else the likeliest after those before: one draw, by the seed, for each
    /// place of all rows. Bengio et al., [Scheduled
    /// Sampling](https://arxiv.org/abs/1506.03099), 2015. With one, the seed says nothing, and
    /// the alignment is that of a text that was made, if the target is one.
    ///
    /// # Shapes
    ///
    /// - source: `[batch, seq_k]`
    /// - target: `[batch, seq_q]`
    ///
    /// # Panics
    ///
    /// If the batches differ, or `teacher_forcing` is not from 0 to 1.
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
        let (places, alignment) = match self.config.spec.feeding {
            Feeding::None if teacher_forcing == 1.0 => self.at_once(target, state),
            _ => self.step_by_step(target, &mut state, teacher_forcing, seed),
        };
        Seq2SeqOutput {
            logits: self.predicted(dropout(&self.dropout, places)),
            alignment,
        }
    }

    /// What it takes as a source.
    pub fn source_limits(&self) -> Limits {
        Limits {
            vocabulary: self.config.source_vocabulary,
            longest: None,
        }
    }

    /// What it takes as a target.
    pub fn target_limits(&self) -> Limits {
        Limits {
            vocabulary: self.config.target_vocabulary,
            longest: None,
        }
    }

    /// Floating-point operations of the matmuls of one forward pass over `batch` pairs of
    /// `source` and `target` tokens.
    pub fn flops(&self, batch: usize, source: usize, target: usize) -> f64 {
        let width = |linear: &Linear| linear.weight.num_params();
        let d_hidden = self.config.spec.d_hidden;
        let bridge: usize = self.bridge.iter().map(width).sum();
        let head = d_hidden * self.config.target_vocabulary;
        let dense = bridge + target * (width(&self.combination) + head);
        let recurrent = self.encoder.flops(batch * source) + self.decoder.flops(batch * target);
        let attention = self.attention.flops(source, target, d_hidden);
        batch as f64 * (2.0 * dense as f64 + attention) + recurrent
    }

    /// What it is made of.
    pub fn summary(&self) -> Summary {
        let Seq2SeqConfig {
            source_vocabulary,
            target_vocabulary,
            spec,
        } = &self.config;
        let (d_embedding, d_hidden) = (spec.d_embedding, spec.d_hidden);
        let attention = spec.attention.word();
        let [encoder_layers, decoder_layers] = spec.encoder_and_decoder_layers();
        let source = match &self.source_embedding {
            Some(_) => format!("{source_vocabulary} x {d_embedding}"),
            None => "the target's".to_owned(),
        };
        let head = match &self.head {
            Some(_) => format!("{d_hidden} x {target_vocabulary}"),
            None => "the target embedding's".to_owned(),
        };
        let bridge = self.bridge.iter().map(Module::num_params).sum();
        let target = format!("{target_vocabulary} x {d_embedding}");
        let encoder = format!("{encoder_layers} x 2 x {}", d_hidden / 2);
        let fed = spec.feeding.word();
        let decoder = format!("{decoder_layers} x {d_hidden}, feeding {fed}");
        let combination = format!("{} x {d_hidden}", 2 * d_hidden);
        let of_source = self.source_embedding.num_params();
        let of_target = self.target_embedding.num_params();
        let layers = format!("{encoder_layers} + {decoder_layers} layers");
        Summary::new(format!("Seq2Seq of {layers}, {attention}"))
            .with("source embedding", source, of_source)
            .with("encoder", encoder, self.encoder.num_params())
            .with("bridge", format!("{decoder_layers} x {d_hidden}"), bridge)
            .with("target embedding", target, of_target)
            .with("decoder", decoder, self.decoder.num_params())
            .with("attention", attention, self.attention.num_params())
            .with("combination", combination, self.combination.num_params())
            .with("head", head, self.head.num_params())
    }
}
