//! `MultiHeadAttention` with the weights of PyTorch's `nn.MultiheadAttention` against outputs of
//! PyTorch, which `golden/multi_head.py` wrote.

use burn::tensor::TensorData;
use zoo_attention::{AttentionError, PytorchWeights};
use zoo_oracle::Tolerance;

use crate::prelude::*;

pub(crate) fn trials(suite: &mut Suite) {
    let file = include_bytes!("../../golden/multi_head.safetensors");
    let golden = must(Golden::from_bytes(file));
    for case in golden.metadata["cases"].split(' ') {
        for mechanism in [Mechanism::Standard, Mechanism::Flash] {
            let golden = golden.strip_prefix(&format!("{case}."));
            let name = format!("golden/pytorch-{case}/{mechanism}");
            suite.add_training(name, move |device| check_case(&golden, mechanism, device));
        }
    }
    for (name, test) in TESTS {
        let golden = golden.strip_prefix("self.");
        let name = format!("golden/{name}");
        suite.add(name, move |device| test(&golden, device));
    }
}

fn weights(golden: &Golden) -> PytorchWeights {
    let weights = golden.strip_prefix("weights.");
    weights.tensors.into_iter().collect()
}

/// A module with the sizes of a case and random weights.
fn module(golden: &Golden, mechanism: Mechanism, device: &Device) -> MultiHeadAttention {
    let size = |name: &str| golden.tensors.get(name).map(|tensor| tensor.shape()[2]);
    let heads: usize = golden.metadata["heads"].parse().expect("a number");
    let has_bias = golden.tensors.contains_key("weights.in_proj_bias");
    MultiHeadAttentionConfig::new(size("query").expect("every case has one"), heads)
        .with_mechanism(mechanism)
        .with_d_context(size("key"))
        .with_d_value_input(size("value").or(size("key")))
        .with_query_bias(has_bias)
        .with_key_bias(has_bias)
        .with_value_bias(has_bias)
        .with_output_bias(has_bias)
        .init(device)
}

fn check_case(golden: &Golden, mechanism: Mechanism, device: &Device) {
    let attention = must(module(golden, mechanism, device).with_pytorch_weights(weights(golden)));
    let input = |name: &str| {
        let tensor: Option<Tensor<3>> = golden.tensor(name, device);
        tensor.map(Tensor::require_grad)
    };
    let query = input("query").expect("every case has one");
    let key = input("key").unwrap_or_else(|| query.clone());
    let value = input("value").unwrap_or_else(|| key.clone());
    let causal: Option<Tensor<2, Bool>> = golden.tensor("attn_mask", device);
    let padding = golden.tensor("key_padding_mask", device);
    let padding = padding.map(Pattern::KeyPadding);
    // As a dense mask and as the equivalent pattern.
    let patterns = match causal {
        Some(mask) => vec![Pattern::Dense(mask.unsqueeze()), Pattern::Causal],
        None => vec![Pattern::Full],
    };
    for pattern in patterns {
        let pattern = match &padding {
            Some(padding) => pattern.and(padding.clone()),
            None => pattern,
        };
        let input = || {
            let [query, key, value] = [&query, &key, &value].map(Tensor::clone);
            AttentionInput::new(query, key, value).pattern(pattern.clone())
        };
        let output = attention.forward(input()).context;
        // Scores are up to 27, but large ones have weights near 0 or 1, and PyTorch computed in
        // double precision: the tolerance does not depend on them. The largest error measured on
        // the CPU is 13 units, of a gradient.
        let forward = Precision::F32.forward(0.0);
        assert_matches_golden(golden, "output", output.clone(), forward);
        let output_grad = golden.tensor("upstream", device);
        let loss = (output * output_grad.expect("every case has one")).sum();
        let gradients = loss.backward();
        for (name, input) in [("query", &query), ("key", &key), ("value", &value)] {
            if golden.tensors.contains_key(name) {
                let gradient = input.grad(&gradients).expect("a gradient");
                let backward = Precision::F32.backward(0.0);
                assert_matches_golden(golden, &format!("d_{name}"), gradient, backward);
            }
        }
        for linear in [&attention.query, &attention.output] {
            let gradient = linear.weight.val().grad(&gradients);
            gradient.expect("loaded weights have gradients");
        }

        let weights = match mechanism {
            Mechanism::Standard => attention.forward(input()).into_weights(),
            _ => {
                let rows: Vec<usize> = (0..query.dims()[1]).collect();
                attention.explain(input(), &rows)
            }
        };
        let [batch, heads, seq_q, seq_k] = weights.dims();
        let weights = weights.reshape([batch, heads * seq_q, seq_k]);
        assert_matches_golden(golden, "attention", weights, forward);
    }
}

fn assert_matches_golden(golden: &Golden, name: &str, got: Tensor<3>, tolerance: Tolerance) {
    must(tolerance.check(name, &to_vec(got), &golden.values(name)));
}

type Test = fn(&Golden, &Device);

const TESTS: &[(&str, Test)] = &[
    ("file-matches-its-script", |golden, _| {
        let script = include_str!("../../golden/multi_head.py");
        let [torch, seed] = ["torch", "seed"].map(|key| &golden.metadata[key]);
        let head = format!("PyTorch {torch}, seed {seed}.");
        assert!(script.contains(&head), "{head:?} is not in the script");
    }),
    ("invalid-weights-are-named", |golden, device| {
        let zeros = |shape: &[usize]| Some(TensorData::zeros::<f32, _>(shape.to_vec()));
        let integers = Some(TensorData::zeros::<i32, _>([12]));
        let no_bias = "is missing; expected shape [36]";
        let no_weight = "is missing; expected shape [12, 12]";
        let wrong_shape = "must have shape [36, 12], got [3, 12]";
        let wrong_dtype = "must be a floating-point tensor, got I32";
        let unknown = "does not correspond to any weight of this module";
        for (key, data, problem) in [
            ("in_proj_bias", None, no_bias),
            ("out_proj.weight", None, no_weight),
            ("in_proj_weight", zeros(&[3, 12]), wrong_shape),
            ("out_proj.bias", integers, wrong_dtype),
            ("bias_k", zeros(&[1, 1, 12]), unknown),
        ] {
            let mut weights = golden.strip_prefix("weights.").tensors;
            weights.remove(key);
            weights.extend(data.map(|data| (key.to_owned(), data)));
            let module = module(golden, Mechanism::Flash, device);
            let result = module.with_pytorch_weights(weights.into_iter().collect());
            assert_error(result, &format!("{key} {problem}"));
        }
    }),
    ("bias-without-parameter-is-rejected", |golden, device| {
        for (projection, key) in [("value", "in_proj_bias"), ("output", "out_proj.bias")] {
            let mut module = module(golden, Mechanism::Flash, device);
            match projection {
                "value" => module.value.bias = None,
                _ => module.output.bias = None,
            }
            let error = module.with_pytorch_weights(weights(golden)).err();
            let expected = AttentionError::UnexpectedBias { key, projection };
            assert_eq!(error, Some(expected));
        }
    }),
];
