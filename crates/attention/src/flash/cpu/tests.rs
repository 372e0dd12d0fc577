//! All instruction sets compute the same result and access memory only within their slices.

use super::decode_element::DecodeElement;
use super::*;
use crate::analysis::weights::HardSelection;
#[cfg(unix)]
use crate::cpu::guarded::{Edge, Guarded};
use crate::flash::broadcast::Broadcast;
use crate::pattern::cached_plan;
use crate::pattern::rule::Rule;
use crate::score_mod::ScoreMod;
use crate::{AttentionShape, Dropout};

/// Pseudo-random values from a linear congruential generator.
fn random_values(count: usize, mut seed: u64) -> Vec<f32> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| 4.0 * next()).collect()
}

/// Two query heads that share a key and value head, two tiles of queries, three of keys; widths
/// that are no multiple of the lanes, and widths that are.
const SHAPES: [AttentionShape; 2] = [shape(20, 37), shape(32, 16)];

const fn shape(d_head: usize, d_value: usize) -> AttentionShape {
    AttentionShape {
        heads: 2,
        d_head,
        d_value,
        ..AttentionShape::single_head(1, 70, 203)
    }
}

fn heads(values: &[f32], stride: usize) -> Heads<'_> {
    Heads { values, stride }
}

const PROGRAMS: [Program; 6] = [
    Program::Softmax,
    Program::Additive,
    Program::Gaussian { window: 40.0 },
    Program::Sigmoid,
    Program::Hard(HardSelection::Best),
    Program::Hard(HardSelection::Sampled {
        temperature: 0.7,
        seed: 5,
    }),
];

/// The parameter of a program for two heads.
fn parameter(program: Program, shape: &AttentionShape) -> Vec<f32> {
    match program {
        Program::Additive => random_values(2 * shape.d_head, 8),
        Program::Gaussian { .. } => {
            let values = random_values(2 * shape.seq_q, 8).into_iter();
            // From 0 to the number of keys.
            let position = |x: f32| (0.25 * x + 0.5) * shape.seq_k as f32;
            values.map(position).collect()
        }
        Program::Softmax | Program::Sigmoid | Program::Hard(_) => Vec::new(),
    }
}

/// Context, statistics and the gradients of query, key, value, bias and parameter, with every
/// option enabled and each tensor in memory from `alloc`.
fn compute<T: AsMut<[f32]>>(
    set: InstructionSet,
    shape: &AttentionShape,
    program: Program,
    alloc: impl Fn(&[f32]) -> T,
) -> [Vec<f32>; 7] {
    let [_, _, seq_q, seq_k] = shape.scores();
    let [d_head, d_value] = shape.widths();
    let random = |count: usize, seed| alloc(&random_values(count, seed));
    let zeros = |count: usize| alloc(&vec![0.0; count]);
    let mut query = random(2 * seq_q * d_head, 1);
    let mut key = random(seq_k * d_head, 2);
    let mut value = random(seq_k * d_value, 3);
    let mut d_context = random(2 * seq_q * d_value, 4);
    let mut bias = random(2 * seq_q * seq_k, 5);
    let mut d_log_sum_exp = random(2 * seq_q, 6);
    let mask: Vec<u8> = (0..seq_k).map(|key| u8::from(key % 5 == 2)).collect();
    let rule = Arc::new(Rule::Causal);
    let mut parameter = alloc(&parameter(program, shape));
    let halved = ScoreMod::new(|score, _, _, _, _| 0.5 * score, |_, _, _, _, _| 0.5);
    let call = Call {
        shape: *shape,
        plan: &cached_plan(&rule, shape, [QUERIES, KEYS], Examples::Each),
        rule: &rule,
        gather: None,
        mask: Some(Broadcast::new(&mask, [1, 1, 1, seq_k])),
        scale: 0.3,
        softcap: Some(2.0),
        alibi: Some(&[0.02, 0.01]),
        bias: Some(Broadcast::new(bias.as_mut(), [1, 2, seq_q, seq_k])),
        has_relative_bias: false,
        dropout: Some(Dropout::new(0.2, 1)),
        program,
        parameter: parameter.as_mut(),
        score_mod: Some(&halved),
        first_head: 0,
        is_tracked: true,
        query: query.as_mut(),
        key: heads(key.as_mut(), seq_k * d_head),
        value: heads(value.as_mut(), seq_k * d_value),
    };
    let mut context = Vec::new();
    let mut stats = Vec::new();
    for head in 0..2 {
        for (row, queries) in tiles(seq_q, QUERIES).enumerate() {
            let mut tile_context = zeros(queries.len() * d_value);
            let mut tile_stats = zeros(call.stats_width() * queries.len());
            let (into, sums) = (tile_context.as_mut(), tile_stats.as_mut());
            // SAFETY: the CPU supports the instruction set; the slices have the sizes of the call.
            unsafe { forward::forward(set, &call, head, row, Start::Empty, into, sums) };
            context.extend_from_slice(into);
            stats.extend_from_slice(sums);
        }
    }
    let hard = split_stats(&call, &stats);
    let (saved_context, saved_stats, selected) = match &hard {
        Some(hard) => (&hard.soft_context, &hard.stats, &hard.selected[..]),
        None => (&context, &stats, &[][..]),
    };
    let (mut saved_context, mut saved_stats) = (alloc(saved_context), alloc(saved_stats));
    let saved = BackwardInputs {
        context: saved_context.as_mut(),
        stats: saved_stats.as_mut(),
        selected,
        d_context: d_context.as_mut(),
        d_log_sum_exp: Some(d_log_sum_exp.as_mut()),
    };
    let mut d_query = zeros(2 * seq_q * d_head);
    let mut d_key = zeros(seq_k * d_head);
    let mut d_value_sum = zeros(seq_k * d_value);
    let mut d_parameter = zeros(parameter_len(&call, 2 * seq_q));
    let grads = GradSlices {
        d_query: d_query.as_mut(),
        d_key: d_key.as_mut(),
        d_value: d_value_sum.as_mut(),
        d_parameter: d_parameter.as_mut(),
    };
    // SAFETY: the CPU supports the instruction set; the slices have the sizes of the call.
    unsafe { backward::backward(set, &call, &saved, 0, 0..4, grads) };
    let mut d_bias = zeros(QUERIES * seq_k);
    // SAFETY: the CPU supports the instruction set; the slices have the sizes of the call.
    unsafe {
        backward::backward_bias(
            set,
            &call,
            &saved,
            [0, 1],
            0,
            [seq_k as isize, 1],
            (0, d_bias.as_mut()),
        );
    }
    let copy = |mut tensor: T| tensor.as_mut().to_vec();
    let grads = [d_query, d_key, d_value_sum, d_bias, d_parameter].map(copy);
    let [d_query, d_key, d_value, d_bias, d_parameter] = grads;
    [context, stats, d_query, d_key, d_value, d_bias, d_parameter]
}

/// Three queries of each of two heads that share keys, with every option but dropout, or without
/// mask and bias. Returns the context and statistics of the decoding kernel, with the keys in two
/// parts, and of the tiled kernel.
fn compute_decode<T: AsMut<[f32]>>(
    set: InstructionSet,
    shape: &AttentionShape,
    is_masked: bool,
    alloc: impl Fn(&[f32]) -> T,
) -> [Vec<f32>; 2] {
    let shape = &AttentionShape { seq_q: 3, ..*shape };
    let [_, _, seq_q, seq_k] = shape.scores();
    let [d_head, d_value] = shape.widths();
    let random = |count: usize, seed| alloc(&random_values(count, seed));
    let mut query = random(2 * seq_q * d_head, 1);
    // A cache with capacity for seven more rows; the first head is skipped.
    let stride = [(seq_k + 7) * d_head, (seq_k + 7) * d_value];
    let mut key = random(stride[0] + seq_k * d_head, 2);
    let mut value = random(stride[1] + seq_k * d_value, 3);
    let mut bias = random(2 * seq_q * seq_k, 5);
    let mask: Vec<u8> = (0..seq_k).map(|key| u8::from(key % 5 == 2)).collect();
    let rule = Arc::new(if is_masked { Rule::Causal } else { Rule::Full });
    let call = Call {
        shape: *shape,
        plan: &cached_plan(&rule, shape, [QUERIES, KEYS], Examples::Each),
        rule: &rule,
        gather: None,
        mask: is_masked.then(|| Broadcast::new(&mask[..], [1, 1, 1, seq_k])),
        scale: 0.3,
        softcap: Some(2.0),
        alibi: Some(&[0.02, 0.01]),
        // A bias may mask keys: with one, queries are processed one by one.
        bias: is_masked.then(|| Broadcast::new(&*bias.as_mut(), [1, 2, seq_q, seq_k])),
        has_relative_bias: false,
        dropout: None,
        program: Program::Softmax,
        parameter: &[],
        score_mod: None,
        first_head: 0,
        is_tracked: true,
        query: query.as_mut(),
        key: heads(&key.as_mut()[stride[0]..], stride[0]),
        value: heads(&value.as_mut()[stride[1]..], stride[1]),
    };
    let tiles: Vec<_> = call.plan.tiles(0, 0).collect();
    let (first, second) = tiles.split_at(1);
    let mut partial = Vec::new();
    for tiles in [first, second] {
        let mut part = alloc(&vec![0.0; 2 * seq_q * (d_value + 2)]);
        // SAFETY: the CPU supports the instruction set; the slices have the sizes of the call.
        unsafe { f32::forward_partial(set, &call, 0, tiles, part.as_mut()) };
        partial.extend_from_slice(part.as_mut());
    }
    let (decoded, decoded_stats) = decode::merge_partials(&partial, [2, 2 * seq_q, d_value]);
    let (mut tiled, mut tiled_stats) = (vec![], vec![]);
    for head in 0..2 {
        let (mut context, mut stats) = (vec![0.0; seq_q * d_value], vec![0.0; STATS * seq_q]);
        // SAFETY: the CPU supports the instruction set; the slices have the sizes of the call.
        unsafe {
            let into = (&mut context, &mut stats);
            forward::forward(set, &call, head, 0, Start::Empty, into.0, into.1);
        }
        tiled.extend(context);
        tiled_stats.extend(stats);
    }
    [
        [decoded, decoded_stats].concat(),
        [tiled, tiled_stats].concat(),
    ]
}

#[test]
fn decoding_kernel_matches_tiled_kernel() {
    for (shape, is_masked) in SHAPES
        .iter()
        .flat_map(|shape| [(shape, true), (shape, false)])
    {
        for set in InstructionSet::available() {
            let unguarded = compute_decode(set, shape, is_masked, <[f32]>::to_vec);
            let [decoded, tiled] = &unguarded;
            for (a, b) in decoded.iter().zip(tiled) {
                assert!((a - b).abs() <= 1e-5, "{set:?}: {a} != {b}");
            }
            #[cfg(unix)]
            for edge in [Edge::End, Edge::Start] {
                let alloc = |values: &[f32]| Guarded::new(values, edge);
                let guarded = compute_decode(set, shape, is_masked, alloc);
                assert_eq!(guarded, unguarded, "{set:?}");
            }
        }
    }
}

/// Every tensor ends or begins at a guard page, so an access out of bounds crashes the test.
#[test]
fn instruction_sets_agree_and_stay_in_bounds() {
    for (shape, program) in SHAPES
        .iter()
        .flat_map(|shape| PROGRAMS.map(|program| (shape, program)))
    {
        let portable = compute(InstructionSet::Portable, shape, program, <[f32]>::to_vec);
        for set in InstructionSet::available() {
            let unguarded = compute(set, shape, program, <[f32]>::to_vec);
            for (a, b) in portable.iter().zip(&unguarded) {
                let max = a.iter().fold(0f32, |max, x| max.max(x.abs()));
                for (a, b) in a.iter().zip(b) {
                    assert!(
                        (a - b).abs() <= 1e-5 * max,
                        "{program:?}, {set:?}: {a} != {b}, largest {max}"
                    );
                }
            }
            #[cfg(unix)]
            for edge in [Edge::End, Edge::Start] {
                let alloc = |values: &[f32]| Guarded::new(values, edge);
                let guarded = compute(set, shape, program, alloc);
                assert_eq!(guarded, unguarded, "{program:?}, {set:?}");
            }
        }
    }
}
