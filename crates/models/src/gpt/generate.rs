//! A GPT token by token.

use burn::tensor::{Device, Int, Tensor};
use zoo_attention::DecodeCache;

use super::Gpt;
use crate::blocks::ROOM;
use crate::{Generative, ModelError};

/// What a [`Gpt`] keeps of the tokens before.
#[derive(Debug, Clone)]
pub struct GptState {
    caches: Vec<DecodeCache>,
    rows: usize,
}

impl Gpt {
    /// Nothing yet, for so many sequences.
    ///
    /// # Errors
    ///
    /// [`ModelError::CannotDecode`] if the mechanism cannot go token by token.
    ///
    /// # Panics
    ///
    /// If that is none.
    pub fn start(&self, rows: usize) -> Result<GptState, ModelError> {
        assert!(rows > 0, "GPT: a state needs a row, got none");
        let field = "mechanism";
        let cache = |layer: &crate::blocks::EncoderLayer| {
            let cache = layer.attention.decode_cache(ROOM);
            cache.map_err(|source| ModelError::CannotDecode { field, source })
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
        let mut places = self.embedded(tokens, first);
        for (layer, cache) in self.layers.iter().zip(&mut state.caches) {
            places = layer.advance(places, cache);
        }
        let last = places.slice_dim(1, new - 1..new);
        self.predicted(last).reshape([rows, self.vocabulary()])
    }

    fn select(&self, state: &GptState, rows: &[usize]) -> GptState {
        let select = |cache: &DecodeCache| cache.select(rows);
        GptState {
            caches: state.caches.iter().map(select).collect(),
            rows: rows.len(),
        }
    }
}
