//! Weights of a score tile and their gradients, rounded to bf16 into tiles of the following matmul.

use std::arch::x86_64::*;

use burn::tensor::bf16;
use zoo_kernels::cpu::bf16::{BLOCK, Layout, TILE};

use super::super::kernel::{KEYS, QUERIES};

/// Weights of a tile as the right operand of `contextᵀ += Vᵀ · weights`, and gradients of scores as that
/// of `dQᵀ += Kᵀ · d_scores`.
pub(super) const BY_KEY: Layout = Layout::inner_first(KEYS);
/// Weights and gradients of scores as the left operands of `dV += weights · dO` and
/// `dK += d_scores · Q`.
pub(super) const BY_QUERY: Layout = Layout::inner_first(QUERIES);

/// Vectors of a row of a score tile.
const VECTORS: usize = QUERIES / 16;

/// `2^r` for `r` in `[0, 1)`, highest power first, without the constant term of 1, so that `2^0` is
/// exact. Its relative error is 3e-6, which is also that of the sums; weights are rounded to bf16, an
/// error of 2e-3.
const POLYNOMIAL: [f32; 4] = [
    1.342_670_2e-2,
    5.224_244_7e-2,
    2.412_802_1e-1,
    6.930_448_4e-1,
];

/// Smaller exponents have a weight of zero: 2^-126 is the smallest normal `f32`.
const MIN_EXPONENT: f32 = -126.0;

/// `2^x`, of [`POLYNOMIAL`]'s precision; zero below the smallest normal `f32`, and NaN for NaN.
#[inline(always)]
unsafe fn exp2(x: __m512) -> __m512 {
    /// Round down, without exceptions.
    const FLOOR: i32 = 0b1001;
    // SAFETY: the caller enabled the instructions.
    unsafe {
        // Not less than: also true for NaN.
        let is_normal = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, _mm512_set1_ps(MIN_EXPONENT));
        // x - floor(x), and zero for infinities.
        let rest = _mm512_reduce_ps::<FLOOR>(x);
        let mut power = _mm512_set1_ps(POLYNOMIAL[0]);
        for coefficient in &POLYNOMIAL[1..] {
            power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(*coefficient));
        }
        power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(1.0));
        // Times 2^floor(x).
        _mm512_maskz_scalef_ps(is_normal, power, x)
    }
}

/// Element `i` of one half of a register and of the other, in turn.
static INTERLEAVE: [u16; 32] = {
    let mut indices = [0; 32];
    let mut i = 0;
    while i < 32 {
        indices[i] = (i / 2 + i % 2 * 16) as u16;
        i += 1;
    }
    indices
};

/// Rounds two vectors to one.
#[inline(always)]
unsafe fn round(low: __m512, high: __m512) -> __m512i {
    // SAFETY: the caller enabled the instructions; both types are 64 bytes without invalid bits.
    unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(high, low)) }
}

/// Updates the online softmax with a tile of scores, which are multiplied by `scale > 0` first, and
/// rescales the context so far to the new maximum. The weights, multiplied by `factors` if
/// `HAS_FACTORS`, are written in layout [`BY_KEY`].
///
/// # Safety
///
/// AVX-512 F, BW, DQ, VL and BF16 are enabled. `scores` and `factors` have `keys` rows, a multiple of
/// 32 up to [`KEYS`], `context` has `d_value` rows, `max` and `sum` one row, of [`QUERIES`] elements
/// each; `weights` has [`KEYS`] times [`QUERIES`] elements.
#[inline(always)]
pub(super) unsafe fn online_softmax<const HAS_FACTORS: bool>(
    (keys, scale): (usize, f32),
    scores: *const f32,
    factors: *const f32,
    [max, sum]: [*mut f32; 2],
    (context, d_value): (*mut f32, usize),
    weights: *mut bf16,
) {
    // SAFETY: all accesses are within the bounds the caller guarantees.
    unsafe {
        let scale = _mm512_set1_ps(scale);
        let interleave = _mm512_loadu_si512(INTERLEAVE.as_ptr().cast());
        for vector in 0..VECTORS {
            let scores = scores.add(16 * vector);
            let factors = factors.wrapping_add(16 * vector);
            let (max, sum) = (max.add(16 * vector), sum.add(16 * vector));
            let old_max = _mm512_loadu_ps(max);
            // Several accumulators hide the latency of the maximum.
            let mut partial = [_mm512_set1_ps(f32::MIN); 4];
            for key in (0..keys).step_by(4) {
                for (i, partial) in partial.iter_mut().enumerate() {
                    let score = _mm512_loadu_ps(scores.add((key + i) * QUERIES));
                    *partial = _mm512_max_ps(*partial, score);
                }
            }
            let [a, b, c, d] = partial;
            let largest = _mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d));
            let new_max = _mm512_max_ps(old_max, _mm512_mul_ps(scale, largest));
            let rescale = exp2(_mm512_sub_ps(old_max, new_max));
            _mm512_storeu_ps(max, new_max);

            let mut total = [_mm512_setzero_ps(); 2];
            for key in (0..keys).step_by(2) {
                let mut pair = [_mm512_setzero_ps(); 2];
                for (i, weight) in pair.iter_mut().enumerate() {
                    let at = (key + i) * QUERIES;
                    let score = _mm512_loadu_ps(scores.add(at));
                    *weight = exp2(_mm512_fmsub_ps(scale, score, new_max));
                    total[i] = _mm512_add_ps(total[i], *weight);
                    if HAS_FACTORS {
                        *weight = _mm512_mul_ps(*weight, _mm512_loadu_ps(factors.add(at)));
                    }
                }
                let pairs = _mm512_permutexvar_epi16(interleave, round(pair[0], pair[1]));
                let tile = weights.add(vector * BY_KEY.block + key / BLOCK * BY_KEY.step);
                _mm512_storeu_si512(tile.add(key % BLOCK / 2 * BLOCK).cast(), pairs);
            }
            let total = _mm512_add_ps(total[0], total[1]);
            let rescaled = _mm512_fmadd_ps(rescale, _mm512_loadu_ps(sum), total);
            _mm512_storeu_ps(sum, rescaled);

            // Usually the maximum does not change.
            if _mm512_cmp_ps_mask::<_CMP_GT_OQ>(new_max, old_max) != 0 {
                for row in 0..d_value {
                    let element = context.add(row * QUERIES + 16 * vector);
                    let rescaled = _mm512_mul_ps(rescale, _mm512_loadu_ps(element));
                    _mm512_storeu_ps(element, rescaled);
                }
            }
        }
    }
}

/// Weights below two to this power are zero in the backward pass, as in the `f32` kernels.
const MIN_WEIGHT_EXPONENT: f32 = -96.0;

/// Inputs of [`softmax_backward`]: tiles with a row of [`QUERIES`] elements for each key, and rows.
pub(super) struct TileGradients {
    /// Scores before the multiplication by `scale`.
    pub(super) scores: *const f32,
    pub(super) scale: f32,
    pub(super) d_weights: *const f32,
    /// Dropout factors.
    pub(super) factors: *const f32,
    /// The derivative of score function and softcap.
    pub(super) score_grad: *const f32,
    pub(super) max: *const f32,
    /// One over the sum, or zero.
    pub(super) inverse: *const f32,
    pub(super) delta: *const f32,
}

/// Computes the weights `inverse · 2^(score - max)` and the gradients of the scores,
/// `weight · (d_weight - delta)`, without the scale of the dot products. With `HAS_FACTORS`, `factors` and
/// `score_grad` are applied.
///
/// Both are written in layout [`BY_QUERY`], the gradients also in layout [`BY_KEY`], with the queries in
/// the order of [`interleaved_query`].
///
/// # Safety
///
/// As for [`online_softmax`]; the outputs have [`KEYS`] times [`QUERIES`] elements.
#[inline(always)]
pub(super) unsafe fn softmax_backward<const HAS_FACTORS: bool>(
    keys: usize,
    inputs: &TileGradients,
    weights: *mut bf16,
    [d_scores, d_scores_by_key]: [*mut bf16; 2],
) {
    // SAFETY: all accesses are within the bounds the caller guarantees.
    unsafe {
        let scale = _mm512_set1_ps(inputs.scale);
        let lowest = _mm512_set1_ps(MIN_WEIGHT_EXPONENT);
        for half in 0..QUERIES / BLOCK {
            let mut rows = [[_mm512_setzero_ps(); 2]; 3];
            for (row, from) in rows
                .iter_mut()
                .zip([inputs.max, inputs.inverse, inputs.delta])
            {
                *row = [
                    _mm512_loadu_ps(from.add(half * BLOCK)),
                    _mm512_loadu_ps(from.add(half * BLOCK + 16)),
                ];
            }
            let [max, inverse, delta] = rows;
            for key in (0..keys).step_by(2) {
                let mut pair = [_mm512_setzero_si512(); 2];
                for (i, rounded) in pair.iter_mut().enumerate() {
                    let mut weight = [_mm512_setzero_ps(); 2];
                    let mut d_score = [_mm512_setzero_ps(); 2];
                    for v in 0..2 {
                        let at = (key + i) * QUERIES + half * BLOCK + 16 * v;
                        let score = _mm512_loadu_ps(inputs.scores.add(at));
                        let exponent = _mm512_fmsub_ps(scale, score, max[v]);
                        // Masked keys have no gradients even if the sum or their value is not finite;
                        // where the weight is NaN the gradient becomes NaN.
                        let is_large = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(exponent, lowest);
                        let exact = _mm512_maskz_mul_ps(is_large, inverse[v], exp2(exponent));
                        let mut d_weight = _mm512_loadu_ps(inputs.d_weights.add(at));
                        weight[v] = exact;
                        if HAS_FACTORS {
                            let factor = _mm512_loadu_ps(inputs.factors.add(at));
                            weight[v] = _mm512_mul_ps(exact, factor);
                            d_weight = _mm512_mul_ps(d_weight, factor);
                        }
                        let difference = _mm512_sub_ps(d_weight, delta[v]);
                        d_score[v] = _mm512_maskz_mul_ps(is_large, exact, difference);
                        if HAS_FACTORS {
                            let slope = _mm512_loadu_ps(inputs.score_grad.add(at));
                            d_score[v] = _mm512_maskz_mul_ps(is_large, d_score[v], slope);
                        }
                    }
                    let row = (key + i) / 16 * BY_QUERY.block + (key + i) % 16 * BLOCK;
                    let to = row + half * BY_QUERY.step;
                    _mm512_storeu_si512(weights.add(to).cast(), round(weight[0], weight[1]));
                    *rounded = round(d_score[0], d_score[1]);
                    _mm512_storeu_si512(d_scores.add(to).cast(), *rounded);
                }
                let row = key / BLOCK * BY_KEY.step + key % BLOCK / 2 * BLOCK;
                let to = d_scores_by_key.add(2 * half * BY_KEY.block + row);
                _mm512_storeu_si512(to.cast(), _mm512_unpacklo_epi16(pair[0], pair[1]));
                let to = to.add(BY_KEY.block);
                _mm512_storeu_si512(to.cast(), _mm512_unpackhi_epi16(pair[0], pair[1]));
            }
        }
    }
}

/// The query of a column of the tile that [`softmax_backward`] writes in layout [`BY_KEY`]: the
/// instructions that interleave two rows do so within four groups of eight elements.
pub(super) fn interleaved_query(column: usize) -> usize {
    let (half, column) = (column / BLOCK, column % BLOCK);
    let (block, lane) = (column / 16, column % 16);
    half * BLOCK + lane / 4 * 8 + block * 4 + lane % 4
}

const _: () = assert!(TILE == 16 * BLOCK && VECTORS * 16 == QUERIES);
