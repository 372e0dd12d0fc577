//! Scores from dot products: softcap, ALiBi, bias, mask, and dropout factors.
//!
//! A tile has a row for each key and a column for each query. Scores are in base 2, that is,
//! multiplied by log2(e), because the softmax uses `exp2`.

use std::f32::consts::LOG2_E;

use zoo_kernels::cpu::{Simd, tanh};

use super::call::{Call, Tile};
use super::kernel::{QUERIES, mask_scores};
use crate::Dropout;
use crate::counter::random_bits;
use crate::pattern::gather::Indices;
use crate::pattern::rule::query_position;
use crate::score_mod::{QueryPositions, ScoreMod, ScoreTile};

/// Applies the score function, softcap, ALiBi, bias and mask to the dot products of a tile.
///
/// `score_grad` is empty, or a tile that gets the derivative of score function and softcap.
///
/// # Safety
///
/// The instructions of `S` are enabled; `scores` has a row for each key of the tile.
#[inline(always)]
pub(super) unsafe fn finish_scores<S: Simd, T>(
    call: &Call<'_, T>,
    tile: &Tile<'_>,
    scores: &mut [f32],
    score_grad: &mut [f32],
) {
    let count = tile.keys.len();
    assert!(scores.len() >= count * QUERIES);
    assert!(score_grad.is_empty() || score_grad.len() >= count * QUERIES);
    match call.score_mod {
        Some(score_mod) => apply_score_mod(call, score_mod, tile, scores, score_grad),
        None => score_grad.fill(1.0),
    }
    // SAFETY: the sizes of the tile and of `score_grad` are checked.
    unsafe {
        if let Some(cap) = call.softcap {
            let grad = (!score_grad.is_empty()).then_some(score_grad.as_mut_ptr());
            apply_softcap::<S>(count * QUERIES, scores.as_mut_ptr(), cap * LOG2_E, grad);
        }
        if let Some(slopes) = call.alibi {
            // Exact up to 2^24.
            let mut positions = [0.0; QUERIES];
            for (position, query) in positions.iter_mut().zip(tile.queries.iter()) {
                *position = query_position(&call.shape, query) as f32;
            }
            let slope = slopes[tile.head] * LOG2_E;
            for (i, key) in tile.keys.iter().enumerate() {
                let row = &mut scores[i * QUERIES..][..QUERIES];
                for (position, score) in positions.iter().zip(row) {
                    *score -= slope * (position - key as f32).abs();
                }
            }
        }
        if let Some(bias) = call.bias {
            for (i, key) in tile.keys.iter().enumerate() {
                let row = &mut scores[i * QUERIES..][..QUERIES];
                for (score, query) in row.iter_mut().zip(tile.queries.iter()) {
                    *score = add_bias(*score, bias.get([tile.example, tile.head, query, key]));
                }
            }
        }
        if !tile.is_unmasked() || call.mask.is_some() {
            for i in 0..count {
                let visible = call.visible(tile, i);
                mask_scores::<S>(scores[i * QUERIES..].as_mut_ptr(), visible);
            }
        }
    }
}

/// Replaces scores in base e by those of the score function in base 2, and writes its derivative to
/// `score_grad` unless it is empty.
fn apply_score_mod<T>(
    call: &Call<'_, T>,
    score_mod: &ScoreMod,
    tile: &Tile<'_>,
    scores: &mut [f32],
    score_grad: &mut [f32],
) {
    let position = |query: usize| query_position(&call.shape, query);
    let mut positions = [0; QUERIES];
    let queries = match &tile.queries {
        Indices::Range(queries) => QueryPositions::Consecutive {
            first: position(queries.start),
            count: queries.len(),
        },
        Indices::List(queries) => {
            let positions = &mut positions[..queries.len()];
            for (into, &query) in positions.iter_mut().zip(*queries) {
                *into = position(query as usize);
            }
            QueryPositions::List(positions)
        }
    };
    score_mod.apply(ScoreTile {
        scores,
        derivatives: score_grad,
        factor: LOG2_E,
        example: tile.example,
        head: call.first_head + tile.head,
        queries,
        keys: tile.keys.clone(),
        strides: [1, QUERIES],
    });
}

/// Adds a bias in base e to a score in base 2. Minus infinity masks the key; with
/// any other bias the sum stays finite.
#[inline(always)]
pub(super) fn add_bias(score: f32, bias: f32) -> f32 {
    /// Still finite in base 2.
    const MIN_BIAS: f32 = -2e38;
    const MIN_SCORE: f32 = MIN_BIAS * LOG2_E;
    if bias == f32::NEG_INFINITY {
        return bias;
    }
    // `f32::max` would drop NaN.
    let bias = if bias < MIN_BIAS { MIN_BIAS } else { bias };
    let sum = score + LOG2_E * bias;
    if sum < MIN_SCORE { MIN_SCORE } else { sum }
}

/// Replaces each score by `cap · tanh(score / cap)`, and multiplies `grad` by the derivative
/// `1 - tanh²` if given.
///
/// # Safety
///
/// The instructions of `S` are enabled; `count` is a multiple of `S::LANES`, and as many elements
/// can be read and written.
#[inline(always)]
pub(super) unsafe fn apply_softcap<S: Simd>(
    count: usize,
    scores: *mut f32,
    cap: f32,
    grad: Option<*mut f32>,
) {
    // SAFETY: all accesses are within the bounds the caller guarantees.
    unsafe {
        let (cap, inverse) = (S::splat(cap), S::splat(1.0 / cap));
        for i in (0..count).step_by(S::LANES) {
            let tanh = tanh::<S>(S::mul(S::load(scores.add(i)), inverse));
            S::store(scores.add(i), S::mul(cap, tanh));
            if let Some(grad) = grad {
                let derivative = S::sub(S::splat(1.0), S::mul(tanh, tanh));
                S::store(grad.add(i), S::mul(S::load(grad.add(i)), derivative));
            }
        }
    }
}

/// Writes the dropout factors of a tile: 0 or `1/(1 - probability)`.
///
/// The compiler vectorises these plain loops over a row of queries.
#[inline(always)]
pub(super) fn write_dropout_factors(dropout: &Dropout, tile: &Tile<'_>, factors: &mut [f32]) {
    let (mut low, mut high) = ([0; QUERIES], [0; QUERIES]);
    for (i, query) in tile.queries.iter().enumerate() {
        [low[i], high[i]] = dropout.row_key([tile.example, tile.head, query]);
    }
    let (threshold, factor) = (dropout.threshold(), dropout.factor());
    for (row, key) in factors.chunks_exact_mut(QUERIES).zip(tile.keys.iter()) {
        for (i, into) in row.iter_mut().enumerate() {
            let random = random_bits([low[i], high[i]], key as u32);
            *into = if random < threshold { 0.0 } else { factor };
        }
    }
}
