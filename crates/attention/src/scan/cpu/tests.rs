//! All instruction sets and segmentations compute the same result and access memory only within
//! their slices; non-finite rows affect exactly the results that depend on them.

use std::sync::Arc;

use zoo_kernels::cpu::InstructionSet;

use super::*;
#[cfg(unix)]
use crate::cpu::guarded::{Edge, Guarded};
use crate::scan::call::Directions;
use crate::scan::features::RandomFeatures;

/// Pseudo-random values from a linear congruential generator.
fn random_values(count: usize, mut seed: u64) -> Vec<f32> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| 4.0 * next()).collect()
}

/// Two pairs of query heads that share a key and value head each, several chunks, the last of which
/// is not full; widths that are no multiple of the lanes, and widths that are.
const SHAPES: [AttentionShape; 3] = [
    shape([203, 203], [20, 37]),
    shape([150, 203], [32, 16]),
    shape([203, 150], [32, 32]),
];

const fn shape([seq_q, seq_k]: [usize; 2], [d_head, d_value]: [usize; 2]) -> AttentionShape {
    AttentionShape {
        heads: 4,
        kv_heads: 2,
        d_head,
        d_value,
        ..AttentionShape::single_head(1, seq_q, seq_k)
    }
}

/// Every feature map.
fn maps(d_head: usize) -> [ScanMap; 4] {
    let directions = RandomFeatures::new(27, 3).directions(d_head);
    [
        ScanMap::Elu1,
        ScanMap::Relu,
        ScanMap::Exponential(Arc::new(Directions::new(&directions, d_head))),
        ScanMap::Decay(Arc::from([0.97, 0.8])),
    ]
}

struct Problem<'a> {
    shape: AttentionShape,
    map: &'a ScanMap,
    is_causal: bool,
    set: InstructionSet,
    segments: usize,
    /// Masks every fifth key.
    is_masked: bool,
}

/// All problems on the best instruction set, in one segment.
fn for_each_problem(mut check: impl FnMut(Problem<'_>)) {
    for shape in SHAPES {
        for map in &maps(shape.d_head) {
            let is_retention = matches!(map, ScanMap::Decay(_));
            for (is_causal, is_masked) in [(true, false), (true, true), (false, true)] {
                if is_retention && !is_causal {
                    continue; // retention is causal
                }
                check(Problem {
                    shape,
                    map,
                    is_causal,
                    set: InstructionSet::detect(),
                    segments: 1,
                    is_masked,
                });
            }
        }
    }
}

/// Query, key, value and output gradient.
fn inputs(shape: &AttentionShape) -> [Vec<f32>; 4] {
    let AttentionShape {
        heads,
        kv_heads,
        seq_q,
        seq_k,
        d_head,
        d_value,
        ..
    } = *shape;
    let lens = [
        heads * seq_q * d_head,
        kv_heads * seq_k * d_head,
        kv_heads * seq_k * d_value,
        heads * seq_q * d_value,
    ];
    let mut seed = 0;
    lens.map(|len| {
        seed += 1;
        random_values(len, seed)
    })
}

/// Context and the gradients of query, key and value, each tensor in memory from `alloc`.
fn compute<T: AsMut<[f32]>>(
    problem: &Problem<'_>,
    inputs: &[Vec<f32>; 4],
    alloc: impl Fn(&[f32]) -> T,
) -> [Vec<f32>; 4] {
    let shape = problem.shape;
    let [mut query, mut key, mut value, mut d_context] =
        inputs.each_ref().map(|values| alloc(values));
    let masked: Vec<u8> = (0..shape.seq_k).map(|key| u8::from(key % 5 == 2)).collect();
    let heads = |values, heads: usize, seq: usize, width: usize| {
        Heads::new(values, [heads * seq * width, seq * width, width], width)
    };
    let (seq_q, seq_k) = (shape.seq_q, shape.seq_k);
    let call = Call {
        shape,
        is_causal: problem.is_causal,
        map: problem.map,
        scale: [0.4, 0.5],
        query: heads(query.as_mut(), shape.heads, seq_q, shape.d_head),
        key: heads(key.as_mut(), shape.kv_heads, seq_k, shape.d_head),
        value: heads(value.as_mut(), shape.kv_heads, seq_k, shape.d_value),
        masked: problem.is_masked.then_some(masked.as_slice()),
        set: problem.set,
        segments: problem.segments,
    };
    // Everything is written, so the initial contents do not matter.
    let garbage = |like: &Vec<f32>| alloc(&vec![f32::NAN; like.len()]);
    let [query, key, value, d_out] = inputs;
    let mut context = garbage(d_out);
    let stats = forward(&call, initialised(context.as_mut()));
    let (mut d_key, mut d_value) = (garbage(key), garbage(value));
    let is_in_place = shape.d_head == shape.d_value;
    let mut d_query = if is_in_place {
        alloc(d_out)
    } else {
        garbage(query)
    };
    let output_grads = if is_in_place {
        OutputGrads::InPlace
    } else {
        let d_context = heads(d_context.as_mut(), shape.heads, seq_q, shape.d_value);
        OutputGrads::Separate(d_context)
    };
    let grads = InputGrads {
        d_query: initialised(d_query.as_mut()),
        d_key: initialised(d_key.as_mut()),
        d_value: initialised(d_value.as_mut()),
    };
    backward(&call, context.as_mut(), &stats, output_grads, grads);
    [context, d_query, d_key, d_value].map(|mut tensor| tensor.as_mut().to_vec())
}

fn assert_close(a: &[Vec<f32>; 4], b: &[Vec<f32>; 4], what: &str) {
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        let max = a.iter().fold(0f32, |max, x| max.max(x.abs()));
        assert!(max > 0.0, "{what}: result {i} is zero");
        for (a, b) in a.iter().zip(b) {
            let is_close = (a - b).abs() <= 1e-5 * max;
            assert!(is_close, "{what}: result {i}: {a} != {b}, largest {max}");
        }
    }
}

/// Every tensor ends or begins at a guard page, so an access out of bounds crashes the test.
#[test]
fn instruction_sets_agree_and_stay_in_bounds() {
    for_each_problem(|problem| {
        let inputs = inputs(&problem.shape);
        let best = compute(&problem, &inputs, <[f32]>::to_vec);
        for set in InstructionSet::available() {
            let problem = Problem { set, ..problem };
            let unguarded = compute(&problem, &inputs, <[f32]>::to_vec);
            assert_close(&best, &unguarded, &format!("{set:?}"));
            #[cfg(unix)]
            for edge in [Edge::End, Edge::Start] {
                let guarded = compute(&problem, &inputs, |values| Guarded::new(values, edge));
                assert_eq!(guarded, unguarded, "{set:?}");
            }
        }
    });
}

#[test]
fn segments_equal_a_single_segment() {
    for_each_problem(|problem| {
        let inputs = inputs(&problem.shape);
        let single = compute(&problem, &inputs, <[f32]>::to_vec);
        for segments in [2, 3, 100] {
            let problem = Problem {
                segments,
                ..problem
            };
            let several = compute(&problem, &inputs, <[f32]>::to_vec);
            let what = format!("{segments} segments, {:?}", problem.map);
            assert_close(&single, &several, &what);
        }
    });
}

/// Exponents that grow over the sequence: the state is rescaled between chunks.
#[test]
fn growing_exponents_match_the_definition() {
    let shape = shape([203, 203], [32, 16]);
    let directions = RandomFeatures::new(27, 3).directions(shape.d_head);
    let map = &maps(shape.d_head)[2];
    let mut inputs = inputs(&shape);
    for (row, key) in inputs[1].chunks_mut(shape.d_head).enumerate() {
        // Norms fall from 13 to 3, so exponents rise from -80 to about 0.
        let factor = 4.0 - 3.0 * (row % shape.seq_k) as f32 / shape.seq_k as f32;
        key.iter_mut().for_each(|x| *x *= factor);
    }
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
        products.sum()
    };
    let [query, key, value, _] = &inputs;
    let mut expected = Vec::new();
    for (row, query) in query.chunks(shape.d_head).enumerate() {
        let (head, position) = (row / shape.seq_q, row % shape.seq_q);
        let first = head / 2 * shape.seq_k;
        let weight = |j: usize| -> f64 {
            let key = &key[(first + j) * shape.d_head..][..shape.d_head];
            let terms = directions.chunks(shape.d_head).map(|direction| {
                let exponent = 0.4 * dot(direction, query) + 0.5 * dot(direction, key);
                (exponent - 0.5 * 0.25 * dot(key, key)).exp()
            });
            terms.sum()
        };
        let weights: Vec<f64> = (0..=position).map(weight).collect();
        let total: f64 = weights.iter().sum();
        for x in 0..shape.d_value {
            let element = |j: usize| f64::from(value[(first + j) * shape.d_value + x]);
            let sum: f64 = weights
                .iter()
                .enumerate()
                .map(|(j, w)| w * element(j))
                .sum();
            expected.push((sum / total) as f32);
        }
    }
    for segments in [1, 2, 4] {
        let problem = Problem {
            shape,
            map,
            is_causal: true,
            set: InstructionSet::detect(),
            segments,
            is_masked: false,
        };
        let [context, ..] = compute(&problem, &inputs, <[f32]>::to_vec);
        for (i, (context, expected)) in context.iter().zip(&expected).enumerate() {
            let is_close = (context - expected).abs() < 1e-4;
            assert!(
                is_close,
                "{segments} segments, {i}: {context} != {expected}"
            );
        }
    }
}

/// A non-finite key or value affects the queries from its position on and, through them, the
/// gradients of all keys; a non-finite query affects its own row and the gradients of keys up to
/// its position. Nothing else changes.
#[test]
fn non_finite_rows_affect_exactly_what_depends_on_them() {
    let shape = shape([203, 203], [20, 37]);
    let widths = [shape.d_value, shape.d_head, shape.d_head, shape.d_value];
    const BAD: usize = 101;
    for map in &maps(shape.d_head) {
        for (tensor, width) in [(0, shape.d_head), (1, shape.d_head), (2, shape.d_value)] {
            for segments in [1, 3] {
                let problem = Problem {
                    shape,
                    map,
                    is_causal: true,
                    set: InstructionSet::detect(),
                    segments,
                    is_masked: false,
                };
                let mut inputs = inputs(&shape);
                let clean = compute(&problem, &inputs, <[f32]>::to_vec);
                // In the first head of queries, or of keys and values.
                inputs[tensor][BAD * width + 3] = f32::NAN;
                let dirty = compute(&problem, &inputs, <[f32]>::to_vec);
                for (result, width) in widths.into_iter().enumerate() {
                    let rows = clean[result].chunks(width).zip(dirty[result].chunks(width));
                    for (row, (clean, dirty)) in rows.enumerate() {
                        let (head, position) = (row / 203, row % 203);
                        let is_affected = match (tensor, result) {
                            (0, 0 | 1) => head == 0 && position == BAD,
                            (0, _) => head == 0 && position <= BAD,
                            // Both query heads of the key head.
                            (_, 0 | 1) => head < 2 && position >= BAD,
                            (_, _) => head == 0,
                        };
                        let is_nan = dirty.iter().all(|x| x.is_nan());
                        assert_eq!(
                            is_nan, is_affected,
                            "{map:?}, tensor {tensor}, result {result}, head {head}, row {position}"
                        );
                        assert!(is_affected || clean == dirty, "row {row} changed");
                    }
                }
            }
        }
    }
}

/// Masked keys and values contribute nothing, even if they are not finite, and have zero gradients.
#[test]
fn masked_rows_contribute_nothing() {
    for_each_problem(|problem| {
        if !problem.is_masked {
            return;
        }
        let shape = problem.shape;
        let mut inputs = inputs(&shape);
        let clean = compute(&problem, &inputs, <[f32]>::to_vec);
        for (tensor, width) in [(1, shape.d_head), (2, shape.d_value)] {
            for (row, values) in inputs[tensor].chunks_mut(width).enumerate() {
                if row % shape.seq_k % 5 == 2 {
                    values.fill(f32::NAN);
                }
            }
        }
        let dirty = compute(&problem, &inputs, <[f32]>::to_vec);
        assert_eq!(clean, dirty);
        for (result, width) in [(2, shape.d_head), (3, shape.d_value)] {
            for (row, values) in dirty[result].chunks(width).enumerate() {
                let is_zero = values.iter().all(|x| *x == 0.0);
                assert_eq!(is_zero, row % shape.seq_k % 5 == 2);
            }
        }
    });
}
