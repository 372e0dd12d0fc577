//! Where chosen queries look, for mechanisms that never write that down.
//!
//! ```text
//! Σ_j explained_ij · value_j = the mechanism's own result for query i
//! ```
//!
//! Weights are computed again, for these queries alone, exactly as the mechanism means
//! them: `rows x seq_k` numbers for each head, and no matrix of more than these but for
//! mechanisms that hold one anyway.

use burn::tensor::{Int, Tensor};

use crate::analysis::weighing::Weighing;
use crate::mechanisms::standard::{all_places, changed, products, softmax as weights_of};
use crate::mechanisms::{self, MechanismConfig, Params, additive, multiplicative};
use crate::mechanisms::{hidden_by_hashes, units};
use crate::pattern::rule::place;
use crate::pattern::{rows_of, taken};
use crate::precision::{narrow, widen};
use crate::scan::{linear_weights, retention_weights};
use crate::{AttentionOptions, AttentionShape, hard, local_predictive};

/// How much each of the queries `rows` takes of each value, whatever the mechanism.
///
/// Of a softmax and of [`linear`](crate::linear()) attention these are weights that sum to
/// one, or to nothing for a query that sees nothing; of [`retention`](crate::retention) and
/// [`local-p`](crate::local_predictive) the factors, which sum to anything. They are those before any are dropped. Parameters are
/// taken as [`attend`](crate::attend) takes them; those of a module are its own to
/// [explain](crate::MultiHeadAttention::explain). Gradients flow through.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - rows: any of the queries, from `0` to `seq_q - 1`, in any order
/// - result: `[batch, heads, rows, seq_k]`
///
/// # Panics
///
/// As the mechanism itself; if a row is no query, or there are none.
pub fn explain(
    mechanism: impl Into<MechanismConfig>,
    query: Tensor<4>,
    key: Tensor<4>,
    options: &AttentionOptions,
    rows: &[usize],
) -> Tensor<4> {
    let shape = AttentionShape::of(OP, &query, &key, &key);
    let mechanism = mechanism.into();
    let mechanism = mechanisms::of(&mechanism);
    let weighing = mechanism.weighing(&Params::default(), &query, &shape);
    let options = mechanism.options(options, shape.seq_k, shape.d_head);
    explain_by(&weighing, query, key, &options, rows)
}

const OP: &str = "explained attention";

/// [`explain`] for what weighs.
pub(crate) fn explain_by(
    weighing: &Weighing,
    query: Tensor<4>,
    key: Tensor<4>,
    options: &AttentionOptions,
    rows: &[usize],
) -> Tensor<4> {
    let op = OP;
    let shape = options.check_call(op, [&query, &key, &key]);
    assert!(
        !rows.is_empty(),
        "{op}: there must be a row to explain, got none"
    );
    if let Some(row) = rows.iter().find(|&&row| row >= shape.seq_q) {
        panic!(
            "{op}: rows must be below the {} queries there are, got {row}",
            shape.seq_q
        );
    }
    let stored = query.dtype();
    let some = || rows_of(query.clone(), rows);
    let softmax = |scores: Tensor<4>| {
        let options = AttentionOptions {
            bias: options.bias.clone().map(|bias| taken(bias, rows)),
            ..options.clone()
        };
        let device = scores.device();
        let hidden = options.pattern.hidden_from(op, &shape, rows, &device);
        let scores = changed(scores, &options, |device| {
            let places: Vec<i64> = rows.iter().map(|&row| place(&shape, row)).collect();
            Tensor::<1, Int>::from_ints(places.as_slice(), device)
        });
        narrow(weights_of(scores, hidden), stored)
    };
    let scale = options.scale.unwrap_or(shape.default_scale());
    match weighing {
        Weighing::Softmax => softmax(products(widen(some()), widen(key), scale, &shape)),
        Weighing::Multiplicative(matrix) => {
            let query = multiplicative::through(op, some(), matrix.clone(), &shape);
            let scale = options.scale.unwrap_or(1.0);
            softmax(products(query, widen(key), scale, &shape))
        }
        Weighing::Additive(vector) => {
            let vector = vector.clone();
            softmax(additive::scores_of(
                op,
                some(),
                key,
                vector,
                options.scale,
                &shape,
            ))
        }
        Weighing::Features(features) => {
            linear_weights(some(), key, features, options, &shape, rows)
        }
        Weighing::Retention(decays) => {
            retention_weights(some(), key, decays, options, &shape, rows)
        }
        // Keys are made of the queries, and seen by their hashes.
        Weighing::Hashed(hashing) => {
            let shape = AttentionShape::of(op, &query, &query, &query);
            let hidden = hidden_by_hashes(op, hashing, &query, options, rows);
            let key = units(widen(query.clone()));
            let scores = products(widen(some()), key, scale, &shape);
            let scores = changed(scores, options, all_places(&shape));
            narrow(weights_of(scores, Some(hidden)), stored)
        }
        // They hold their weights, all of them.
        Weighing::Hard(choice) => {
            let all = hard(query, key.clone(), key, *choice, options);
            rows_of(all.weights, rows)
        }
        Weighing::Predicted(learned, window) => {
            let learned = learned.as_ref().clone();
            let all = local_predictive(query, key.clone(), key, learned, *window, options);
            rows_of(all.weights, rows)
        }
    }
}
