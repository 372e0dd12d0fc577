//! All instruction sets match the `f32` kernels up to the rounding of weights and results to bf16, and a
//! definition in `f64`, and access memory only within their slices.

use std::sync::Arc;

use burn::tensor::bf16;
use zoo_kernels::cpu::bf16::Bf16Set;

use super::super::call::{BackwardInputs, Heads};
use super::super::kernel::KEYS;
use super::*;
#[cfg(unix)]
use crate::cpu::guarded::{Edge, Guarded};
use crate::flash::broadcast::Broadcast;
use crate::flash::call::Program;
use crate::pattern::rule::Rule;
use crate::pattern::{Examples, cached_plan};
use crate::score_mod::ScoreMod;
use crate::{AttentionShape, Dropout};

/// Pseudo-random values from a linear congruential generator.
fn random_values(count: usize, mut seed: u64) -> Vec<bf16> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| bf16::from_f32(4.0 * next())).collect()
}

fn to_f32(values: &[bf16]) -> Vec<f32> {
    values.iter().map(|x| x.to_f32()).collect()
}

const fn shape(
    [batch, heads, kv_heads]: [usize; 3],
    [seq_q, seq_k]: [usize; 2],
    [d_head, d_value]: [usize; 2],
) -> AttentionShape {
    AttentionShape {
        batch,
        heads,
        kv_heads,
        seq_q,
        seq_k,
        d_head,
        d_value,
    }
}

/// One query, one key, single tiles, several tiles and spans of keys, incomplete tiles and blocks; widths
/// of whole blocks and others; shared heads.
const SHAPES: [AttentionShape; 8] = [
    shape([1, 1, 1], [1, 1], [1, 1]),
    shape([1, 2, 1], [70, 203], [20, 37]),
    shape([2, 2, 2], [64, 96], [64, 64]),
    shape([1, 4, 2], [33, 97], [32, 16]),
    shape([1, 1, 1], [130, 31], [96, 80]),
    shape([1, 2, 2], [3, 300], [65, 64]),
    shape([1, 1, 1], [100, 1], [64, 128]),
    shape([1, 1, 1], [65, 1100], [16, 33]),
];

/// Which options a call has.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Options {
    Plain,
    Causal,
    All,
    NegativeScale,
}

const OPTIONS: [Options; 4] = [
    Options::Plain,
    Options::Causal,
    Options::All,
    Options::NegativeScale,
];

/// Context, log-sum-exp, and gradients of query, key and value.
type Results = [Vec<f32>; 5];

/// The bf16 kernels, or those for `f32` without an instruction set.
fn compute(
    set: Option<Bf16Set>,
    shape: &AttentionShape,
    options: Options,
    edit: impl Fn(&mut [Vec<bf16>; 4]),
) -> Results {
    compute_in(set, shape, options, edit, <[bf16]>::to_vec)
}

/// [`compute`], with the inputs in memory from `alloc`.
fn compute_in<T: AsMut<[bf16]>>(
    set: Option<Bf16Set>,
    shape: &AttentionShape,
    options: Options,
    edit: impl Fn(&mut [Vec<bf16>; 4]),
    alloc: impl Fn(&[bf16]) -> T,
) -> Results {
    let [batch, heads, seq_q, seq_k] = shape.scores();
    let [d_head, d_value] = shape.widths();
    let keys = batch * shape.kv_heads * seq_k;
    let queries = batch * heads * seq_q;
    let mut tensors = [
        random_values(queries * d_head, 1),
        random_values(keys * d_head, 2),
        random_values(keys * d_value, 3),
        random_values(queries * d_value, 4),
    ];
    edit(&mut tensors);
    let mut tensors = tensors.map(|tensor| alloc(&tensor));
    let [query, key, value, d_context] = tensors.each_mut().map(|tensor| &*tensor.as_mut());
    let bias = to_f32(&random_values(heads * seq_q * seq_k, 5));
    let mut d_log_sum_exp = to_f32(&random_values(queries, 6));
    if options == Options::Plain {
        d_log_sum_exp.fill(0.0);
    }
    let mask: Vec<u8> = (0..seq_k).map(|key| u8::from(key % 5 == 2)).collect();
    let slopes: Vec<f32> = (0..heads).map(|head| 0.02 / (1 + head) as f32).collect();
    let score_mod = ScoreMod::new(|score, _, _, _, _| 0.5 * score, |_, _, _, _, _| 0.5);
    let has_all = options == Options::All;
    let rule = Arc::new(match options {
        Options::Plain | Options::NegativeScale => Rule::Full,
        Options::Causal | Options::All => Rule::Causal,
    });
    let plan = cached_plan(&rule, shape, [QUERIES, KEYS], Examples::Each);
    macro_rules! call {
        ($query:expr, $key:expr, $value:expr) => {
            Call {
                shape: *shape,
                plan: &plan,
                rule: &rule,
                gather: None,
                mask: has_all.then(|| Broadcast::new(&mask[..], [1, 1, 1, seq_k])),
                scale: if options == Options::NegativeScale {
                    -0.2
                } else {
                    0.3
                },
                softcap: has_all.then_some(2.0),
                alibi: has_all.then_some(&slopes[..]),
                bias: has_all.then(|| Broadcast::new(&bias[..], [1, heads, seq_q, seq_k])),
                has_relative_bias: false,
                dropout: has_all.then(|| Dropout::new(0.2, 1)),
                program: Program::Softmax,
                parameter: &[],
                score_mod: has_all.then_some(&score_mod),
                first_head: 0,
                is_tracked: true,
                query: $query,
                key: Heads {
                    values: $key,
                    stride: seq_k * d_head,
                },
                value: Heads {
                    values: $value,
                    stride: seq_k * d_value,
                },
            }
        };
    }
    match set {
        Some(set) => {
            let call: Call<'_, bf16> = call!(query, key, value);
            let (context, stats) = forward(set, &call).expect("finite elements");
            let saved = BackwardInputs {
                context: &context[..],
                stats: &stats,
                selected: &[],
                d_context,
                d_log_sum_exp: Some(&d_log_sum_exp),
            };
            let [d_query, d_key, d_value] = backward(set, &call, &saved).expect("finite elements");
            let log_sum_exp = super::super::log_sum_exp(&call, &stats);
            let [context, d_query, d_key, d_value] =
                [context, d_query, d_key, d_value].map(|tensor| to_f32(&tensor));
            [context, log_sum_exp, d_query, d_key, d_value]
        }
        None => {
            let [query, key, value, d_context] = [query, key, value, d_context].map(to_f32);
            let call: Call<'_, f32> = call!(&query, &key, &value);
            let (context, stats) = super::super::recompute(&call);
            let saved = BackwardInputs {
                context: &context[..],
                stats: &stats,
                selected: &[],
                d_context: &d_context,
                d_log_sum_exp: Some(&d_log_sum_exp),
            };
            let [d_query, d_key, d_value, _] = super::super::backward(&call, &saved);
            let log_sum_exp = super::super::log_sum_exp(&call, &stats);
            [context, log_sum_exp, d_query, d_key, d_value]
        }
    }
}

/// Asserts that results differ by at most a few roundings to bf16 of the largest value.
fn assert_close(name: &str, got: &Results, expected: &Results) {
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let max = expected
            .iter()
            .filter(|x| x.is_finite())
            .fold(0f32, |max, x| max.max(x.abs()));
        // The log-sum-exp is not rounded.
        let tolerance = if i == 1 { 1e-5 } else { 1.5e-2 } * max;
        assert_eq!(got.len(), expected.len());
        for (at, (a, b)) in got.iter().zip(expected).enumerate() {
            let is_close = a == b || (a - b).abs() <= tolerance || (a.is_nan() && b.is_nan());
            assert!(
                is_close,
                "{name}, output {i}, element {at}: {a} != {b}, largest {max}"
            );
        }
    }
}

#[test]
fn bf16_kernels_match_f32_kernels() {
    for (shape, options) in SHAPES
        .iter()
        .flat_map(|shape| OPTIONS.map(|options| (shape, options)))
    {
        let expected = compute(None, shape, options, |_| ());
        for set in Bf16Set::available() {
            let got = compute(Some(set), shape, options, |_| ());
            assert_close(&format!("{shape:?}, {options:?}, {set:?}"), &got, &expected);
        }
    }
}

/// Every tensor ends or begins at a guard page, so an access out of bounds crashes the test.
#[cfg(unix)]
#[test]
fn bf16_kernels_stay_in_bounds() {
    for (shape, options) in SHAPES
        .iter()
        .flat_map(|shape| OPTIONS.map(|options| (shape, options)))
    {
        for set in Bf16Set::available() {
            let expected = compute(Some(set), shape, options, |_| ());
            for edge in [Edge::End, Edge::Start] {
                let alloc = |values: &[bf16]| Guarded::new(values, edge);
                let got = compute_in(Some(set), shape, options, |_| (), alloc);
                // NaN differs from itself.
                let bits = |results: Results| {
                    results.map(|it| it.into_iter().map(f32::to_bits).collect::<Vec<_>>())
                };
                assert!(
                    bits(got) == bits(expected.clone()),
                    "{shape:?}, {options:?}, {set:?}"
                );
            }
        }
    }
}

/// Fully masked rows: with more queries than keys, a causal mask hides all keys from the first queries.
#[test]
fn fully_masked_rows_are_zero() {
    let shape = &shape([1, 1, 1], [130, 31], [32, 20]);
    let masked = shape.seq_q - shape.seq_k;
    for set in Bf16Set::available() {
        let [context, log_sum_exp, d_query, d_key, d_value] =
            compute(Some(set), shape, Options::Causal, |_| ());
        assert!(context[..masked * shape.d_value].iter().all(|x| *x == 0.0));
        assert!(context[masked * shape.d_value..].iter().any(|x| *x != 0.0));
        assert!(
            log_sum_exp[..masked]
                .iter()
                .all(|x| *x == f32::NEG_INFINITY)
        );
        assert!(d_query[..masked * shape.d_head].iter().all(|x| *x == 0.0));
        assert!([d_key, d_value].iter().flatten().all(|x| x.is_finite()));
    }
}

/// The weight of the only visible key is one, whatever the score: its value is the result, and its score
/// has a gradient of exactly zero.
#[test]
fn a_single_visible_key_has_no_score_gradient() {
    let shape = &shape([1, 1, 1], [100, 1], [48, 40]);
    for set in Bf16Set::available() {
        let [context, _, d_query, d_key, d_value] =
            compute(Some(set), shape, Options::Plain, |_| ());
        let value = to_f32(&random_values(shape.d_value, 3));
        assert!(context.chunks_exact(shape.d_value).all(|row| row == value));
        assert!([d_query, d_key].iter().flatten().all(|x| *x == 0.0));
        assert!(d_value.iter().all(|x| *x != 0.0));
    }
}

/// The product of a masked value and an output gradient overflows.
#[test]
fn infinite_gradients_of_masked_weights_are_zero() {
    let shape = &shape([1, 1, 1], [70, 70], [32, 32]);
    for set in Bf16Set::available() {
        let results = compute(Some(set), shape, Options::Causal, |tensors| {
            let large = bf16::from_f32(1e30);
            // The first query, which does not attend to the last key.
            tensors[3][..shape.d_value].fill(large);
            let last = tensors[2].len() - shape.d_value;
            tensors[2][last..].fill(large);
        });
        assert!(results.iter().flatten().all(|x| x.is_finite()));
    }
}

/// Scores of hundreds of thousands, where an error of one millionth of a score would be visible in the
/// weights.
#[test]
fn large_scores() {
    let shape = &shape([1, 1, 1], [70, 203], [64, 64]);
    let edit = |tensors: &mut [Vec<bf16>; 4]| {
        for x in tensors[..2].iter_mut().flatten() {
            *x = bf16::from_f32(x.to_f32() * 200.0);
        }
    };
    for set in Bf16Set::available() {
        let got = compute(Some(set), shape, Options::Plain, edit);
        assert!(got.iter().flatten().all(|x| x.is_finite()));
        let context = &got[0];
        // Each row has one key with all the weight.
        let values = random_values(203 * 64, 3);
        for row in context.chunks_exact(64) {
            let is_value = |value: &[bf16]| {
                row.iter()
                    .zip(value)
                    .all(|(a, b)| (a - b.to_f32()).abs() < 0.05)
            };
            assert!(values.chunks_exact(64).any(is_value));
        }
    }
}

#[test]
fn non_finite_tensors_are_refused() {
    let shape = &shape([1, 2, 1], [70, 203], [20, 37]);
    for set in Bf16Set::available() {
        for tensor in 0..4 {
            let result = std::panic::catch_unwind(|| {
                compute(Some(set), shape, Options::Plain, |tensors| {
                    let last = tensors[tensor].len() - 1;
                    tensors[tensor][last] = bf16::NAN;
                })
            });
            assert!(result.is_err(), "{set:?}: tensor {tensor}");
        }
    }
}
