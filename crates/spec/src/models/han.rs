//! The hierarchical attention network.

use super::Cell;
use crate::keys::{PROBABILITY, Values, WIDTH};

crate::keys! {
    /// Keys of a hierarchical attention network.
    pub struct HanSpec => han_keys {
        /// Word embedding dimension.
        d_embedding: usize = 200, WIDTH;
        /// Hidden size of the word encoder, per direction.
        d_word: usize = 50, WIDTH;
        /// Hidden size of the sentence encoder, per direction.
        d_sentence: usize = 50, WIDTH;
        /// Dimension of the word and sentence attention.
        d_attention: usize = 100, WIDTH;
        /// Recurrent cell of the encoders.
        cell: Cell = Cell::Gru, Values::Names(Cell::NAMES);
        /// Dropout probability.
        dropout: f64 = 0.1, PROBABILITY;
    }
}
