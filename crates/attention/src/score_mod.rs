//! A user-defined function of the attention scores, with its derivative.

use std::fmt;
use std::sync::Arc;

#[cfg(target_arch = "x86_64")]
use zoo_kernels::cpu::InstructionSet;

use crate::pattern::gather::Indices;

/// A function of the scaled dot product of each query-key pair, like `score_mod` of PyTorch's
/// FlexAttention. Its derivative is given too, so that it can be used in training on every backend.
///
/// ```
/// use zoo_attention::{AttentionOptions, ScoreMod};
///
/// // score - 0.1 · |query - key|
/// let distance = ScoreMod::bias(|_batch, _head, query, key| -0.1 * query.abs_diff(key) as f32);
/// // 20 · tanh(score / 20)
/// let softcap = ScoreMod::new(
///     |score, _batch, _head, _query, _key| 20.0 * (score / 20.0).tanh(),
///     |score, _batch, _head, _query, _key| 1.0 - (score / 20.0).tanh().powi(2),
/// );
/// let options = AttentionOptions::new().with_score_mod(distance);
/// # let _ = (options, softcap);
/// ```
///
/// Positions are those of [`Pattern::mask_fn`](crate::Pattern::mask_fn): queries and keys are aligned
/// at the end. A score of minus infinity masks the key, but a pattern is faster: it skips whole tiles.
///
/// The function is called for every tile that is not fully masked, several times in training. It
/// must always return the same value for the same arguments.
///
/// On the CPU the compiler can vectorise it if it consists of arithmetic. As a generic function it is
/// compiled with the crate that defines it: if that has the `opt-level` 0 or 1, scores are computed
/// one at a time, and attention takes about 1.6 times as long as without the function. On a GPU,
/// tiles of scores are copied to host memory and back.
#[derive(Clone)]
pub struct ScoreMod {
    function: Arc<dyn TileFunction>,
    /// Whether the derivative is 1.
    is_bias: bool,
}

impl ScoreMod {
    /// `score(s, batch, head, query, key)` instead of the scaled dot product `s`, and its derivative
    /// with respect to `s`, with the same arguments.
    pub fn new<F, D>(score: F, derivative: D) -> Self
    where
        F: Fn(f32, usize, usize, i64, i64) -> f32 + Send + Sync + 'static,
        D: Fn(f32, usize, usize, i64, i64) -> f32 + Send + Sync + 'static,
    {
        Self {
            function: Arc::new(Functions { score, derivative }),
            is_bias: false,
        }
    }

    /// A term `bias(batch, head, query, key)` that is added to the scaled dot product.
    pub fn bias<F>(bias: F) -> Self
    where
        F: Fn(usize, usize, i64, i64) -> f32 + Send + Sync + 'static,
    {
        let added = Self::new(
            move |score, batch, head, query, key| score + bias(batch, head, query, key),
            |_, _, _, _, _| 1.0,
        );
        Self {
            is_bias: true,
            ..added
        }
    }

    /// Whether the derivative is 1 everywhere.
    #[cfg_attr(
        not(any(feature = "flex", feature = "ndarray", feature = "tch")),
        allow(dead_code)
    )]
    pub(crate) fn is_bias(&self) -> bool {
        self.is_bias
    }

    /// Applies the function to a tile.
    pub(crate) fn apply(&self, tile: ScoreTile<'_>) {
        self.function.apply(tile);
    }
}

impl fmt::Debug for ScoreMod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScoreMod(..)")
    }
}

/// Derivatives by which a difference of zero is multiplied: zero where they are not finite, since
/// the product would be NaN.
pub(crate) fn finite_or_zero(derivatives: &[f32]) -> Vec<f32> {
    let finite = |d: &f32| if d.is_finite() { *d } else { 0.0 };
    derivatives.iter().map(finite).collect()
}

/// Scores of some queries and keys.
pub(crate) struct ScoreTile<'a> {
    pub(crate) scores: &'a mut [f32],
    /// Receives the derivative, unless it is empty.
    pub(crate) derivatives: &'a mut [f32],
    /// The factor of the results.
    pub(crate) factor: f32,
    pub(crate) example: usize,
    pub(crate) head: usize,
    pub(crate) queries: QueryPositions<'a>,
    pub(crate) keys: Indices<'a>,
    /// Elements from one query to the next, and from one key to the next.
    pub(crate) strides: [usize; 2],
}

/// The positions of the queries of a tile.
pub(crate) enum QueryPositions<'a> {
    Consecutive { first: i64, count: usize },
    List(&'a [i64]),
}

/// [`ScoreMod`] for whole tiles: one dynamic call per tile, and loops that contain the function.
trait TileFunction: Send + Sync {
    fn apply(&self, tile: ScoreTile<'_>);
}

struct Functions<F, D> {
    score: F,
    derivative: D,
}

impl<F, D> TileFunction for Functions<F, D>
where
    F: Fn(f32, usize, usize, i64, i64) -> f32 + Send + Sync,
    D: Fn(f32, usize, usize, i64, i64) -> f32 + Send + Sync,
{
    fn apply(&self, tile: ScoreTile<'_>) {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
            fn avx512<F, D>(functions: &Functions<F, D>, tile: ScoreTile<'_>)
            where
                F: Fn(f32, usize, usize, i64, i64) -> f32,
                D: Fn(f32, usize, usize, i64, i64) -> f32,
            {
                apply(functions, tile);
            }
            #[target_feature(enable = "avx2,fma")]
            fn avx2<F, D>(functions: &Functions<F, D>, tile: ScoreTile<'_>)
            where
                F: Fn(f32, usize, usize, i64, i64) -> f32,
                D: Fn(f32, usize, usize, i64, i64) -> f32,
            {
                apply(functions, tile);
            }
            match InstructionSet::detect() {
                // SAFETY: the CPU supports the instruction set.
                InstructionSet::Avx512 => return unsafe { avx512(self, tile) },
                // SAFETY: as above.
                InstructionSet::Avx2 => return unsafe { avx2(self, tile) },
                InstructionSet::Portable => {}
            }
        }
        apply(self, tile);
    }
}

#[inline(always)]
fn apply<F, D>(functions: &Functions<F, D>, tile: ScoreTile<'_>)
where
    F: Fn(f32, usize, usize, i64, i64) -> f32,
    D: Fn(f32, usize, usize, i64, i64) -> f32,
{
    // Consecutive positions are computed, not loaded.
    match tile.queries {
        QueryPositions::Consecutive { first, count } => {
            apply_to(functions, tile, count, |i| first + i as i64);
        }
        QueryPositions::List(positions) => {
            apply_to(functions, tile, positions.len(), |i| positions[i]);
        }
    }
}

#[inline(always)]
fn apply_to<F, D>(
    functions: &Functions<F, D>,
    tile: ScoreTile<'_>,
    count: usize,
    position: impl Fn(usize) -> i64,
) where
    F: Fn(f32, usize, usize, i64, i64) -> f32,
    D: Fn(f32, usize, usize, i64, i64) -> f32,
{
    let ScoreTile {
        scores,
        derivatives,
        factor,
        example,
        head,
        queries: _,
        keys,
        strides: [by_query, by_key],
    } = tile;
    for (row, key) in keys.iter().enumerate() {
        let key = key as i64;
        // The common case has a constant stride of 1, which the compiler vectorises.
        if by_query == 1 {
            let scores = &mut scores[row * by_key..][..count];
            if !derivatives.is_empty() {
                let derivatives = &mut derivatives[row * by_key..][..count];
                for (i, (score, into)) in scores.iter().zip(derivatives).enumerate() {
                    *into = (functions.derivative)(*score, example, head, position(i), key);
                }
            }
            for (i, score) in scores.iter_mut().enumerate() {
                *score = factor * (functions.score)(*score, example, head, position(i), key);
            }
            continue;
        }
        for i in 0..count {
            let index = i * by_query + row * by_key;
            let score = scores[index];
            if let Some(into) = derivatives.get_mut(index) {
                *into = (functions.derivative)(score, example, head, position(i), key);
            }
            scores[index] = factor * (functions.score)(score, example, head, position(i), key);
        }
    }
}
