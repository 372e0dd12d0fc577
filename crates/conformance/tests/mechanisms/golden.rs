//! `MultiHeadAttention` with the weights of PyTorch's `nn.MultiheadAttention` gives what
//! PyTorch gave: `golden/multi_head.py` wrote down what that is.

use burn::tensor::{Device, Tensor, TensorData};
use zoo_attention::{
    Mechanism, MultiHeadAttention, MultiHeadAttentionConfig, Pattern, PytorchWeights,
    PytorchWeightsError,
};
use zoo_conformance::*;
use zoo_oracle::{Precision, Tolerance};

pub(crate) fn trials(suite: &mut Suite) {
    let file = include_bytes!("../../golden/multi_head.safetensors");
    let golden = must(Golden::from_bytes(file));
    for case in golden.metadata["cases"].split(' ') {
        for mechanism in [Mechanism::Standard, Mechanism::Flash] {
            let golden = golden.under(&format!("{case}."));
            let name = format!("golden/pytorch-{case}/{mechanism}");
            suite.add_training(name, move |device| {
                gives_the_same(&golden, mechanism, device)
            });
        }
    }
    for (name, test) in TESTS {
        let golden = golden.under("self.");
        suite.add(format!("golden/{name}"), move |device| {
            test(&golden, device)
        });
    }
}

fn weights(golden: &Golden) -> PytorchWeights {
    golden.under("weights.").tensors.into_iter().collect()
}

/// A module of the sizes of a case, before it has its weights.
fn module(golden: &Golden, mechanism: Mechanism, device: &Device) -> MultiHeadAttention {
    let size = |name: &str| golden.tensors.get(name).map(|tensor| tensor.shape()[2]);
    let heads: usize = golden.metadata["heads"].parse().expect("a number");
    let has_bias = golden.tensors.contains_key("weights.in_proj_bias");
    MultiHeadAttentionConfig::new(size("query").expect("every case has one"), heads)
        .with_mechanism(mechanism.into())
        .with_kdim(size("key"))
        .with_vdim(size("value").or(size("key")))
        .with_query_bias(has_bias)
        .with_key_bias(has_bias)
        .with_value_bias(has_bias)
        .with_output_bias(has_bias)
        .init(device)
}

fn gives_the_same(golden: &Golden, mechanism: Mechanism, device: &Device) {
    let attention = must(module(golden, mechanism, device).with_pytorch_weights(weights(golden)));
    let input = |name: &str| golden.tensor::<3>(name, device).map(Tensor::require_grad);
    let query = input("query").expect("every case has one");
    let key = input("key").unwrap_or_else(|| query.clone());
    let value = input("value").unwrap_or_else(|| key.clone());
    let causal = golden.mask::<2>("attn_mask", device);
    let padding = golden.mask("key_padding_mask", device);
    let padding = padding.map(Pattern::KeyPadding);
    // PyTorch's mask as it is, and what it stands for.
    let patterns = match causal {
        Some(mask) => vec![Pattern::Dense(mask.unsqueeze()), Pattern::Causal],
        None => vec![Pattern::Full],
    };
    for pattern in patterns {
        let pattern = match &padding {
            Some(padding) => pattern.and(padding.clone()),
            None => pattern,
        };
        let [q, k, v] = [&query, &key, &value].map(Tensor::clone);
        let output = attention.forward(q, k, v, pattern.clone());
        // Scores go up to 27, but where they are large a weight is near 0 or 1, and what
        // PyTorch gave was computed in double precision: no allowance is made for them. The
        // worst seen on the CPU is 13 units, of a gradient.
        let forward = Precision::F32.forward(0.0);
        same(golden, "output", output.clone(), forward);
        let upstream = golden.tensor::<3>("upstream", device);
        let gradients = (output * upstream.expect("every case has one"))
            .sum()
            .backward();
        for (name, input) in [("query", &query), ("key", &key), ("value", &value)] {
            if golden.tensors.contains_key(name) {
                let gradient = input.grad(&gradients).expect("the result depends on it");
                let backward = Precision::F32.backward(0.0);
                same(golden, &format!("d_{name}"), gradient, backward);
            }
        }
        for linear in [&attention.query, &attention.output] {
            let by_weight = linear.weight.val().grad(&gradients);
            by_weight.expect("what was loaded can be learned");
        }

        let [q, k, v] = [&query, &key, &value].map(Tensor::clone);
        let seen = match mechanism {
            Mechanism::Standard => must(attention.forward_with_weights(q, k, v, pattern)).1,
            _ => {
                let rows: Vec<usize> = (0..query.dims()[1]).collect();
                attention.explain(q, k, pattern, &rows)
            }
        };
        let [batch, heads, seq_q, seq_k] = seen.dims();
        let seen = seen.reshape([batch, heads * seq_q, seq_k]);
        same(golden, "attention", seen, forward);
    }
}

fn same(golden: &Golden, name: &str, got: Tensor<3>, tolerance: Tolerance) {
    must(tolerance.check(name, &numbers(got), &golden.numbers(name)));
}

type Test = fn(&Golden, &Device);

const TESTS: &[(&str, Test)] = &[
    ("the-file-says-how-it-was-made", |golden, _| {
        let script = include_str!("../../golden/multi_head.py");
        let [torch, seed] = ["torch", "seed"].map(|key| &golden.metadata[key]);
        let head = format!("PyTorch {torch}, seed {seed}.");
        assert!(script.contains(&head), "the script is not of {head}");
    }),
    ("weights-that-do-not-fit-are-named", |golden, device| {
        let zeros = TensorData::zeros::<f32, _>;
        for (key, data, want) in [
            (
                "in_proj_bias",
                None,
                "in_proj_bias is missing; it must be [36]",
            ),
            (
                "out_proj.weight",
                None,
                "out_proj.weight is missing; it must be [12, 12]",
            ),
            (
                "in_proj_weight",
                Some(zeros(vec![3, 12])),
                "in_proj_weight must be [36, 12], got [3, 12]",
            ),
            (
                "out_proj.bias",
                Some(TensorData::zeros::<i32, _>([12])),
                "out_proj.bias must be floating-point numbers, got I32",
            ),
            (
                "bias_k",
                Some(zeros(vec![1, 1, 12])),
                "bias_k is none of the weights this module has",
            ),
        ] {
            let mut weights = golden.under("weights.").tensors;
            weights.remove(key);
            weights.extend(data.map(|data| (key.to_owned(), data)));
            let module = module(golden, Mechanism::Flash, device);
            let refused = module.with_pytorch_weights(weights.into_iter().collect());
            let said = refused.err().map(|error| error.to_string());
            assert_eq!(said.as_deref(), Some(want));
        }
    }),
    ("a-bias-for-what-has-none-is-refused", |golden, device| {
        for (projection, key) in [("value", "in_proj_bias"), ("output", "out_proj.bias")] {
            let mut module = module(golden, Mechanism::Flash, device);
            match projection {
                "value" => module.value.bias = None,
                _ => module.output.bias = None,
            }
            let refused = module.with_pytorch_weights(weights(golden)).err();
            let error = PytorchWeightsError::NoBias { key, projection };
            assert_eq!(refused, Some(error));
        }
    }),
];
