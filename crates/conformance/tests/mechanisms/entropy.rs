//! How spread out attention is, against the oracle, and what it does to a loss.

use burn::tensor::{DType, Device, Tensor, TensorData};
use zoo_attention::{
    AttentionOptions, Mechanism, MultiHeadAttention, MultiHeadAttentionConfig, Pattern,
    PytorchWeights, entropy, entropy_penalty, which_body,
};
use zoo_backend::Opened;
use zoo_conformance::*;
use zoo_oracle::{Mask, Precision, Problem, SMALL_HEADS, SMALL_SEQUENCE, normals, small_for_tests};

use crate::multi_head::{descended, shared, to_itself};
use crate::named;

pub(crate) fn trials(suite: &mut Suite, opened: &Opened) {
    for name in PROBLEMS {
        suite.add_training(format!("entropy/{name}"), move |device| {
            matches_the_oracle(name, device)
        });
    }
    for mechanism in Mechanism::ALL {
        suite.add(format!("entropy/multi-head/{mechanism}"), move |device| {
            heads_are_as_spread_out_as_their_weights(mechanism, device)
        });
    }
    for (word, dtype) in crate::half_types(opened) {
        suite.add(format!("entropy/{word}-is-not-rounded"), move |device| {
            half_precision_is_not_rounded(dtype, device)
        });
    }
    suite.add_table("entropy/", TESTS);
    // All pairs of 16,384 positions: seconds where tiles are single calls.
    let one = Tensor::<4>::zeros([1, 1, 1, 1], &opened.device);
    let body = which_body(&one, &one, &one, &AttentionOptions::new());
    if body.to_string().starts_with("cpu") {
        suite.add("entropy/of-a-long-sequence", of_a_long_sequence);
    }
}

/// Without the matrix, and with it where something is done to scores: softcap, ALiBi and
/// biases. One key, rows that see nothing, shared heads, several tiles, large scores.
const PROBLEMS: &[&str] = &[
    "one",
    "one-key",
    "odd",
    "causal-more-keys",
    "causal-more-queries",
    "key-padding",
    "dense-mask",
    "window-and-lengths",
    "several-tiles",
    "multi-query",
    "unscaled",
    "dropout",
    "softcap",
    "alibi",
    "bias-of-keys",
    "everything",
    "large-scores",
];

fn matches_the_oracle(name: &str, device: &Device) {
    let problem = named(name);
    let inputs = problem.inputs();
    let of_rows = inputs.upstream.chunks(problem.d_value);
    let upstream: Vec<f32> = of_rows.map(|row| row[0]).collect();
    let dims = [problem.batch, problem.heads, problem.seq_q];
    let tensors = Tensors::new(&problem, &inputs, device).require_grad();
    let (query, key) = (tensors.query.clone(), tensors.key.clone());
    let got = entropy(query, key, &tensors.options);
    assert_eq!(got.dims(), dims);
    let weighted = Tensor::<3>::from_data(TensorData::new(upstream.clone(), dims), device);
    let gradients = (got.clone() * weighted).sum().backward();

    let upstream: Vec<f64> = upstream.into_iter().map(f64::from).collect();
    let want = zoo_oracle::entropy(&problem, &inputs, &upstream);
    let entropies = numbers(got);
    for (row, (&got, &sees)) in entropies.iter().zip(&want.sees).enumerate() {
        let is_entropy = got == 0.0 || sees && got > 0.0;
        assert!(is_entropy, "query {row} has an entropy of {got}");
    }
    // The difference of two numbers as large as scores, which the tolerance grows with: what
    // is left may be nothing, and is judged as one.
    let forward = Precision::F32.forward(want.largest_score);
    must(forward.check_as_large_as(1.0, "entropy", &entropies, &want.entropy));

    // A gradient by a score is p (1 - s + Σ p s): rounded like the scores in it.
    let backward = Precision::F32.backward(want.largest_score);
    let size = |numbers: &[f32]| numbers.iter().fold(0f32, |size, x| size.max(x.abs()));
    let largest = upstream.iter().fold(0.0, |size: f64, x| size.max(x.abs()));
    let terms = largest * problem.scale() * (1.0 + want.largest_score);
    for (what, tensor, want, other) in [
        ("d_query", &tensors.query, &want.d_query, &inputs.key),
        ("d_key", &tensors.key, &want.d_key, &inputs.query),
    ] {
        let got = match tensor.grad(&gradients) {
            Some(gradient) => numbers(gradient),
            None => vec![0.0; want.len()],
        };
        let least = terms * f64::from(size(other));
        must(backward.check_as_large_as(least, what, &got, want));
    }
}

/// Against the entropy of what `explain` says, with a layer's own parameters and two queries
/// that see nothing.
fn heads_are_as_spread_out_as_their_weights(mechanism: Mechanism, device: &Device) {
    let small = small_for_tests(mechanism);
    let (queries, keys) = match mechanism {
        // Keys are made of the queries.
        Mechanism::Lsh => (SMALL_SEQUENCE, SMALL_SEQUENCE),
        _ => (SMALL_SEQUENCE + 2, SMALL_SEQUENCE),
    };
    differs_from_full(&small, SMALL_HEADS, [queries, keys], Mask::Causal, device);
    let attention = MultiHeadAttentionConfig::new(8, SMALL_HEADS)
        .with_kv_heads(shared(&small))
        .with_mechanism(small)
        .init(device);
    let draw = |seq: usize| normal([2, seq, 8], device).mul_scalar(2.0);
    let (query, key) = (draw(queries), draw(keys));
    let got = attention.head_entropy(query.clone(), key.clone(), Pattern::Causal);
    let rows: Vec<usize> = (0..queries).collect();
    let weights = attention.explain(query.clone(), key.clone(), Pattern::Causal, &rows);
    let weights = numbers(weights);
    let is_distribution = weights.chunks(keys).all(|row| {
        let sum: f32 = row.iter().sum();
        sum == 0.0 || (sum - 1.0).abs() < 1e-3
    });
    if !is_distribution {
        let said = got.expect_err("no distribution").to_string();
        let reason = "its weights do not sum to one";
        assert_eq!(
            said,
            format!("mechanism {mechanism} has no entropy: {reason}")
        );
        return;
    }
    let mut want = Vec::new();
    for head in weights.chunks(queries * keys) {
        let seeing = head.chunks(keys).filter(|row| row.iter().any(|&p| p > 0.0));
        let terms = head.iter().filter(|&&p| p > 0.0).map(|&p| {
            let p = f64::from(p);
            -p * p.ln()
        });
        let seeing = seeing.count();
        // The last query is level with the last key, and each sees the one it is level with.
        assert_eq!(seeing, keys);
        want.push(terms.sum::<f64>() / seeing as f64);
    }
    // Scores of queries and keys this large are up to 20.
    let tolerance = Precision::F32.backward(20.0);
    must(tolerance.check_as_large_as(1.0, "entropy", &numbers(must(got)), &want));

    let penalty = must(attention.entropy_penalty(query, key, Pattern::Causal));
    let mean = want.iter().sum::<f64>() / want.len() as f64;
    must(tolerance.check_as_large_as(1.0, "penalty", &numbers(penalty), &[mean]));
}

/// Whatever the type of queries and keys, entropy is computed and returned in `f32`.
fn half_precision_is_not_rounded(dtype: DType, device: &Device) {
    let zeros = |seq: usize| Tensor::<4>::zeros([1, 1, seq, 4], (device, dtype));
    let got = entropy(zeros(2), zeros(1000), &AttentionOptions::new());
    assert_eq!(got.dtype(), DType::F32);
    let (got, want) = (numbers(got), [1000f64.ln(); 2]);
    must(Precision::F32.forward(0.0).check("entropy", &got, &want));
}

const TESTS: &[(&str, Test)] = &[
    ("of-keys-that-are-alike", |device| {
        let query = normal([1, 2, 6, 4], device);
        let options = AttentionOptions::new().with_pattern(Pattern::Causal);
        for fill in [0.0, 0.7] {
            let key = Tensor::<4>::full([1, 2, 9, 4], fill, device);
            let got = numbers(entropy(query.clone(), key, &options));
            // The first query sees four keys, the last all nine.
            let want: Vec<f64> = (0..12).map(|row| f64::from(row % 6 + 4).ln()).collect();
            must(Precision::F32.forward(0.0).check("entropy", &got, &want));
        }
    }),
    ("a-penalty-of-nobody-is-nothing", |device| {
        let zeros = || Tensor::<4>::zeros([1, 1, 2, 4], device);
        let options = AttentionOptions::new().with_pattern(Pattern::key_lengths([0]));
        let got = entropy_penalty(zeros(), zeros(), &options);
        assert_eq!(got.into_scalar::<f32>(), 0.0);
    }),
    ("a-penalty-sharpens-or-spreads", |device| {
        let device = &device.clone().autodiff();
        let without = entropy_after_learning(0.0, device);
        let sharper = entropy_after_learning(1.0, device);
        let wider = entropy_after_learning(-1.0, device);
        // Of six keys: at most ln 6, which is 1.79. On the CPU: 1.27, 1.08 and 1.43.
        assert!(
            sharper < without - 0.1 && wider > without + 0.1,
            "{without} without, {sharper} and {wider} with it"
        );
    }),
];

/// The mean entropy of a layer that learned something for a few steps, with this
/// coefficient of the penalty in its loss.
fn entropy_after_learning(coefficient: f64, device: &Device) -> f32 {
    // The same on every device, whatever else draws from it.
    let draw = |name: &str, shape: &[usize], spread: f64| {
        let numbers = normals(name, shape.iter().product(), spread);
        TensorData::new(numbers, shape.to_vec())
    };
    let weights: PytorchWeights = [
        ("in_proj_weight", draw("in", &[24, 8], 0.5)),
        ("in_proj_bias", draw("in bias", &[24], 0.1)),
        ("out_proj.weight", draw("out", &[8, 8], 0.5)),
        ("out_proj.bias", draw("out bias", &[8], 0.1)),
    ]
    .into_iter()
    .collect();
    let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(Mechanism::Flash.into());
    let mut attention = must(config.init(device).with_pytorch_weights(weights));
    let x = Tensor::<3>::from_data(draw("x", &[8, 6, 8], 1.0), device);
    let wanted = x.clone().slice_dim(1, 0..1).expand([8, 6, 8]);
    let penalty = |attention: &MultiHeadAttention| {
        must(attention.entropy_penalty(x.clone(), x.clone(), Pattern::Full))
    };
    for _ in 0..10 {
        let result = to_itself(&attention, &x, Pattern::Full);
        let loss = (result - wanted.clone()).square().mean();
        let loss = loss + penalty(&attention).mul_scalar(coefficient);
        attention = descended(attention, &loss.backward(), 0.2);
    }
    penalty(&attention).into_scalar::<f32>()
}

/// The weights alone would be 1 GiB here, and their gradients as much again.
fn of_a_long_sequence(device: &Device) {
    let problem = Problem::new("long", [1, 1, 16_384, 16_384, 4]);
    let inputs = problem.inputs();
    let tensors = Tensors::new(&problem, &inputs, device);
    let got = numbers(entropy(tensors.query, tensors.key, &tensors.options));
    let rows = [0usize, 5_000, 16_383];
    let of_row = |row: usize| -> f64 {
        let query = &inputs.query[row * 4..][..4];
        let score = |key: &[f32]| {
            let pairs = query.iter().zip(key);
            pairs
                .map(|(&q, &k)| f64::from(q) * f64::from(k))
                .sum::<f64>()
                / 2.0
        };
        let scores: Vec<f64> = inputs.key.chunks(4).map(score).collect();
        let sum: f64 = scores.iter().map(|score| score.exp()).sum();
        let mean: f64 = scores.iter().map(|score| score * score.exp()).sum();
        sum.ln() - mean / sum
    };
    let want = rows.map(of_row);
    let got = rows.map(|row| got[row]);
    must(Precision::F32.forward(8.0).check("entropy", &got, &want));
}
