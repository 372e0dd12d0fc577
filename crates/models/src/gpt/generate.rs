//! Incremental decoding of a GPT.

use burn::tensor::{Device, Int, Tensor};
use zoo_attention::DecodeCache;

use super::Gpt;
use crate::blocks::{EncoderLayer, INITIAL_CAPACITY};
use crate::{Generative, ModelError};

/// Decoding state of a [`Gpt`]: a key/value cache for each layer.
#[derive(Debug, Clone)]
pub struct GptState {
    caches: Vec<DecodeCache>,
    rows: usize,
}

impl Gpt {
    /// Creates an empty state for `rows` sequences.
    ///
    /// # Errors
    ///
    /// [`ModelError::Attention`] if the mechanism does not support incremental decoding.
    ///
    /// # Panics
    ///
    /// If `rows` is 0.
    pub fn start(&self, rows: usize) -> Result<GptState, ModelError> {
        assert!(rows > 0, "GPT: a state needs at least one row, got 0");
        let field = "attention";
        let cache = |layer: &EncoderLayer| {
            let cache = layer.attention.decode_cache(INITIAL_CAPACITY);
            cache.map_err(|source| ModelError::Attention { field, source })
        };
        let caches = self.layers.iter().map(cache).collect::<Result<_, _>>()?;
        Ok(GptState { caches, rows })
    }
}

impl Generative for Gpt {
    type State = GptState;

    fn vocabulary(&self) -> usize {
        self.limits().vocabulary
    }

    fn longest(&self) -> Option<usize> {
        self.limits().longest
    }

    fn device(&self) -> Device {
        self.embedding.weight.device()
    }

    fn rows(&self, state: &GptState) -> usize {
        state.rows
    }

    fn advance(&self, tokens: Tensor<2, Int>, state: &mut GptState) -> Tensor<2> {
        let [rows, new] = tokens.dims();
        assert!(
            rows == state.rows && new > 0,
            "GPT: tokens must be [rows = {}, new], at least one new, got {:?}",
            state.rows,
            tokens.dims()
        );
        let first = state.caches.first().map_or(0, DecodeCache::len);
        let mut hidden = self.embed(tokens, first);
        for (layer, cache) in self.layers.iter().zip(&mut state.caches) {
            hidden = layer.advance(hidden, cache);
        }
        let last = hidden.slice_dim(1, new - 1..new);
        self.predict(last).reshape([rows, self.vocabulary()])
    }

    fn select(&self, state: &GptState, rows: &[usize]) -> GptState {
        let select = |cache: &DecodeCache| cache.select(rows);
        GptState {
            caches: state.caches.iter().map(select).collect(),
            rows: rows.len(),
        }
    }
}
