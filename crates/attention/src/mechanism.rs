//! Every mechanism by its word: one call, any of them.

use burn::tensor::Tensor;
pub use zoo_words::{LinearFeatures, Mechanism, MechanismConfig};

use crate::linear::{FeatureMap, RandomFeatures, linear, retention, retention_decays};
use crate::pattern::BigBird;
use crate::sparse::strided;
use crate::{AttentionOptions, Body, Pattern, flash, standard, which_body};

/// Attends with a mechanism: its word, for the usual sizes, or a [`MechanismConfig`].
///
/// A mechanism that sees only some of the keys sees of these what the options' pattern
/// shows, too.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - value: `[batch, kv_heads, seq_k, d_value]`
/// - result: `[batch, heads, seq_q, d_value]`
///
/// # Panics
///
/// If the tensors or the options do not fit together, or the mechanism cannot do what the
/// options ask for.
pub fn attend(
    mechanism: impl Into<MechanismConfig>,
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let mechanism = mechanism.into();
    let [_, kv_heads, seq_k, _] = key.dims();
    if let Some(options) = as_flash(&mechanism, options, seq_k) {
        return flash(query, key, value, &options);
    }
    match mechanism {
        MechanismConfig::Strided { stride } => {
            let stride = MechanismConfig::stride(stride, seq_k);
            strided(query, key, value, stride, options)
        }
        MechanismConfig::Linear { features } => {
            let features = match features {
                LinearFeatures::Elu1 => FeatureMap::Elu1,
                LinearFeatures::Relu => FeatureMap::Relu,
            };
            linear(query, key, value, features, options)
        }
        MechanismConfig::Performer { features, seed } => {
            let features = FeatureMap::FavorPlus(RandomFeatures::new(features, seed));
            linear(query, key, value, features, options)
        }
        MechanismConfig::Retention => {
            retention(query, key, value, &retention_decays(kv_heads), options)
        }
        MechanismConfig::Standard => standard(query, key, value, options).context,
        flash => unreachable!("{flash:?} is flash with options of its own"),
    }
}

/// What computes a mechanism that is [`flash`] with options of its own, on the backend of
/// these tensors; `None` for the others.
///
/// # Panics
///
/// As for [`attend`].
pub fn which_body_of(
    mechanism: &MechanismConfig,
    query: &Tensor<4>,
    key: &Tensor<4>,
    value: &Tensor<4>,
    options: &AttentionOptions,
) -> Option<Body> {
    let [.., seq_k, _] = key.dims();
    let options = as_flash(mechanism, options, seq_k)?;
    Some(which_body(query, key, value, &options))
}

/// The options with which [`flash`] computes a mechanism, if it does.
fn as_flash(
    mechanism: &MechanismConfig,
    options: &AttentionOptions,
    seq_k: usize,
) -> Option<AttentionOptions> {
    let within = |pattern: Pattern| Some(within(options, pattern));
    match *mechanism {
        MechanismConfig::Flash => Some(options.clone()),
        MechanismConfig::Dot => Some(AttentionOptions {
            scale: Some(options.scale.unwrap_or(1.0)),
            ..options.clone()
        }),
        MechanismConfig::SlidingWindow { window } => within(Pattern::Window {
            left: window,
            right: window,
        }),
        MechanismConfig::Block { size } => within(Pattern::Block { size }),
        MechanismConfig::Longformer { window, global } => {
            let places: Vec<usize> = (0..global.min(seq_k)).collect();
            within(Pattern::longformer(window, places))
        }
        MechanismConfig::BigBird {
            block,
            neighbours,
            global,
            random,
            seed,
        } => {
            let bird = BigBird {
                block,
                neighbours,
                global,
                random,
                seed,
            };
            within(bird.pattern(seq_k))
        }
        MechanismConfig::Standard
        | MechanismConfig::Strided { .. }
        | MechanismConfig::Linear { .. }
        | MechanismConfig::Performer { .. }
        | MechanismConfig::Retention => None,
    }
}

/// The options, seeing no more than `pattern` shows.
fn within(options: &AttentionOptions, pattern: Pattern) -> AttentionOptions {
    let pattern = match options.pattern.clone() {
        Pattern::Full => pattern,
        given => given.and(pattern),
    };
    options.clone().with_pattern(pattern)
}
