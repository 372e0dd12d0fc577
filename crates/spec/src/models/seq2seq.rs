//! The recurrent encoder-decoder with attention.

use super::{Alignment, InputFeeding, Tying};
use crate::keys::{LAYERS, PROBABILITY, Presence, Range, Values, WIDTH, choice, count};

crate::keys! {
    /// Keys of a recurrent sequence-to-sequence model.
    pub struct Seq2SeqSpec => seq2seq_keys {
        /// Embedding dimension.
        d_embedding: usize = 128, WIDTH;
        /// Hidden size of the decoder; each direction of the encoder has half of it.
        d_hidden: usize = 256, count(2, 1 << 20);
        /// Number of layers of encoder and decoder.
        layers: usize = 1, LAYERS;
        /// Number of encoder layers.
        encoder_layers: Option<usize> = None, LAYERS, Presence::Optional("`layers`");
        /// Number of decoder layers.
        decoder_layers: Option<usize> = None, LAYERS, Presence::Optional("`layers`");
        /// Attention of the decoder to the source.
        attention: Alignment = Alignment::Additive, choice("alignment", Alignment::KINDS);
        /// Input of the decoder besides the last token.
        input_feeding: InputFeeding = InputFeeding::Attentional, Values::Names(InputFeeding::NAMES);
        /// Weight tying of embeddings and output layer; requires `d_embedding = d_hidden` unless `none`.
        tie_embeddings: Tying = Tying::None, Values::Names(Tying::NAMES);
        /// Dropout probability (embeddings, between layers and before the output layer).
        dropout: f64 = 0.2, PROBABILITY;
        /// Teacher forcing ratio: probability that the decoder receives the target token instead of its
        /// own prediction.
        teacher_forcing: f64 = 1.0, Values::Number(Range::UNIT_INTERVAL);
    }
}
