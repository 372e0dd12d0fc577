//! An encoder of one sequence and a decoder of another.
//!
//! ```text
//! encoder   x_(l+1) = norm(x' + feed_forward(x')),  x' = norm(x_l + attention(x_l))
//! decoder   the same, causally, and between both  x'' = norm(x' + attention to the encoded(x'))
//! logits    head(x_M)
//! ```
//!
//! with `norm: post`; with `pre`, each norm is on what goes in. Vaswani et al., [Attention Is
//! All You Need](https://arxiv.org/abs/1706.03762), 2017.
//!
//! Parameters, by their names in weight files:
//!
//! | name | |
//! |---|---|
//! | `source_embedding.weight` | `[source_vocabulary, d_model]`; with `tying: all`, the target's |
//! | `source_positions.table` | `[longest, d_model]`, where they are learned |
//! | `target_embedding.weight` | `[target_vocabulary, d_model]` |
//! | `target_positions.table` | `[longest, d_model]`, where they are learned |
//! | `encoder.layers.N.…`, `decoder.layers.N.…` | see [`blocks`](crate::blocks) |
//! | `encoder.norm.{gamma,beta}`, `decoder.norm.{gamma,beta}` | with `final_norm` |
//! | `head.{weight,bias}` | `[d_model, target_vocabulary]`, with `tying: none` |

mod generate;

use burn::module::Module;
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, LayerNorm, Linear,
};
use burn::tensor::{Device, Int, Tensor};
use serde::{Deserialize, Serialize};
use zoo_attention::{MechanismConfig, NoEntropy, Pattern};
use zoo_kernels::dropout;
use zoo_spec::keys::check_keys;
use zoo_spec::{Norm, TransformerSpec, Tying};

pub use self::generate::TransformerState;
use crate::blocks::{
    AddedPositions, DecoderLayer, EncoderLayer, LayerPlan, Notes, Role, Sight, embedded, linear,
    logits, normed,
};
use crate::tokens::shown;
use crate::{Limits, ModelError, Summary, Tokens};

/// Configuration of a [`Transformer`]. [`base`](Self::base) has the sizes of the paper's base model.
///
/// ```
/// # use zoo_attention::Mechanism;
/// # use zoo_models::{Norm, TransformerConfig};
/// let config = TransformerConfig::new(8000, 6000)
///     .with_norm(Norm::Pre)
///     .with_encoder_attention(Mechanism::Longformer.into())
///     .with_cross_attention(Mechanism::Additive.into());
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransformerConfig {
    /// Tokens of the source vocabulary.
    pub source_vocabulary: usize,
    /// Tokens of the target vocabulary.
    pub target_vocabulary: usize,
    /// Sizes and choices, as in a config file.
    #[serde(flatten)]
    pub spec: TransformerSpec,
}

zoo_spec::transformer_keys!(setters TransformerConfig);

impl TransformerConfig {
    /// A Transformer for two vocabularies of these sizes.
    pub fn new(source_vocabulary: usize, target_vocabulary: usize) -> Self {
        Self {
            source_vocabulary,
            target_vocabulary,
            spec: TransformerSpec::default(),
        }
    }

    /// The base model of the paper: six layers of 512, eight heads, normalised after each sublayer.
    pub fn base(source_vocabulary: usize, target_vocabulary: usize) -> Self {
        Self::new(source_vocabulary, target_vocabulary)
            .with_d_model(512)
            .with_heads(8)
            .with_layers(6)
            .with_norm(Norm::Post)
    }

    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        let [source, target] = [self.source_vocabulary, self.target_vocabulary];
        ModelError::at_least("source_vocabulary", 1, source)?;
        ModelError::at_least("target_vocabulary", 1, target)?;
        let spec = &self.spec;
        check_keys(spec, TransformerSpec::KEYS)?;
        ModelError::check_tied(spec.tying, [source, target])?;
        let plan = self.plan();
        for (field, mechanism, role) in [
            (
                "encoder_attention",
                &spec.encoder_attention,
                Role::Bidirectional,
            ),
            ("decoder_attention", &spec.decoder_attention, Role::Any),
            ("cross_attention", &spec.cross_attention, Role::Cross),
        ] {
            plan.check(field, mechanism, role)?;
        }
        Ok(())
    }

    /// Makes the model, for sizes that come from a file.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn try_init(&self, device: &Device) -> Result<Transformer, ModelError> {
        self.check()?;
        let (plan, spec) = (self.plan(), &self.spec);
        let [encoder_layers, decoder_layers] = spec.encoder_and_decoder_layers();
        // As large as a head needs them; the scale makes them as large as positions are.
        let vectors = Initializer::Normal {
            mean: 0.0,
            std: 1.0 / (spec.d_model as f64).sqrt(),
        };
        let embedding = |vocabulary: usize| {
            EmbeddingConfig::new(vocabulary, spec.d_model)
                .with_initializer(vectors.clone())
                .init(device)
        };
        let positions = || AddedPositions::new(spec.positions, spec.d_model, &vectors, device);
        let norm = || spec.final_norm.then(|| plan.layer_norm(device));
        let encoder_layer = |_| plan.encoder_layer(&spec.encoder_attention, device);
        let decoder_layer =
            |_| plan.decoder_layer(&spec.decoder_attention, &spec.cross_attention, device);
        let to_tokens = [spec.d_model, self.target_vocabulary];
        Ok(Transformer {
            source_embedding: (spec.tying != Tying::All).then(|| embedding(self.source_vocabulary)),
            source_positions: positions(),
            target_embedding: embedding(self.target_vocabulary),
            target_positions: positions(),
            dropout: DropoutConfig::new(spec.dropout).init(),
            encoder: Encoder {
                layers: (0..encoder_layers).map(encoder_layer).collect(),
                norm: norm(),
            },
            decoder: Decoder {
                layers: (0..decoder_layers).map(decoder_layer).collect(),
                norm: norm(),
            },
            head: (spec.tying == Tying::None)
                .then(|| linear(to_tokens, spec.bias, &plan.initializer, device)),
            config: self.clone(),
        })
    }

    fn plan(&self) -> LayerPlan {
        LayerPlan::new((&self.spec).into(), self.spec.norm)
    }
}

/// A model that makes one sequence of another. Made by a [`TransformerConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Transformer {
    /// What tokens of the source are; none where the target's say it.
    pub source_embedding: Option<Embedding>,
    /// Where they are.
    pub source_positions: AddedPositions,
    /// What tokens of the target are.
    pub target_embedding: Embedding,
    /// Where they are.
    pub target_positions: AddedPositions,
    /// Numbers of embedded tokens that are forgotten while training.
    pub dropout: Dropout,
    /// The source's half.
    pub encoder: Encoder,
    /// The target's half.
    pub decoder: Decoder,
    /// What predicts tokens; none where the target's embedding does.
    pub head: Option<Linear>,
    #[module(skip)]
    config: TransformerConfig,
}

/// The source's half.
#[derive(Module, Debug)]
pub struct Encoder {
    /// The layers, in the order they are gone through.
    pub layers: Vec<EncoderLayer>,
    /// After the last, if there is one.
    pub norm: Option<LayerNorm>,
}

/// The target's half.
#[derive(Module, Debug)]
pub struct Decoder {
    /// The layers, in the order they are gone through.
    pub layers: Vec<DecoderLayer>,
    /// After the last, if there is one.
    pub norm: Option<LayerNorm>,
}

/// A source that was read.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// `[batch, seq, d_model]`
    pub places: Tensor<3>,
    /// How long each row is; what is behind has no meaning.
    pub lengths: Vec<usize>,
}

impl Encoded {
    /// Hides what is padding from everybody.
    pub fn pattern(&self) -> Pattern {
        let [_, seq, _] = self.places.dims();
        shown(&self.lengths, seq)
    }
}

/// Where the layers of a [`Transformer`] look.
#[derive(Debug, Clone)]
pub struct TransformerLook {
    /// `[batch, heads, seq_k, seq_k]` for each layer of the encoder.
    pub encoder: Vec<Tensor<4>>,
    /// `[batch, heads, seq_q, seq_q]` for each layer of the decoder.
    pub decoder: Vec<Tensor<4>>,
    /// `[batch, heads, seq_q, seq_k]` for each layer of the decoder: where it looks in what was
    /// encoded.
    pub cross: Vec<Tensor<4>>,
}

model!(Transformer, TransformerConfig, "Transformer");

impl Transformer {
    /// What follows each token of the target, given those before it and the source: to learn
    /// from, with all tokens known. What is said behind the end of a row has no meaning.
    ///
    /// # Shapes
    ///
    /// - source: `[batch, seq_k]`
    /// - target: `[batch, seq_q]`
    /// - result: `[batch, seq_q, target_vocabulary]`, logits
    ///
    /// # Panics
    ///
    /// If the batches differ, or there are more places than were learned.
    pub fn forward(&self, source: &Tokens, target: &Tokens) -> Tensor<3> {
        self.decode(target, &self.encode(source))
    }

    /// [`forward`](Self::forward), and the mean entropy of the weights of all attentions, `[1]`, to
    /// be added to a loss.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] for a mechanism whose weights do not sum to one.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn forward_with_entropy(
        &self,
        source: &Tokens,
        target: &Tokens,
    ) -> Result<(Tensor<3>, Tensor<1>), NoEntropy> {
        Notes::mean_entropy(|notes| {
            let encoded = self.encode_noting(source, notes);
            self.predicted(self.decoded(target, &encoded, notes))
        })
    }

    /// Reads a source.
    ///
    /// # Shapes
    ///
    /// - source: `[batch, seq]`
    ///
    /// # Panics
    ///
    /// If there are more places than were learned.
    pub fn encode(&self, source: &Tokens) -> Encoded {
        self.encode_noting(source, &Notes::Nothing)
    }

    fn encode_noting(&self, source: &Tokens, notes: &Notes) -> Encoded {
        let sight = Sight {
            lengths: source.lengths(),
            is_causal: false,
            notes,
        };
        let layers = self.encoder.layers.iter();
        let places = layers.fold(self.embedded_source(source), |places, layer| {
            layer.forward(places, sight)
        });
        Encoded {
            places: self.normed(self.encoder.norm.as_ref(), places),
            lengths: source.lengths().to_vec(),
        }
    }

    /// What follows each token of the target, given a source that was read.
    ///
    /// # Shapes
    ///
    /// - target: `[batch, seq]`
    /// - result: `[batch, seq, target_vocabulary]`, logits
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn decode(&self, target: &Tokens, source: &Encoded) -> Tensor<3> {
        self.predicted(self.decoded(target, source, &Notes::Nothing))
    }

    /// After the last layer of the decoder, `[batch, seq, d_model]`.
    fn decoded(&self, target: &Tokens, source: &Encoded, notes: &Notes) -> Tensor<3> {
        let [batch, ..] = source.places.dims();
        assert!(
            target.dims()[0] == batch,
            "Transformer: a target must be [batch = {batch}, seq] as the source is, got {:?}",
            target.dims()
        );
        let sight = Sight {
            lengths: target.lengths(),
            is_causal: true,
            notes,
        };
        let layers = self.decoder.layers.iter();
        layers.fold(self.embedded_target(target.ids(), 0), |places, layer| {
            layer.forward(places, sight, &source.places, source.pattern())
        })
    }

    /// Where each token looks: the weights of every layer, whatever the mechanisms, as
    /// [`explain`](zoo_attention::explain()) has them.
    ///
    /// # Shapes
    ///
    /// - source: `[batch, seq_k]`
    /// - target: `[batch, seq_q]`, with its beginning
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward); if rows differ in length, or are empty.
    pub fn look(&self, source: &Tokens, target: &Tokens) -> TransformerLook {
        for tokens in [source, target] {
            tokens.assert_whole("Transformer");
        }
        let (encoded, encoder) = Notes::weights(|notes| self.encode_noting(source, notes));
        let (_, weights) = Notes::weights(|notes| self.decoded(target, &encoded, notes));
        // Each layer looks at its own sequence first.
        let (mut decoder, mut cross) = (vec![], vec![]);
        for (at, weights) in weights.into_iter().enumerate() {
            match at % 2 {
                0 => decoder.push(weights),
                _ => cross.push(weights),
            }
        }
        TransformerLook {
            encoder,
            decoder,
            cross,
        }
    }

    /// What it takes as a source.
    pub fn source_limits(&self) -> Limits {
        Limits {
            vocabulary: self.config.source_vocabulary,
            longest: self.config.spec.positions.longest(),
        }
    }

    /// What it takes as a target.
    pub fn target_limits(&self) -> Limits {
        Limits {
            vocabulary: self.config.target_vocabulary,
            longest: self.config.spec.positions.longest(),
        }
    }

    /// Floating-point operations of the matmuls of one forward pass over `batch` pairs of
    /// `source` and `target` tokens.
    ///
    /// # Panics
    ///
    /// If there are no tokens.
    pub fn flops(&self, batch: usize, source: usize, target: usize) -> f64 {
        let encoder = self.encoder.layers.iter();
        let encoder: f64 = encoder.map(|layer| layer.flops(source, false)).sum();
        let decoder = self.decoder.layers.iter();
        let decoder: f64 = decoder.map(|layer| layer.flops(target, source)).sum();
        let head = target * self.config.spec.d_model * self.config.target_vocabulary;
        batch as f64 * (encoder + decoder + 2.0 * head as f64)
    }

    /// What it is made of.
    pub fn summary(&self) -> Summary {
        let TransformerConfig {
            source_vocabulary,
            target_vocabulary,
            spec,
        } = &self.config;
        let (d_model, plan) = (spec.d_model, self.config.plan());
        let [encoder_layers, decoder_layers] = spec.encoder_and_decoder_layers();
        let word = |mechanism: &MechanismConfig| mechanism.mechanism().word();
        let source = match &self.source_embedding {
            Some(_) => format!("{source_vocabulary} x {d_model}"),
            None => "the target's".to_owned(),
        };
        let target = format!("{target_vocabulary} x {d_model}");
        let positions = spec.positions.word();
        let encoder = plan.sizes(encoder_layers, word(&spec.encoder_attention));
        let own = self.encoder.layers.iter().map(EncoderLayer::parameters);
        let of_encoder = own.sum::<usize>() + self.encoder.norm.num_params();
        let across = word(&spec.cross_attention);
        let across = format!("{}, across {across}", word(&spec.decoder_attention));
        let decoder = plan.sizes(decoder_layers, &across);
        let own = self.decoder.layers.iter().map(DecoderLayer::parameters);
        let of_decoder = own.sum::<usize>() + self.decoder.norm.num_params();
        let head = match &self.head {
            Some(_) => format!("{d_model} x {target_vocabulary}"),
            None => "the target embedding's".to_owned(),
        };
        let title = format!("Transformer of {encoder_layers} + {decoder_layers} layers");
        let [source_positions, target_positions] =
            [&self.source_positions, &self.target_positions].map(Module::num_params);
        let of_source = self.source_embedding.num_params();
        let of_target = self.target_embedding.num_params();
        Summary::new(title)
            .with("source embedding", source, of_source)
            .with("source positions", positions, source_positions)
            .with("encoder", encoder, of_encoder)
            .with("target embedding", target, of_target)
            .with("target positions", positions, target_positions)
            .with("decoder", decoder, of_decoder)
            .with("head", head, self.head.num_params())
    }

    fn embedded_source(&self, source: &Tokens) -> Tensor<3> {
        let vectors = self.source_embedding.as_ref();
        let vectors = vectors.unwrap_or(&self.target_embedding);
        let scaled = self.config.spec.scale_embeddings;
        let places = embedded(vectors, scaled, &self.source_positions, source.ids(), 0);
        dropout(&self.dropout, places)
    }

    fn embedded_target(&self, target: Tensor<2, Int>, first: usize) -> Tensor<3> {
        let (vectors, positions) = (&self.target_embedding, &self.target_positions);
        let scaled = self.config.spec.scale_embeddings;
        let places = embedded(vectors, scaled, positions, target, first);
        dropout(&self.dropout, places)
    }

    fn predicted(&self, places: Tensor<3>) -> Tensor<3> {
        let places = self.normed(self.decoder.norm.as_ref(), places);
        logits(places, self.head.as_ref(), &self.target_embedding)
    }

    fn normed(&self, norm: Option<&LayerNorm>, places: Tensor<3>) -> Tensor<3> {
        normed(norm, self.config.spec.epsilon, places)
    }
}
