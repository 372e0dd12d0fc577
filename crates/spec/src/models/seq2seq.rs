//! The recurrent encoder-decoder with attention.

use super::{ALIGNMENT, Alignment, Feeding, Tying};
use crate::keys::{LAYERS, Presence, Range, SHARE, Values, WIDTH, count};

crate::keys! {
    /// Keys of a recurrent sequence-to-sequence model.
    pub struct Seq2SeqSpec => seq2seq_keys {
        /// Width of the embeddings.
        d_embedding: usize = 128, WIDTH;
        /// Width of the decoder's state; each direction of the encoder has half of it.
        d_hidden: usize = 256, count(2, 1 << 20);
        /// Layers of the encoder and of the decoder.
        layers: usize = 1, LAYERS;
        /// Layers of the encoder.
        encoder_layers: Option<usize> = None, LAYERS, Presence::Optional("as many as `layers`");
        /// Layers of the decoder.
        decoder_layers: Option<usize> = None, LAYERS, Presence::Optional("as many as `layers`");
        /// Attention of the decoder to the source.
        attention: Alignment = Alignment::Additive, ALIGNMENT;
        /// What the decoder receives besides the last token.
        feeding: Feeding = Feeding::Input, Values::Words(Feeding::WORDS);
        /// Which embeddings share their weights; anything but `none` needs `d_embedding = d_hidden`.
        tying: Tying = Tying::None, Values::Words(Tying::WORDS);
        /// Dropout of embeddings, between layers and before the output layer.
        dropout: f64 = 0.2, SHARE;
        /// Probability that a training step feeds the target's token to the decoder instead of the
        /// predicted one.
        teacher_forcing: f64 = 1.0, Values::Number(Range::PART);
    }
}
