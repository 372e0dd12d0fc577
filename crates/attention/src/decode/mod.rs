//! One place after the other: what a mechanism keeps between them, and its steps.
//!
//! A step costs as much as there are keys to be seen: all that are kept for most
//! mechanisms, a window for [`sliding-window`](Mechanism::SlidingWindow) and
//! [`local-m`](Mechanism::LocalM), and the same however much there was for the linear ones.

pub(crate) mod cache;

use burn::tensor::{DType, Tensor};

pub use crate::decode::cache::KvCache;
use crate::mechanisms::{self, Mechanism, MechanismConfig, SlidingWindow, attend};
use crate::scan::{FeatureMap, LinearState, refuse_scores};
use crate::{AttentionOptions, AttentionShape, Pattern, flash, which_body};

/// What a mechanism keeps of the places before, and how it goes on.
///
/// ```
/// # use zoo_attention::{DecodeCache, Mechanism};
/// // Room for 1,024 places to begin with.
/// let cache = DecodeCache::new(Mechanism::Flash.into(), 1024);
/// assert!(cache.is_ok_and(|cache| cache.is_empty()));
/// ```
#[derive(Debug, Clone)]
pub struct DecodeCache {
    mechanism: MechanismConfig,
    capacity: usize,
    /// Random features that were drawn for it.
    features: Option<FeatureMap>,
    /// Made for the first keys, whose sizes it has.
    inside: Option<Inside>,
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
#[error("mechanism {mechanism} cannot decode token by token: {reason}")]
pub struct CannotDecode {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Why it cannot.
    pub reason: &'static str,
}

/// A cache that has forgotten what it would have to go back to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a cache of {mechanism} cannot go back to {places} of {had} places: only one that keeps every \
     key can, and only to fewer"
)]
pub struct CannotRewind {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Where it was to go back to.
    pub places: usize,
    /// How many there were.
    pub had: usize,
}

impl DecodeCache {
    /// An empty cache, with room for `capacity` places to begin with.
    ///
    /// # Errors
    ///
    /// [`CannotDecode`] if the mechanism cannot go place by place.
    pub fn new(mechanism: MechanismConfig, capacity: usize) -> Result<Self, CannotDecode> {
        if let Err(reason) = mechanism.capabilities().decoding {
            let mechanism = mechanism.mechanism();
            return Err(CannotDecode { mechanism, reason });
        }
        Ok(Self {
            mechanism,
            capacity,
            features: None,
            inside: None,
        })
    }

    /// The same with random features that are there already.
    pub(crate) fn with_features(mut self, features: FeatureMap) -> Self {
        self.features = Some(features);
        self
    }

    /// Random features that were drawn for it, if any were.
    pub(crate) fn features(&self) -> Option<FeatureMap> {
        self.features.clone()
    }

    /// The mechanism it is for.
    pub fn mechanism(&self) -> &MechanismConfig {
        &self.mechanism
    }

    /// Places that were taken in.
    pub fn len(&self) -> usize {
        match &self.inside {
            None => 0,
            Some(Inside::Places(cache) | Inside::Window(cache)) => cache.len(),
            Some(Inside::State { places, .. }) => *places,
        }
    }

    /// Whether there were none yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Numbers that are kept of them, of all examples and heads.
    pub fn numbers(&self) -> usize {
        match &self.inside {
            None => 0,
            Some(Inside::Places(cache) | Inside::Window(cache)) => cache.numbers(),
            Some(Inside::State { state, .. }) => state.numbers(),
        }
    }

    /// Takes keys and values in, for steps to come. The options are those of the steps.
    ///
    /// # Shapes
    ///
    /// - key: `[batch, kv_heads, new, d_head]`
    /// - value: `[batch, kv_heads, new, d_value]`
    ///
    /// # Panics
    ///
    /// If the sizes changed since the first.
    pub fn extend(&mut self, key: Tensor<4>, value: Tensor<4>, options: &AttentionOptions) {
        let [_, _, new, _] = key.dims();
        match self.inside_for(&key, options) {
            Inside::Places(cache) | Inside::Window(cache) => {
                cache.append_in_room(key, value);
            }
            Inside::State { state, places } => {
                check_for_state(options);
                state.extend(key, value, options.scale);
                *places += new;
            }
        }
    }

    /// Takes one place in, and attends from it to itself and all before, as
    /// [`attend`] does causally from the last of them.
    ///
    /// A pattern in the options hides more of the places so far, padding before a prompt,
    /// say: it is asked about that many keys. What keeps no places takes none, and neither
    /// ALiBi nor a bias. `hard` draws the same noise in every step, unless its seed changes.
    ///
    /// # Shapes
    ///
    /// - query: `[batch, heads, 1, d_head]`
    /// - key: `[batch, kv_heads, 1, d_head]`
    /// - value: `[batch, kv_heads, 1, d_value]`
    /// - result: `[batch, heads, 1, d_value]`
    ///
    /// # Panics
    ///
    /// If there is more than one place, the sizes changed since the first, or the options
    /// are none that what is kept can follow. The cache is then what it was before.
    pub fn step(
        &mut self,
        query: Tensor<4>,
        key: Tensor<4>,
        value: Tensor<4>,
        options: &AttentionOptions,
    ) -> Tensor<4> {
        let mechanism = self.mechanism;
        self.step_by(
            [query, key, value],
            options,
            |[query, key, value], options| attend(mechanism, query, key, value, options),
        )
    }

    /// [`step`](Self::step), where `attended` computes the mechanism over all places: with
    /// parameters of its own, perhaps.
    pub(crate) fn step_by(
        &mut self,
        [query, key, value]: [Tensor<4>; 3],
        options: &AttentionOptions,
        attended: impl FnOnce([Tensor<4>; 3], &AttentionOptions) -> Tensor<4>,
    ) -> Tensor<4> {
        let new = [&query, &key, &value].map(|tensor| tensor.dims()[2]);
        assert!(
            new == [1, 1, 1],
            "{OP}: a query, a key and a value, got {new:?} of them"
        );
        // All arguments are checked before anything changes.
        let shape = AttentionShape::of(OP, &query, &key, &value);
        let dtypes = [query.dtype(), key.dtype(), value.dtype()];
        assert!(
            dtypes == [dtypes[0]; 3],
            "{OP}: query, key and value must be of one dtype, got {dtypes:?}"
        );
        let mechanism = self.mechanism;
        match self.inside_for(&key, options) {
            Inside::Places(cache) => {
                let seq_k = cache.len() + 1;
                let shape = AttentionShape { seq_k, ..shape };
                options.check(OP, &shape);
                options.check_device(OP, &query.device());
                options.pattern.check(OP, &shape);
                let ([key, value], filled) = cache.append_in_room(key, value);
                let lengths = vec![filled; query.dims()[0]];
                let in_room = options.clone().with_pattern(Pattern::key_lengths(lengths));
                if sees_everything(&mechanism, options) && is_by_cpu(&query, &key, &value, &in_room)
                {
                    attended([query, key, value], &in_room)
                } else {
                    let [key, value] = [key, value].map(|rows| rows.slice_dim(2, 0..filled));
                    let pattern = match &options.pattern {
                        Pattern::Full | Pattern::Causal => Pattern::Causal,
                        more => Pattern::Causal.and(more.clone()),
                    };
                    let options = options.clone().with_pattern(pattern);
                    match mechanisms::of(&mechanism).window() {
                        // The new position is aligned with the last key, whichever way the
                        // window is aligned.
                        Some(window) => {
                            let aligned = SlidingWindow { window };
                            attend(aligned, query, key, value, &options)
                        }
                        None => attended([query, key, value], &options),
                    }
                }
            }
            Inside::Window(cache) => {
                assert!(
                    knows_no_places(options),
                    "{OP}: the first options had no ALiBi, bias or pattern, so that the last keys \
                     alone were kept, in no order; these have"
                );
                let [key, value] = cache.append(key, value);
                // All that are kept are seen.
                let options = options.clone().with_pattern(Pattern::Full);
                flash(query, key, value, &options)
            }
            Inside::State { state, places } => {
                check_for_state(options);
                let context = state.step(query, key, value, options.scale);
                *places += 1;
                context
            }
        }
    }

    /// The cache of these examples of the batch, in this order: some of them, some several
    /// times. What a search goes on with is such a choice, and a batch without the rows that
    /// are finished.
    ///
    /// # Panics
    ///
    /// If there is no such example.
    #[must_use]
    pub fn select(&self, examples: &[usize]) -> Self {
        let inside = self.inside.as_ref().map(|inside| match inside {
            Inside::Places(cache) => Inside::Places(cache.select(examples)),
            Inside::Window(cache) => Inside::Window(cache.select(examples)),
            Inside::State { state, places } => Inside::State {
                state: state.select(examples),
                places: *places,
            },
        });
        Self {
            inside,
            ..self.clone()
        }
    }

    /// Goes back to the first `places`, as if the others had never been taken in.
    ///
    /// # Errors
    ///
    /// [`CannotRewind`] if those are more than there were, or not all of them are kept.
    pub fn rewind(&mut self, places: usize) -> Result<(), CannotRewind> {
        let had = self.len();
        match &mut self.inside {
            Some(Inside::Places(cache)) if places <= had => cache.truncate(places),
            _ if places == had => {}
            _ => {
                return Err(CannotRewind {
                    mechanism: self.mechanism.mechanism(),
                    places,
                    had,
                });
            }
        }
        Ok(())
    }

    /// What is kept, made now if these are the first keys.
    fn inside_for(&mut self, key: &Tensor<4>, options: &AttentionOptions) -> &mut Inside {
        let (mechanism, capacity) = (mechanisms::of(&self.mechanism), self.capacity);
        let drawn = self.features.clone();
        let [_, kv_heads, ..] = key.dims();
        self.inside.get_or_insert_with(|| {
            let state = match drawn {
                Some(features) => Some(LinearState::of_features(features)),
                None => mechanism.state(kv_heads),
            };
            match (state, mechanism.window()) {
                (Some(state), _) => Inside::State { state, places: 0 },
                // A ring forgets which place is which.
                (None, Some(window)) if knows_no_places(options) => {
                    Inside::Window(KvCache::ring(window.saturating_add(1)))
                }
                (None, _) => Inside::Places(KvCache::new(capacity)),
            }
        })
    }
}

const OP: &str = "a step of decoding";

/// Whether what the options say is the same wherever a key is.
fn knows_no_places(options: &AttentionOptions) -> bool {
    let sees_all = matches!(options.pattern, Pattern::Full | Pattern::Causal);
    sees_all && options.alibi.is_none() && options.bias.is_none()
}

/// Whether a place sees everything before it, all alike.
fn sees_everything(mechanism: &MechanismConfig, options: &AttentionOptions) -> bool {
    mechanisms::of(mechanism).sees_all_keys() && knows_no_places(options)
}

/// One matrix for all keys has no scores and no places.
fn check_for_state(options: &AttentionOptions) {
    refuse_scores(OP, options);
    assert!(
        knows_no_places(options),
        "{OP}: a state has seen all keys there were: the pattern must be full or causal, got {}",
        options.pattern.kind()
    );
}

/// Whether the kernels for CPUs compute a call, and read it where it is: they read no key
/// beyond the lengths, and a part of a tensor would be a copy on some backends of theirs.
/// Half-precision numbers would all be widened.
fn is_by_cpu(
    query: &Tensor<4>,
    key: &Tensor<4>,
    value: &Tensor<4>,
    options: &AttentionOptions,
) -> bool {
    key.dtype() == DType::F32 && which_body(query, key, value, options).is_cpu()
}
