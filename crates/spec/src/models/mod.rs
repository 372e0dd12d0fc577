//! The keys of each model.
//!
//! The `[model]` section of a config file is one of these; the configs of `zoo-models` add the sizes
//! that the data determines.

mod choices;
#[macro_use]
mod layers;
mod classifier;
mod gpt;
mod han;
mod mixed;
mod seq2seq;
mod transformer;

pub use self::choices::{
    Activation, Alignment, Cell, InputFeeding, LearnedPositions, Norm, Pooling, PositionEncoding,
    Tying, Window,
};
pub use self::classifier::ClassifierSpec;
pub use self::gpt::GptSpec;
pub use self::han::HanSpec;
pub use self::layers::LayerSpec;
pub use self::mixed::LayerMechanisms;
pub use self::seq2seq::Seq2SeqSpec;
pub use self::transformer::TransformerSpec;
use crate::keys::Values;
use crate::{MECHANISMS, Mechanism, MechanismConfig};

crate::kinds! {
    /// The model.
    pub enum Model {
        /// Encoder-decoder Transformer for sequence-to-sequence tasks: Vaswani et al.,
        /// [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017.
        Transformer(TransformerSpec) = "transformer",
        /// Recurrent encoder-decoder with attention for sequence-to-sequence tasks: Bahdanau et al.,
        /// [2014](https://arxiv.org/abs/1409.0473); Luong et al., [2015](https://arxiv.org/abs/1508.04025).
        Seq2Seq(Seq2SeqSpec) = "seq2seq",
        /// Document classification with word and sentence attention: Yang et al.,
        /// [Hierarchical Attention Networks](https://aclanthology.org/N16-1174), 2016.
        Han(HanSpec) = "han",
        /// Decoder-only Transformer for language modelling.
        Gpt(GptSpec) = "gpt",
        /// Encoder-only Transformer for text classification.
        Classifier(ClassifierSpec) = "classifier",
    }
}

const ATTENTION: Values = Values::Choice(MECHANISMS);
/// Of all layers, or a list that repeats.
const ATTENTIONS: Values = Values::Choices(MECHANISMS);

fn flash() -> MechanismConfig {
    Mechanism::Flash.into()
}

impl Model {
    /// Weight tying, in models with a source and a target.
    pub fn tie_embeddings(&self) -> Option<Tying> {
        match self {
            Self::Transformer(model) => Some(model.tie_embeddings),
            Self::Seq2Seq(model) => Some(model.tie_embeddings),
            Self::Han(_) | Self::Gpt(_) | Self::Classifier(_) => None,
        }
    }

    /// The layer keys, in models of Transformer layers.
    pub fn layer_spec(&self) -> Option<LayerSpec> {
        match self {
            Self::Transformer(model) => Some(model.into()),
            Self::Gpt(model) => Some(model.into()),
            Self::Classifier(model) => Some(model.into()),
            Self::Seq2Seq(_) | Self::Han(_) => None,
        }
    }

    /// Number of encoder and decoder layers, in models that have both.
    pub fn encoder_and_decoder_layers(&self) -> Option<[usize; 2]> {
        match self {
            Self::Transformer(model) => Some(model.encoder_and_decoder_layers()),
            Self::Seq2Seq(model) => Some(model.encoder_and_decoder_layers()),
            Self::Han(_) | Self::Gpt(_) | Self::Classifier(_) => None,
        }
    }

    /// `layers`, and `[encoder_layers, decoder_layers]`.
    fn layers_mut(&mut self) -> Option<(&mut usize, [&mut Option<usize>; 2])> {
        match self {
            Self::Transformer(model) => {
                let own = [&mut model.encoder_layers, &mut model.decoder_layers];
                Some((&mut model.layers, own))
            }
            Self::Seq2Seq(model) => {
                let own = [&mut model.encoder_layers, &mut model.decoder_layers];
                Some((&mut model.layers, own))
            }
            Self::Han(_) | Self::Gpt(_) | Self::Classifier(_) => None,
        }
    }

    /// Sets every omitted key whose default depends on other keys.
    pub fn resolve(&mut self) {
        if let Some((layers, own)) = self.layers_mut() {
            for own in own {
                own.get_or_insert(*layers);
            }
        }
        let Some(layers) = self.layer_spec() else {
            return;
        };
        let (d_feed_forward, positions, context) = match self {
            Self::Transformer(it) => (&mut it.d_feed_forward, &mut it.positions, None),
            Self::Classifier(it) => (&mut it.d_feed_forward, &mut it.positions, None),
            Self::Gpt(it) => (&mut it.d_feed_forward, &mut it.positions, Some(it.context)),
            Self::Seq2Seq(_) | Self::Han(_) => return,
        };
        d_feed_forward.get_or_insert(layers.d_feed_forward);
        positions.resolve(context);
    }

    /// Sets `layers` to `encoder_layers` if both encoder and decoder have a number of their own:
    /// the default of `layers` would contradict them when the config is written out.
    pub fn resolve_layers(&mut self) {
        if let Some((layers, [Some(encoder), Some(decoder)])) = self.layers_mut()
            && layers != decoder
        {
            *layers = *encoder;
        }
    }
}

impl TransformerSpec {
    /// Number of encoder and decoder layers.
    pub fn encoder_and_decoder_layers(&self) -> [usize; 2] {
        [self.encoder_layers, self.decoder_layers].map(|own| own.unwrap_or(self.layers))
    }
}

impl Seq2SeqSpec {
    /// Number of encoder and decoder layers.
    pub fn encoder_and_decoder_layers(&self) -> [usize; 2] {
        [self.encoder_layers, self.decoder_layers].map(|own| own.unwrap_or(self.layers))
    }
}
