//! Entropy of attention weights against the oracle, and the entropy penalty in a loss.

use burn::tensor::TensorData;
use zoo_attention::{PytorchWeights, entropy, entropy_penalty};
use zoo_oracle::{Precision, normals};

use crate::explain;
use crate::multi_head::{gradient_step, self_attention, test_kv_heads};
use crate::prelude::*;

pub(crate) fn trials(suite: &mut Suite, opened: &OpenDevice) {
    suite.add_each("entropy/", explain::PROBLEMS, check_entropy);
    suite.add_each("entropy/", MORE_PROBLEMS, check_entropy);
    suite.add_each("entropy/multi-head/", Mechanism::ALL, check_head_entropy);
    let half_types = crate::half_types(opened);
    suite.add_cases("entropy/f32-result-for-", half_types, check_f32_result);
    suite.add_table("entropy/", TESTS);
    // All pairs of 16,384 positions take seconds without a fused kernel.
    let kernel = crate::flash::default_kernel(&opened.device);
    if kernel.to_string().starts_with("cpu") {
        suite.add("entropy/long-sequence", check_long_sequence);
    }
}

/// Besides those of `explain`, whose score modifications materialise the score matrix.
const MORE_PROBLEMS: [&str; 5] = [
    "one-key",
    "window-and-lengths",
    "unscaled",
    "dropout",
    "large-scores",
];

fn check_entropy(name: &str, device: &Device) {
    let problem = find_problem(name);
    let inputs = problem.inputs();
    let rows = inputs.output_grad.chunks(problem.d_value);
    let output_grad: Vec<f32> = rows.map(|row| row[0]).collect();
    let dims = [problem.batch, problem.heads, problem.seq_q];
    let device = &device.clone().autodiff();
    let tensors = Tensors::new(&problem, &inputs, device).require_grad();
    let (query, key) = (tensors.query.clone(), tensors.key.clone());
    let got = entropy(query, key, &tensors.options);
    assert_eq!(got.dims(), dims);
    let weights = tensor_of(output_grad.clone(), dims, device);
    let gradients = (got.clone() * weights).sum().backward();

    let output_grad: Vec<f64> = output_grad.into_iter().map(f64::from).collect();
    let want = zoo_oracle::entropy(&problem, &inputs, &output_grad);
    let entropies = to_vec(got);
    for (row, (&got, &has_keys)) in entropies.iter().zip(&want.has_keys).enumerate() {
        let is_valid = got == 0.0 || has_keys && got > 0.0;
        assert!(is_valid, "query {row} has entropy {got}");
    }
    // A difference of two terms of the size of the scores, which may cancel completely. The
    // tolerance grows with the scores.
    let forward = Precision::F32.forward(want.largest_score);
    must(forward.check_with_min_scale(1.0, "entropy", &entropies, &want.entropy));

    // The gradient of a score is p (1 - s + Σ p s), which is rounded like the scores.
    let backward = Precision::F32.backward(want.largest_score);
    let max_abs = |values: &[f32]| values.iter().fold(0f32, |max, x| max.max(x.abs()));
    let largest = output_grad.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
    let terms = largest * problem.scale() * (1.0 + want.largest_score);
    for (name, tensor, want, other) in [
        ("d_query", &tensors.query, &want.d_query, &inputs.key),
        ("d_key", &tensors.key, &want.d_key, &inputs.query),
    ] {
        let got = gradient_or_zeros(tensor, &gradients);
        let min_scale = terms * f64::from(max_abs(other));
        must(backward.check_with_min_scale(min_scale, name, &got, want));
    }
}

/// Entropy of a layer's heads against that of the weights of `explain`, with two fully masked
/// queries.
fn check_head_entropy(mechanism: Mechanism, device: &Device) {
    let small = mechanism.small_for_tests();
    let (queries, keys) = match mechanism {
        // The keys are the queries.
        Mechanism::Lsh => (SMALL_SEQUENCE, SMALL_SEQUENCE),
        _ => (SMALL_SEQUENCE + 2, SMALL_SEQUENCE),
    };
    let (mask, pattern) = match small.capabilities().causal {
        Ok(()) => (Mask::Causal, Pattern::Causal),
        Err(_) => (Mask::Full, Pattern::Full),
    };
    assert_not_full_attention(&small, SMALL_HEADS, [queries, keys], mask, device);
    let attention = MultiHeadAttentionConfig::new(8, SMALL_HEADS)
        .with_n_heads_kv(test_kv_heads(&small))
        .with_mechanism(small)
        .init(device);
    let random = |seq: usize| random_normal([2, seq, 8], device).mul_scalar(2.0);
    let (query, key) = (random(queries), random(keys));
    let input = || AttentionInput::cross_attn(query.clone(), key.clone()).pattern(pattern.clone());
    let got = attention.head_entropy(input());
    let rows: Vec<usize> = (0..queries).collect();
    let weights = to_vec(attention.explain(input(), &rows));
    let is_distribution = weights.chunks(keys).all(|row| {
        let sum: f32 = row.iter().sum();
        let is_positive = row.iter().all(|&weight| weight > -1e-6);
        is_positive && (sum == 0.0 || (sum - 1.0).abs() < 1e-3)
    });
    if !is_distribution {
        let reason = "its weights do not sum to one";
        let message = format!("mechanism {mechanism} does not support entropy: {reason}");
        return assert_error(got, &message);
    }
    let (mut sums, mut counts) = (Vec::new(), Vec::new());
    for head in weights.chunks(queries * keys) {
        let rows = head.chunks(keys).filter(|row| row.iter().any(|&p| p > 0.0));
        let terms = head.iter().filter(|&&p| p > 0.0).map(|&p| {
            let p = f64::from(p);
            -p * p.ln()
        });
        let rows = rows.count();
        match mechanism {
            // A query without positive elements has no weights.
            Mechanism::Cosformer => assert!((1..=keys).contains(&rows)),
            // The last query is aligned with the last key, and each attends to its own position.
            _ => assert_eq!(rows, keys),
        }
        sums.push(terms.sum::<f64>());
        counts.push(rows as f64);
    }
    let heads = sums.iter().zip(&counts);
    let want: Vec<f64> = heads.map(|(sum, count)| sum / count).collect();
    // Scores are up to 20.
    let tolerance = Precision::F32.backward(20.0);
    must(tolerance.check_with_min_scale(1.0, "entropy", &to_vec(must(got)), &want));

    let penalty = must(attention.entropy_penalty(input()));
    let mean = sums.iter().sum::<f64>() / counts.iter().sum::<f64>();
    must(tolerance.check_with_min_scale(1.0, "penalty", &to_vec(penalty), &[mean]));
}

/// Entropy is computed and returned in `f32` for any dtype of queries and keys.
fn check_f32_result(dtype: DType, device: &Device) {
    let zeros = |seq: usize| Tensor::<4>::zeros([1, 1, seq, 4], (device, dtype));
    let got = entropy(zeros(2), zeros(1000), &AttentionOptions::new());
    assert_eq!(got.dtype(), DType::F32);
    let (got, want) = (to_vec(got), [1000f64.ln(); 2]);
    must(Precision::F32.forward(0.0).check("entropy", &got, &want));
}

const TESTS: &[(&str, Test)] = &[
    ("equal-keys", |device| {
        let query = random_normal([1, 2, 6, 4], device);
        let options = AttentionOptions::new().with_pattern(Pattern::Causal);
        for fill in [0.0, 0.7] {
            let key = Tensor::<4>::full([1, 2, 9, 4], fill, device);
            let got = to_vec(entropy(query.clone(), key, &options));
            // The first query has four visible keys, the last nine.
            let want: Vec<f64> = (0..12).map(|row| f64::from(row % 6 + 4).ln()).collect();
            must(Precision::F32.forward(0.0).check("entropy", &got, &want));
        }
    }),
    ("penalty-of-fully-masked-rows-is-zero", |device| {
        let zeros = || Tensor::<4>::zeros([1, 1, 2, 4], device);
        let options = AttentionOptions::new().with_pattern(Pattern::key_lengths([0]));
        let got = entropy_penalty(zeros(), zeros(), &options);
        assert_eq!(got.into_scalar::<f32>(), 0.0);
    }),
    ("penalty-changes-entropy-in-training", |device| {
        let device = &device.clone().autodiff();
        let none = entropy_after_training(0.0, device);
        let positive = entropy_after_training(1.0, device);
        let negative = entropy_after_training(-1.0, device);
        // At most ln 6 = 1.79 for six keys. On the CPU: 1.27, 1.08 and 1.43.
        let is_changed = positive < none - 0.1 && negative > none + 0.1;
        assert!(
            is_changed,
            "{none} without penalty, {positive} and {negative} with it"
        );
    }),
];

/// The mean entropy of a layer after a few training steps with this coefficient of the penalty.
fn entropy_after_training(coefficient: f64, device: &Device) -> f32 {
    // Independent of the device's random generator, which other tests use.
    let random = |name: &str, shape: &[usize], std: f64| {
        let values = normals(name, shape.iter().product(), std);
        TensorData::new(values, shape.to_vec())
    };
    let weights: PytorchWeights = [
        ("in_proj_weight", random("in", &[24, 8], 0.5)),
        ("in_proj_bias", random("in bias", &[24], 0.1)),
        ("out_proj.weight", random("out", &[8, 8], 0.5)),
        ("out_proj.bias", random("out bias", &[8], 0.1)),
    ]
    .into_iter()
    .collect();
    let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(Mechanism::Flash);
    let mut attention = must(config.init(device).with_pytorch_weights(weights));
    let x = Tensor::<3>::from_data(random("x", &[8, 6, 8], 1.0), device);
    let target = x.clone().slice_dim(1, 0..1).expand([8, 6, 8]);
    let penalty = |attention: &MultiHeadAttention| {
        must(attention.entropy_penalty(AttentionInput::self_attn(x.clone())))
    };
    for _ in 0..10 {
        let result = self_attention(&attention, &x, Pattern::Full);
        let loss = (result - target.clone()).square().mean();
        let loss = loss + penalty(&attention).mul_scalar(coefficient);
        attention = gradient_step(attention, loss.backward(), 0.2);
    }
    penalty(&attention).into_scalar::<f32>()
}

/// The weights would take 1 GiB, and their gradients as much again.
fn check_long_sequence(device: &Device) {
    let problem = Problem::new("long", [1, 1, 16_384, 16_384, 4]);
    let inputs = problem.inputs();
    let tensors = Tensors::new(&problem, &inputs, device);
    let got = to_vec(entropy(tensors.query, tensors.key, &tensors.options));
    let rows = [0, 5_000, 16_383];
    let got = rows.map(|row| got[row]);
    let sampled = Problem::new("sampled", [1, 1, rows.len(), 16_384, 4]);
    let query = rows.map(|row| &inputs.query[row * 4..][..4]).concat();
    let want = zoo_oracle::entropy(&sampled, &Inputs { query, ..inputs }, &[0.0; 3]);
    must(
        Precision::F32
            .forward(8.0)
            .check("entropy", &got, &want.entropy),
    );
}
