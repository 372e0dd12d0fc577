//! A layer one place after the other, and memory that is projected once.

use burn::tensor::Tensor;

use super::{MultiHeadAttention, Positions};
use crate::decode::cache::examples_of;
use crate::mechanisms;
use crate::scan::{FeatureMap, LinearState};
use crate::{CannotDecode, DecodeCache, Pattern, flash, linear};

/// Keys and values of what is attended to from elsewhere, an encoder's result mostly:
/// computed once, for all steps of a decoder. Made by [`MultiHeadAttention::remember`].
#[derive(Debug, Clone)]
pub struct Memory {
    key: Tensor<4>,
    value: Tensor<4>,
    /// All of it in one matrix, where the mechanism needs no more, and by which features.
    state: Option<(LinearState, FeatureMap)>,
}

impl Memory {
    /// The memory of these examples of the batch, in this order: some of them, some several
    /// times.
    ///
    /// # Panics
    ///
    /// If there is no such example.
    #[must_use]
    pub fn select(&self, examples: &[usize]) -> Self {
        let state = self.state.as_ref();
        Self {
            key: examples_of(self.key.clone(), examples),
            value: examples_of(self.value.clone(), examples),
            state: state.map(|(state, features)| (state.select(examples), features.clone())),
        }
    }
}

impl MultiHeadAttention {
    /// An empty cache for this layer, with room for `capacity` places to begin with.
    ///
    /// # Errors
    ///
    /// [`CannotDecode`] if the mechanism cannot go place by place.
    pub fn decode_cache(&self, capacity: usize) -> Result<DecodeCache, CannotDecode> {
        let cache = DecodeCache::new(self.mechanism, capacity)?;
        Ok(match &self.params.features {
            Some(drawn) => cache.with_features(drawn.features()),
            None => cache,
        })
    }

    /// The first places of a sequence, all at once: what
    /// [`forward`](MultiHeadAttention::forward) gives causally, and the cache is ready for
    /// the next.
    ///
    /// # Shapes
    ///
    /// - places: `[batch, seq, d_model]`
    /// - result: `[batch, seq, d_model]`
    ///
    /// # Panics
    ///
    /// If the cache is not empty, or another mechanism's.
    pub fn prefill(&self, places: Tensor<3>, cache: &mut DecodeCache) -> Tensor<3> {
        self.check_cache(cache);
        assert!(
            cache.is_empty(),
            "multi-head attention: a cache is filled from the first place on, this one has {}",
            cache.len()
        );
        let (query, key, value) = self.projected([places.clone(), places.clone(), places], [0, 0]);
        let options = self.options(&query, Pattern::Causal);
        cache.extend(key.clone(), value.clone(), &options);
        // By the features that the cache has, though others may have been drawn since.
        self.joined(match cache.features() {
            Some(features) => linear(query, key, value, features, &options),
            None => self.attended(query, key, value, &options).context,
        })
    }

    /// Attends from one new place to itself and all before, as
    /// [`forward`](MultiHeadAttention::forward) does causally with all of them at once.
    ///
    /// # Shapes
    ///
    /// - place: `[batch, 1, d_model]`
    /// - result: `[batch, 1, d_model]`
    ///
    /// # Panics
    ///
    /// If there is more than one place, the sizes changed since the first, or the cache is
    /// another mechanism's.
    pub fn step(&self, place: Tensor<3>, cache: &mut DecodeCache) -> Tensor<3> {
        let [_, new, _] = place.dims();
        assert!(
            new == 1,
            "multi-head attention: a step is one place, got {new}"
        );
        self.check_cache(cache);
        let at = cache.len() as i64;
        let (query, key, value) = self.projected([place.clone(), place.clone(), place], [at; 2]);
        let options = self.options(&query, Pattern::Causal);
        let context = cache.step_by(
            [query, key, value],
            &options,
            |[query, key, value], options| self.attended(query, key, value, options).context,
        );
        self.joined(context)
    }

    /// The keys and values of what is attended to again and again.
    ///
    /// # Shapes
    ///
    /// - key: `[batch, seq_k, kdim]`
    /// - value: `[batch, seq_k, vdim]`
    ///
    /// # Panics
    ///
    /// If the mechanism makes its keys of its queries: `lsh`.
    pub fn remember(&self, key: Tensor<3>, value: Tensor<3>) -> Memory {
        let (key, value) = (self.keys(key, 0), self.values(value));
        let features = match &self.params.features {
            Some(drawn) => Some(drawn.features()),
            None => mechanisms::of(&self.mechanism).features(),
        };
        let state = features.map(|features| {
            let mut state = LinearState::of_features(features.clone());
            let scale = self.options(&key, Pattern::Full).scale;
            state.extend(key.clone(), value.clone(), scale);
            (state, features)
        });
        Memory { key, value, state }
    }

    /// Attends to a memory, as [`forward`](MultiHeadAttention::forward) does to what it was
    /// made of.
    ///
    /// Places are counted as there, the last query level with the last key: so with
    /// positions, rotary or ALiBi, a query alone is not what it is among others.
    ///
    /// # Shapes
    ///
    /// - query: `[batch, seq_q, d_model]`
    /// - result: `[batch, seq_q, d_model]`
    ///
    /// # Panics
    ///
    /// As there.
    pub fn recall(&self, query: Tensor<3>, memory: &Memory, pattern: Pattern) -> Tensor<3> {
        let first = memory.key.dims()[2] as i64 - query.dims()[1] as i64;
        let query = self.queries(query, first);
        let options = self.options(&query, pattern);
        let (key, value) = (memory.key.clone(), memory.value.clone());
        let context = match (&memory.state, &options.pattern) {
            (Some((state, _)), Pattern::Full) => state.attend(query, options.scale),
            // The features it was made with, though others may have been drawn since.
            (Some((_, features)), _) => linear(query, key, value, features.clone(), &options),
            (None, _) => self.attended(query, key, value, &options).context,
        };
        self.joined(context)
    }

    /// Attends to a memory from the queries of number `first` on: what
    /// [`forward`](MultiHeadAttention::forward) gives them among all that were before. It
    /// matters for `local-m`, where a query looks as far along as it is itself; for others
    /// this is [`recall`](Self::recall).
    ///
    /// # Shapes
    ///
    /// - query: `[batch, seq_q, d_model]`
    /// - result: `[batch, seq_q, d_model]`
    ///
    /// # Panics
    ///
    /// As there; if the layer has positions, by which the last query is level with the last
    /// key, however many are to come.
    pub fn recall_from(
        &self,
        first: usize,
        query: Tensor<3>,
        memory: &Memory,
        pattern: Pattern,
    ) -> Tensor<3> {
        assert!(
            self.positions == Positions::None,
            "multi-head attention: a query of a given number cannot have positions, got {:?}",
            self.positions
        );
        let mechanism = mechanisms::of(&self.mechanism);
        let window = match mechanism.window() {
            Some(window) if mechanism.is_aligned_at_start() && first > 0 => window,
            Some(_) | None => return self.recall(query, memory, pattern),
        };
        let [_, seq_q, _] = query.dims();
        let query = self.queries(query, 0);
        // A query alone is level with the last key, whatever its number: what it sees is
        // said from there. Several at once are rare, and go one after the other.
        let contexts = (0..seq_q).map(|at| {
            let query = query.clone().slice_dim(2, at..at + 1);
            let seen = around(first + at, window, memory);
            let options = self.options(&query, pattern.clone().and(seen));
            flash(query, memory.key.clone(), memory.value.clone(), &options)
        });
        self.joined(Tensor::cat(contexts.collect(), 2))
    }

    fn check_cache(&self, cache: &DecodeCache) {
        assert!(
            *cache.mechanism() == self.mechanism,
            "multi-head attention: a cache of {} was given to {}",
            cache.mechanism().mechanism(),
            self.mechanism.mechanism()
        );
        let [d_model, _] = self.query.weight.dims();
        let others = [self.key.as_ref(), Some(&self.value)].map(|linear| match linear {
            Some(linear) => linear.weight.dims()[0],
            None => d_model,
        });
        assert!(
            others == [d_model; 2],
            "multi-head attention: a place is query, key and value: kdim and vdim must be \
             d_model = {d_model}, got {others:?}"
        );
    }
}

/// Shows a query that is alone the keys of a memory around number `place`.
fn around(place: usize, window: usize, memory: &Memory) -> Pattern {
    let [batch, _, seq_k, _] = memory.key.dims();
    let end = place.saturating_add(window).saturating_add(1).min(seq_k);
    let begin = place.saturating_sub(window);
    let lengths = Pattern::key_lengths(vec![if begin < end { end } else { 0 }; batch]);
    lengths.and(Pattern::Window {
        left: (seq_k - 1).saturating_sub(begin),
        right: 0,
    })
}
