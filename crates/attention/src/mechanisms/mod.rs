//! Every mechanism, and one call for any of them by name.

pub mod additive;
mod fixed;
pub mod hard;
pub mod linear;
pub mod local;
mod lsh;
pub mod multiplicative;
pub mod standard;
mod strided;

use burn::tensor::{Tensor, TensorData};
pub use zoo_spec::{LinearFeatures, Mechanism, MechanismConfig};

pub use self::fixed::fixed;
pub use self::lsh::{Lsh, lsh};
pub(crate) use self::lsh::{hidden_by_hashes, units};
pub use self::strided::strided;
pub(crate) use self::strided::strided_pattern;
use crate::counter::Normals;
use crate::kept::Kept;
use crate::mechanisms::linear::{FeatureMap, linear, retention, retention_decays};
use crate::pattern::BigBird;
use crate::{
    AttentionOptions, Body, Choice, Pattern, additive, flash, hard, local_predictive,
    multiplicative, standard, which_body,
};

/// Attends with a mechanism: its word, for the usual sizes, or a [`MechanismConfig`].
///
/// A mechanism that sees only some of the keys sees of these what the options' pattern
/// shows, too. One with parameters of its own takes them as they are drawn before anything
/// is learned, always the same, and one that samples takes its seed's sample: to measure
/// it, not to train it. One that makes its keys of the queries, `lsh`, leaves the key
/// unread, whatever it is.
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
        MechanismConfig::Multiplicative => {
            let matrix = matrix_for(&query);
            multiplicative(query, key, value, matrix, options)
        }
        MechanismConfig::Additive => {
            let vector = vector_for(&query);
            additive(query, key, value, vector, options).context
        }
        MechanismConfig::LocalP { window } => {
            let drawn = (vector_for(&query), matrix_for(&query));
            local_predictive(query, key, value, drawn, window, options).context
        }
        MechanismConfig::Hard { temperature, seed } => {
            let choice = Choice::Sampled { temperature, seed };
            hard(query, key, value, choice, options).context
        }
        MechanismConfig::Fixed { block, summary } => {
            let block = MechanismConfig::stride(block, seq_k);
            fixed(query, key, value, block, summary, options)
        }
        MechanismConfig::Strided { stride } => {
            let stride = MechanismConfig::stride(stride, seq_k);
            strided(query, key, value, stride, options)
        }
        MechanismConfig::Lsh {
            bucket,
            rounds,
            seed,
        } => lsh(query, value, &Lsh::new(bucket, rounds, seed), options),
        MechanismConfig::Linear { .. } | MechanismConfig::Performer { .. } => {
            let features = FeatureMap::of_mechanism(&mechanism).unwrap_or_default();
            linear(query, key, value, features, options)
        }
        MechanismConfig::Retention { .. } => {
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
pub(crate) fn as_flash(
    mechanism: &MechanismConfig,
    options: &AttentionOptions,
    seq_k: usize,
) -> Option<AttentionOptions> {
    let within = |pattern: Pattern| Some(within(options, pattern));
    match *mechanism {
        // How many heads share keys, the tensors say.
        MechanismConfig::Flash
        | MechanismConfig::MultiQuery
        | MechanismConfig::GroupedQuery { .. } => Some(options.clone()),
        MechanismConfig::Dot => Some(AttentionOptions {
            scale: Some(options.scale.unwrap_or(1.0)),
            ..options.clone()
        }),
        MechanismConfig::SlidingWindow { window } => within(Pattern::Window {
            left: window,
            right: window,
        }),
        MechanismConfig::LocalM { window } => within(Pattern::Monotonic { window }),
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
            static KEPT: Kept<(BigBird, usize), Pattern> = Kept::new();
            let pattern = KEPT.get((bird, seq_k), |_| bird.pattern(seq_k));
            within(pattern.as_ref().clone())
        }
        MechanismConfig::Standard
        | MechanismConfig::Multiplicative
        | MechanismConfig::Additive
        | MechanismConfig::Hard { .. }
        | MechanismConfig::LocalP { .. }
        | MechanismConfig::Strided { .. }
        | MechanismConfig::Lsh { .. }
        | MechanismConfig::Fixed { .. }
        | MechanismConfig::Linear { .. }
        | MechanismConfig::Performer { .. }
        | MechanismConfig::Retention { .. } => None,
    }
}

/// The options, seeing no more than `pattern` shows.
pub(crate) fn within(options: &AttentionOptions, pattern: Pattern) -> AttentionOptions {
    let pattern = match options.pattern.clone() {
        Pattern::Full => pattern,
        given => given.and(pattern),
    };
    options.clone().with_pattern(pattern)
}

/// The vector of a mechanism for such queries, before anything is learned.
pub(crate) fn vector_for(query: &Tensor<4>) -> Tensor<2> {
    let [_, heads, _, d_head] = query.dims();
    let vector = TensorData::new(drawn_vector(heads, d_head), [heads, d_head]);
    Tensor::from_data(vector, (&query.device(), query.dtype()))
}

/// And its matrix.
pub(crate) fn matrix_for(query: &Tensor<4>) -> Tensor<3> {
    let [_, heads, _, d_head] = query.dims();
    let matrix = TensorData::new(drawn_matrix(heads, d_head), [heads, d_head, d_head]);
    Tensor::from_data(matrix, (&query.device(), query.dtype()))
}

/// The vectors of [`additive()`] and [`local_predictive`] attention before anything is learned, `[heads, d_head]`:
/// normal, with a variance of `1 / d_head`.
pub fn drawn_vector(heads: usize, d_head: usize) -> Vec<f32> {
    drawn(0, heads, d_head)
}

/// The matrices of [`multiplicative()`] and [`local_predictive`] attention before anything is learned,
/// `[heads, d_head, d_head]`: normal, with a variance of `1 / d_head²`, so that scores are
/// of the size of products that were divided by `sqrt(d_head)`.
pub fn drawn_matrix(heads: usize, d_head: usize) -> Vec<f32> {
    let mut matrix = drawn(1, heads * d_head, d_head);
    let shrink = 1.0 / (d_head as f32).sqrt();
    matrix.iter_mut().for_each(|number| *number *= shrink);
    matrix
}

fn drawn(stream: u64, rows: usize, width: usize) -> Vec<f32> {
    static KEPT: Kept<(u64, usize, usize), Vec<f32>> = Kept::new();
    let kept = KEPT.get((stream, rows, width), |_| draw(stream, rows, width));
    kept.to_vec()
}

fn draw(stream: u64, rows: usize, width: usize) -> Vec<f32> {
    let spread = 1.0 / (width as f64).sqrt();
    let row = |row: usize| {
        let mut normals = Normals::new([stream, row as u64, width as u64]);
        (0..width)
            .map(move |_| (spread * normals.next()) as f32)
            .collect::<Vec<_>>()
    };
    (0..rows).flat_map(row).collect()
}
