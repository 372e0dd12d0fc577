//! One place after the other: what a layer keeps between them, and its steps.

use burn::tensor::Tensor;

use super::{MultiHeadAttention, Positions};
use crate::Pattern;
use crate::cache::KvCache;
use crate::linear::{FeatureMap, LinearState, RandomFeatures, retention_decays};
use crate::mechanism::{Mechanism, MechanismConfig};

/// What a layer keeps of the places before.
#[derive(Debug, Clone)]
pub struct DecodeCache {
    mechanism: MechanismConfig,
    inside: Inside,
}

#[derive(Debug, Clone)]
enum Inside {
    /// Keys and values, seen by the mechanism's own pattern.
    Places(KvCache),
    /// Those that a window still shows, all of them seen.
    Window(KvCache),
    /// One matrix, however many there were.
    State { state: LinearState, places: usize },
}

/// A mechanism that cannot be computed one place after the other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("mechanism {mechanism} cannot decode: what a place sees depends on how many there will be")]
pub struct CannotDecode {
    /// The mechanism.
    pub mechanism: Mechanism,
}

impl MultiHeadAttention {
    /// An empty cache for this layer, with room for `capacity` places to begin with.
    ///
    /// # Errors
    ///
    /// [`CannotDecode`] if the mechanism cannot go place by place.
    pub fn decode_cache(&self, capacity: usize) -> Result<DecodeCache, CannotDecode> {
        let state = |state| Inside::State { state, places: 0 };
        let inside = match self.mechanism {
            MechanismConfig::BigBird { .. } | MechanismConfig::Strided { stride: None } => {
                let mechanism = self.mechanism.mechanism();
                return Err(CannotDecode { mechanism });
            }
            // Distances are told by places, which a ring forgets.
            MechanismConfig::SlidingWindow { window } if self.positions != Positions::Alibi => {
                Inside::Window(KvCache::ring(window.saturating_add(1)))
            }
            MechanismConfig::Linear { features } => {
                state(LinearState::of_features(features.into()))
            }
            MechanismConfig::Performer { features, seed, .. } => {
                let features = match &self.features {
                    Some(drawn) => drawn.features(),
                    None => FeatureMap::FavorPlus(RandomFeatures::new(features, seed)),
                };
                state(LinearState::of_features(features))
            }
            MechanismConfig::Retention => {
                state(LinearState::of_retention(retention_decays(self.kv_heads)))
            }
            _ => Inside::Places(KvCache::new(capacity)),
        };
        Ok(DecodeCache {
            mechanism: self.mechanism.clone(),
            inside,
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
        assert!(
            cache.mechanism == self.mechanism,
            "multi-head attention: a cache of {} was given to {}",
            cache.mechanism.mechanism(),
            self.mechanism.mechanism()
        );
        let first = match &cache.inside {
            Inside::Places(cache) | Inside::Window(cache) => cache.len(),
            Inside::State { places, .. } => *places,
        };
        let (query, key, value) =
            self.projected([place.clone(), place.clone(), place], [first as i64; 2]);
        let context = match &mut cache.inside {
            Inside::Places(cache) => {
                let [key, value] = cache.append(key, value);
                let options = self.options(&query, Pattern::Causal);
                self.attended(query, key, value, &options)
            }
            Inside::Window(cache) => {
                let [key, value] = cache.append(key, value);
                // All that are kept are seen.
                let options = self.options(&query, Pattern::Full);
                crate::flash(query, key, value, &options)
            }
            Inside::State { state, places } => {
                *places += 1;
                let scale = self.options(&query, Pattern::Causal).scale;
                state.step(query, key, value, scale)
            }
        };
        self.joined(context)
    }
}
