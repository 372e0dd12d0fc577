//! Incremental decoding: the cache or recurrent state of a mechanism, and its steps.
//!
//! A step costs as much as there are visible keys: all positions for most mechanisms, a window for
//! [`sliding-window`](crate::mechanisms::SlidingWindow) and
//! [`local-m`](crate::mechanisms::LocalM), and O(1) for
//! linear attention.

pub(crate) mod cache;

use burn::tensor::Tensor;

pub use crate::decode::cache::KvCache;
use crate::decode::cache::select_batch;
use crate::flash::reads_keys_in_place;
use crate::mechanisms::{
    self, Call, ConvolutionInputs, Gates, Inputs, MechanismConfig, Params, Retained,
};
use crate::scan::{FeatureMap, LinearState, RecurrentState, reject_score_options};
use crate::{AttentionError, AttentionOptions, AttentionShape, Pattern};

/// Cache of a mechanism for decoding token by token: keys and values, or a recurrent state.
///
/// ```
/// # use zoo_attention::{DecodeCache, mechanisms::Flash};
/// // An initial capacity of 1,024 positions.
/// let cache = DecodeCache::new(Flash {}, 1024);
/// assert!(cache.is_ok_and(|cache| cache.is_empty()));
/// ```
#[derive(Debug, Clone)]
pub struct DecodeCache {
    mechanism: MechanismConfig,
    capacity: usize,
    /// Random features of the layer that the cache belongs to, if it has its own.
    pub(crate) features: Option<FeatureMap>,
    /// Whether keys and values are the same rows, which are then stored once.
    pub(crate) has_shared_rows: bool,
    /// The last inputs of a layer's short convolution.
    pub(crate) convolution: Option<ConvolutionInputs>,
    /// Allocated with the first keys, which determine the sizes.
    storage: Option<Storage>,
    /// Gates of all positions, if a layer computes them.
    gates: Option<Gates>,
}

#[derive(Debug, Clone)]
enum Storage {
    /// All keys and values; the mechanism's own pattern applies.
    All(KvCache),
    /// Keys and values within the window, all of them visible.
    Window(KvCache),
    /// A recurrent state of constant size.
    State { state: RecurrentState, len: usize },
}

impl DecodeCache {
    /// An empty cache with an initial capacity of `capacity` positions.
    ///
    /// # Errors
    ///
    /// [`AttentionError::CannotDecode`] if the mechanism does not decode incrementally.
    pub fn new(
        mechanism: impl Into<MechanismConfig>,
        capacity: usize,
    ) -> Result<Self, AttentionError> {
        let mechanism = mechanism.into();
        if let Err(reason) = mechanism.capabilities().decoding {
            let mechanism = mechanism.mechanism();
            return Err(AttentionError::CannotDecode { mechanism, reason });
        }
        Ok(Self {
            mechanism,
            capacity,
            features: None,
            has_shared_rows: false,
            convolution: None,
            storage: None,
            gates: None,
        })
    }

    /// The mechanism that the cache belongs to.
    pub fn mechanism(&self) -> &MechanismConfig {
        &self.mechanism
    }

    /// Number of positions processed so far.
    pub fn len(&self) -> usize {
        match &self.storage {
            None => 0,
            Some(Storage::All(cache) | Storage::Window(cache)) => cache.len(),
            Some(Storage::State { len, .. }) => *len,
        }
    }

    /// Whether no position was processed yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of stored elements, over all sequences and heads.
    pub fn num_elements(&self) -> usize {
        let stored = match &self.storage {
            None => 0,
            Some(Storage::All(cache) | Storage::Window(cache)) => cache.num_elements(),
            Some(Storage::State { state, .. }) => state.num_elements(),
        };
        let inputs = self.convolution.as_ref();
        let inputs = inputs.map_or(0, ConvolutionInputs::num_elements);
        stored + inputs + self.gates.as_ref().map_or(0, Gates::num_elements)
    }

    /// Appends keys and values without attending. The options are those of the steps.
    ///
    /// # Shapes
    ///
    /// - key: `[batch, kv_heads, new, d_head]`
    /// - value: `[batch, kv_heads, new, d_value]`
    ///
    /// # Panics
    ///
    /// If the sizes differ from those in the cache.
    pub fn extend(&mut self, key: Tensor<4>, value: Tensor<4>, options: &AttentionOptions) {
        self.extend_with([key, value], None, options);
    }

    /// [`extend`](Self::extend) with the gates of a layer.
    pub(crate) fn extend_with(
        &mut self,
        [key, value]: [Tensor<4>; 2],
        gates: Option<Gates>,
        options: &AttentionOptions,
    ) {
        let [_, _, new, _] = key.dims();
        let gates = self.all_gates(gates, &key);
        match self.storage_for(&key, options) {
            Storage::All(cache) | Storage::Window(cache) => {
                cache.append_in_place(key, value);
            }
            Storage::State { state, len } => {
                check_for_state(options);
                state.extend(key, value, gates, options.scale);
                *len += new;
                return;
            }
        }
        self.gates = gates;
    }

    /// Whether the mechanism has a recurrent state.
    fn is_recurrent(&self) -> bool {
        let mechanism = mechanisms::implementation(&self.mechanism);
        self.features.is_some() || mechanism.state(1).is_some()
    }

    /// The gates of all positions and of new ones; for a recurrent state, of the new ones only.
    fn all_gates(&self, new: Option<Gates>, key: &Tensor<4>) -> Option<Gates> {
        if self.is_recurrent() {
            let (first, [_, _, count, _]) = (self.len(), key.dims());
            let mechanism = mechanisms::implementation(&self.mechanism);
            let initial = || mechanism.initial_gates(key, first + count);
            let of_new = |gates: Gates| gates.of_positions(first..first + count);
            return new.or_else(|| initial().map(of_new));
        }
        match (&self.gates, new) {
            (Some(gates), Some(new)) => Some(gates.followed_by(&new)),
            (None, new) => new,
            (Some(_), None) => panic!("{OP}: this cache belongs to a layer that computes gates"),
        }
    }

    /// Appends one position, and attends from it to itself and all positions before, as
    /// [`attend`](crate::attend) with a causal pattern does for the last query.
    ///
    /// A pattern in the options masks further positions, such as padding before a prompt. A
    /// recurrent state supports no pattern, no ALiBi and no bias. `hard` samples the same noise in
    /// every step, unless its seed changes.
    ///
    /// # Shapes
    ///
    /// - query: `[batch, heads, 1, d_head]`
    /// - key: `[batch, kv_heads, 1, d_head]`
    /// - value: `[batch, kv_heads, 1, d_value]`
    /// - output: `[batch, heads, 1, d_value]`
    ///
    /// # Panics
    ///
    /// If there is more than one position, the sizes differ from those in the cache, or the cache
    /// does not support the options. The cache is then unchanged.
    pub fn step(
        &mut self,
        query: Tensor<4>,
        key: Tensor<4>,
        value: Tensor<4>,
        options: &AttentionOptions,
    ) -> Tensor<4> {
        let inputs = Inputs::new([query, key, value]);
        self.step_with(inputs, &Params::default(), options)
    }

    /// [`step`](Self::step) with the parameters of a layer.
    pub(crate) fn step_with(
        &mut self,
        mut inputs: Inputs,
        params: &Params,
        options: &AttentionOptions,
    ) -> Tensor<4> {
        inputs.gates = self.all_gates(inputs.gates, &inputs.key);
        let gates = inputs.gates.clone().filter(|_| !self.is_recurrent());
        let context = self.append_and_attend(inputs, params, options);
        self.gates = gates;
        context
    }

    /// Appends the key and value, and attends to all positions, whose gates these are.
    fn append_and_attend(
        &mut self,
        inputs: Inputs,
        params: &Params,
        options: &AttentionOptions,
    ) -> Tensor<4> {
        let Inputs {
            query,
            key,
            value,
            gates,
        } = inputs;
        let new = [&query, &key, &value].map(|tensor| tensor.dims()[2]);
        assert!(
            new == [1, 1, 1],
            "{OP}: expected one query, key and value, got {new:?}"
        );
        // All arguments are checked before anything changes.
        let shape = AttentionShape::from_tensors(OP, &query, &key, &value);
        let dtypes = [query.dtype(), key.dtype(), value.dtype()];
        assert!(
            dtypes == [dtypes[0]; 3],
            "{OP}: query, key and value must have the same dtype, got {dtypes:?}"
        );
        let config = self.mechanism;
        let mechanism = mechanisms::implementation(&config);
        match self.storage_for(&key, options) {
            Storage::All(cache) => {
                let seq_k = cache.len() + 1;
                let shape = AttentionShape { seq_k, ..shape };
                options.check(OP, &shape);
                options.check_device(OP, &query.device());
                options.pattern.check(OP, &shape);
                let ([key, value], filled) = cache.append_in_place(key, value);
                let lengths = vec![filled; query.dims()[0]];
                let in_place = options.clone().with_pattern(Pattern::key_lengths(lengths));
                // The CPU kernel reads the cache in place, up to the given lengths, where a slice
                // would be a copy on some backends. Where it does not read half precision, the whole
                // capacity would be widened.
                if mechanism.attends_to_all_keys()
                    && is_position_independent(options)
                    && reads_keys_in_place([&query, &key, &value], &in_place)
                {
                    let (inputs, options) = (Inputs::new([query, key, value]), &in_place);
                    return mechanism.forward(inputs, Call { params, options }).context;
                }
                let [key, value] = [key, value].map(|rows| rows.slice_dim(2, 0..filled));
                let pattern = match &options.pattern {
                    Pattern::Full | Pattern::Causal => Pattern::Causal,
                    pattern => Pattern::Causal.and(pattern.clone()),
                };
                let options = options.clone().with_pattern(pattern);
                let inputs = Inputs {
                    gates,
                    ..Inputs::new([query, key, value])
                };
                if mechanism.retained().is_some() {
                    // The new position is aligned with the last key, whichever way the
                    // window is aligned.
                    let options = match mechanism.step_pattern(filled) {
                        Some(pattern) => options.restricted_to(pattern),
                        None => options,
                    };
                    return mechanism.attend(inputs, params, &options);
                }
                let options = &options;
                mechanism.forward(inputs, Call { params, options }).context
            }
            Storage::Window(cache) => {
                assert!(
                    is_position_independent(options),
                    "{OP}: this cache was created without ALiBi, bias or pattern, so that it \
                     retains the window in no particular order and cannot support them now"
                );
                let [key, value] = cache.append(key, value);
                let options = options.clone().with_pattern(Pattern::Full);
                mechanism.attend(Inputs::new([query, key, value]), params, &options)
            }
            Storage::State { state, len } => {
                check_for_state(options);
                state.extend(key, value, gates, options.scale);
                *len += 1;
                let [.., d_head] = query.dims();
                state.attend(query, options.scale, mechanism.default_scale(d_head))
            }
        }
    }

    /// The cache of the sequences with these batch indices, in this order; an index may repeat.
    /// Beam search selects its beams this way, and a batch drops its finished sequences.
    /// Panics if an index is out of range.
    #[must_use]
    pub fn select(&self, batch: &[usize]) -> Self {
        let storage = self.storage.as_ref().map(|storage| match storage {
            Storage::All(cache) => Storage::All(cache.select(batch)),
            Storage::Window(cache) => Storage::Window(cache.select(batch)),
            Storage::State { state, len } => Storage::State {
                state: state.select(batch),
                len: *len,
            },
        });
        let select = |gates: &Gates| gates.map(|gate| select_batch(gate, batch));
        Self {
            storage,
            convolution: self.convolution.as_ref().map(|inputs| inputs.select(batch)),
            gates: self.gates.as_ref().map(select),
            ..self.clone()
        }
    }

    /// Removes all positions from `len` on.
    ///
    /// # Errors
    ///
    /// [`AttentionError::CannotTruncate`] if there are fewer positions, or the cache does not
    /// retain every key.
    pub fn truncate(&mut self, len: usize) -> Result<(), AttentionError> {
        let current = self.len();
        match &mut self.storage {
            Some(Storage::All(cache)) if len <= current => {
                cache.truncate(len);
                self.gates = self.gates.as_ref().map(|gates| gates.of_positions(0..len));
            }
            _ if len == current => {}
            _ => {
                return Err(AttentionError::CannotTruncate {
                    mechanism: self.mechanism.mechanism(),
                    len: current,
                    target: len,
                });
            }
        }
        Ok(())
    }

    fn storage_for(&mut self, key: &Tensor<4>, options: &AttentionOptions) -> &mut Storage {
        let (mechanism, capacity) = (mechanisms::implementation(&self.mechanism), self.capacity);
        let features = self.features.clone();
        let has_shared_rows = self.has_shared_rows;
        let [_, kv_heads, ..] = key.dims();
        self.storage.get_or_insert_with(|| {
            let state = features.map(LinearState::from_features);
            let state = state.map(RecurrentState::Linear);
            let state = state.or_else(|| mechanism.state(kv_heads));
            match (state, mechanism.retained()) {
                (Some(state), _) => Storage::State { state, len: 0 },
                // A ring buffer loses the order of the positions.
                (None, Some(Retained { first, last })) if is_position_independent(options) => {
                    Storage::Window(KvCache::ring_after(first, last))
                }
                (None, _) if has_shared_rows => Storage::All(KvCache::with_shared_rows(capacity)),
                (None, _) => Storage::All(KvCache::new(capacity)),
            }
        })
    }
}

const OP: &str = "decoding step";

/// Whether the options treat every key alike, wherever it is.
fn is_position_independent(options: &AttentionOptions) -> bool {
    matches!(options.pattern, Pattern::Full | Pattern::Causal)
        && options.alibi.is_none()
        && !options.has_bias()
        && options.score_mod.is_none()
}

/// A recurrent state has neither scores nor positions.
fn check_for_state(options: &AttentionOptions) {
    reject_score_options(OP, options);
    assert!(
        is_position_independent(options),
        "{OP}: a recurrent state supports the patterns full and causal only, got {}",
        options.pattern.kind()
    );
}
