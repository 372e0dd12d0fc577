//! The hierarchical attention network.

use super::Cell;
use crate::keys::{SHARE, Values, WIDTH};

crate::keys! {
    /// Keys of a hierarchical attention network.
    pub struct HanSpec => han_keys {
        /// Width of the word embeddings.
        d_embedding: usize = 200, WIDTH;
        /// Width of the word encoder, in each direction.
        d_word: usize = 50, WIDTH;
        /// Width of the sentence encoder, in each direction.
        d_sentence: usize = 50, WIDTH;
        /// Width of the attention over words and over sentences.
        d_attention: usize = 100, WIDTH;
        /// Cell of the recurrent encoders.
        cell: Cell = Cell::Gru, Values::Words(Cell::WORDS);
        /// Dropout.
        dropout: f64 = 0.1, SHARE;
    }
}
