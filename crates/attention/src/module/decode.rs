//! Incremental decoding, and cross-attention to a sequence that is projected once.

use burn::tensor::Tensor;

use super::{MultiHeadAttention, Positions, project};
use crate::decode::cache::select_batch;
use crate::mechanisms::linear::linear;
use crate::mechanisms::{self, ConvolutionInputs, Gates, Inputs, LocalM, MechanismConfig};
use crate::scan::{FeatureMap, LinearState};
use crate::{AttentionError, DecodeCache, Pattern, flash};

/// Projected keys and values of the sequence that cross-attention attends to, usually an encoder's
/// output. Computed once for all steps of a decoder by [`MultiHeadAttention::project_memory`].
#[derive(Debug, Clone)]
pub struct ProjectedMemory {
    key: Tensor<4>,
    value: Tensor<4>,
    /// The recurrent state after the whole sequence, for linear attention, and its feature map.
    state: Option<(LinearState, FeatureMap)>,
    /// Gates of its positions, if the mechanism has them.
    gates: Option<Gates>,
}

impl ProjectedMemory {
    /// The memory of the sequences with these batch indices, in this order; an index may repeat.
    /// Panics if an index is out of range.
    #[must_use]
    pub fn select(&self, batch: &[usize]) -> Self {
        let state = self.state.as_ref();
        Self {
            key: select_batch(self.key.clone(), batch),
            value: select_batch(self.value.clone(), batch),
            state: state.map(|(state, features)| (state.select(batch), features.clone())),
            gates: (self.gates.as_ref()).map(|gates| gates.map(|gate| select_batch(gate, batch))),
        }
    }
}

impl MultiHeadAttention {
    /// An empty cache for this layer, with an initial capacity of `capacity` positions.
    ///
    /// # Errors
    ///
    /// [`AttentionError::CannotDecode`] if the mechanism does not decode incrementally.
    pub fn decode_cache(&self, capacity: usize) -> Result<DecodeCache, AttentionError> {
        let mut cache = DecodeCache::new(self.mechanism, capacity)?;
        cache.features = self.resampled_features();
        cache.has_shared_rows = self.latent.is_some();
        Ok(cache)
    }

    /// Processes a prompt at once and fills the cache: causal [`forward`](Self::forward), after
    /// which [`step`](Self::step) continues.
    ///
    /// # Shapes
    ///
    /// - x: `[batch, seq, d_model]`
    /// - output: `[batch, seq, d_model]`
    ///
    /// # Panics
    ///
    /// If the cache is not empty, or belongs to another mechanism.
    pub fn prefill(&self, x: Tensor<3>, cache: &mut DecodeCache) -> Tensor<3> {
        self.check_cache(cache);
        assert!(
            cache.is_empty(),
            "multi-head attention: prefill needs an empty cache, this one has {} positions",
            cache.len()
        );
        let (inputs, rows) = match &self.latent {
            Some(latent) => {
                let rows = self.latent_rows(latent, x.clone(), 0);
                let inputs = self.latent_inputs(latent, x.clone(), 0, rows.clone());
                (inputs, [rows.clone(), rows])
            }
            None => {
                let (inputs, convolution) = self.project_next(&x, cache);
                cache.convolution = convolution;
                let rows = [inputs.key.clone(), inputs.value.clone()];
                (inputs, rows)
            }
        };
        let options = self.options(&inputs.query, Pattern::Causal);
        cache.extend_with(rows, inputs.gates.clone(), &options);
        // With the features of the cache: those of the layer may have been resampled since.
        let context = match cache.features.clone() {
            Some(features) => linear(inputs.query, inputs.key, inputs.value, features, &options),
            None => self.attend(inputs, &options).context,
        };
        self.project_output(context, x)
    }

    /// Attends from one new position to itself and all positions in the cache. The output equals
    /// that of causal [`forward`](Self::forward) over the whole sequence at this position.
    ///
    /// # Shapes
    ///
    /// - x: `[batch, 1, d_model]`
    /// - output: `[batch, 1, d_model]`
    ///
    /// # Panics
    ///
    /// If there is more than one position, the sizes differ from those in the cache, or the cache
    /// belongs to another mechanism.
    pub fn step(&self, x: Tensor<3>, cache: &mut DecodeCache) -> Tensor<3> {
        let [_, new, _] = x.dims();
        assert!(
            new == 1,
            "multi-head attention: step takes one position, got {new}"
        );
        self.check_cache(cache);
        if let Some(latent) = &self.latent {
            return self.latent_step(latent, x, cache);
        }
        let (inputs, convolution) = self.project_next(&x, cache);
        let options = self.options(&inputs.query, Pattern::Causal);
        let params = self.call_params(&inputs.query);
        let context = cache.step_with(inputs, &params, &options);
        cache.convolution = convolution;
        self.project_output(context, x)
    }

    /// Queries, keys and values of the positions that follow those in the cache, and the inputs of
    /// the short convolution for those after them.
    fn project_next(
        &self,
        x: &Tensor<3>,
        cache: &DecodeCache,
    ) -> (Inputs, Option<ConvolutionInputs>) {
        let position = cache.len() as i64;
        let inputs = [x.clone(), x.clone(), x.clone()];
        let Some(convolution) = &self.params.short_conv else {
            return (self.project(inputs, [position; 2]), None);
        };
        let [query, key, value] = inputs;
        let projected = [
            project(&self.query, query),
            project(self.key_projection(), key),
            project(&self.value, value),
        ];
        let (projected, next) = convolution.continue_from(cache.convolution.clone(), projected);
        let inputs = Inputs {
            gates: self.gates(x),
            ..Inputs::new(self.by_head(projected, position))
        };
        (inputs, Some(next))
    }

    /// Projects the keys and values of a sequence for repeated cross-attention.
    ///
    /// # Shapes
    ///
    /// - key, value: `[batch, seq_k, d_context]`
    ///
    /// # Panics
    ///
    /// If the mechanism computes its keys from its queries (`lsh`).
    pub fn project_memory(&self, key: Tensor<3>, value: Tensor<3>) -> ProjectedMemory {
        let gates = self.gates(&key);
        let (key, value) = match &self.latent {
            Some(latent) => {
                let rows = self.latent_rows(latent, key, 0);
                let keys = self.keys_of_latent(latent, rows.clone());
                (keys, self.values_of_latent(latent, rows))
            }
            None => (self.keys(key, 0), self.values(value)),
        };
        let mechanism = mechanisms::implementation(&self.mechanism);
        let features = self.resampled_features().or(mechanism.features());
        let state = features.map(|features| {
            let mut state = LinearState::from_features(features.clone());
            let scale = self.options(&key, Pattern::Full).scale;
            state.extend(key.clone(), value.clone(), scale);
            (state, features)
        });
        ProjectedMemory {
            key,
            value,
            state,
            gates,
        }
    }

    /// Cross-attention to a projected memory. The output equals that of [`forward`](Self::forward)
    /// with the unprojected key and value.
    ///
    /// The last query is aligned with the last key. With rotary positions or ALiBi, the output of a
    /// single query therefore differs from that of the same query among others.
    ///
    /// Query and output are `[batch, seq_q, d_model]`. Panics are those of
    /// [`forward`](Self::forward).
    pub fn cross_attend(
        &self,
        query: Tensor<3>,
        memory: &ProjectedMemory,
        pattern: Pattern,
    ) -> Tensor<3> {
        let first = memory.key.dims()[2] as i64 - query.dims()[1] as i64;
        let x = query.clone();
        let query = self.queries(query, first);
        let options = self.options(&query, pattern);
        let (key, value) = (memory.key.clone(), memory.value.clone());
        let context = match (&memory.state, &options.pattern) {
            (Some((state, _)), Pattern::Full) => state.attend(query, options.scale),
            // With the features of the memory: those of the layer may have been resampled since.
            (Some((_, features)), _) => linear(query, key, value, features.clone(), &options),
            (None, _) => {
                let inputs = Inputs {
                    gates: memory.gates.clone(),
                    ..Inputs::new([query, key, value])
                };
                self.attend(inputs, &options).context
            }
        };
        self.project_output(context, x)
    }

    /// [`cross_attend`](Self::cross_attend) for queries that start at position `first` of their
    /// sequence, as in decoding. It differs from `cross_attend` only for `local-m`, whose window is
    /// centred on the query's own position.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward); if the layer has rotary positions or ALiBi, which align the
    /// last query with the last key.
    pub fn cross_attend_from(
        &self,
        first: usize,
        query: Tensor<3>,
        memory: &ProjectedMemory,
        pattern: Pattern,
    ) -> Tensor<3> {
        assert!(
            self.positions == Positions::None,
            "multi-head attention: cross_attend_from does not support positions, got {:?}",
            self.positions
        );
        let window = match self.mechanism {
            MechanismConfig::LocalM(LocalM { window }) if first > 0 => window,
            _ => return self.cross_attend(query, memory, pattern),
        };
        let [_, seq_q, _] = query.dims();
        let x = query.clone();
        let query = self.queries(query, 0);
        // The pattern of a single query is aligned with the last key, so its window is expressed
        // relative to that. Several queries at once are rare and run one after the other.
        let contexts = (0..seq_q).map(|index| {
            let query = query.clone().slice_dim(2, index..index + 1);
            let visible = window_at(first + index, window, memory);
            let options = self.options(&query, pattern.clone().and(visible));
            flash(query, memory.key.clone(), memory.value.clone(), &options)
        });
        self.project_output(Tensor::cat(contexts.collect(), 2), x)
    }

    fn resampled_features(&self) -> Option<FeatureMap> {
        let resampled = self.params.features.as_ref();
        resampled.map(|resampled| resampled.features())
    }

    fn check_cache(&self, cache: &DecodeCache) {
        assert!(
            *cache.mechanism() == self.mechanism,
            "multi-head attention: this layer is {}, but the cache belongs to {}",
            self.mechanism.mechanism(),
            cache.mechanism().mechanism()
        );
        let [d_model, _] = self.query.weight.dims();
        // The input of `mla`'s value projection is that of its key projection.
        let value = self.latent.is_none().then_some(&self.value);
        let input_dims = [self.key.as_ref(), value]
            .map(|linear| linear.map_or(d_model, |linear| linear.weight.dims()[0]));
        assert!(
            input_dims == [d_model; 2],
            "multi-head attention: decoding is self-attention, so d_context and d_value_input must \
             be d_model = {d_model}, got {input_dims:?}"
        );
    }
}

/// The pattern that shows a single query the keys within `window` of `position`.
fn window_at(position: usize, window: usize, memory: &ProjectedMemory) -> Pattern {
    let [batch, _, seq_k, _] = memory.key.dims();
    let end = position.saturating_add(window).saturating_add(1).min(seq_k);
    let start = position.saturating_sub(window);
    let lengths = Pattern::key_lengths(vec![if start < end { end } else { 0 }; batch]);
    lengths.and(Pattern::Window {
        left: (seq_k - 1).saturating_sub(start),
        right: 0,
    })
}
