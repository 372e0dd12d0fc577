//! Attention weights returned by `explain` against those of the oracle.

use burn::tensor::{DType, Device, Tensor};
use zoo_attention::{
    AttentionInput, AttentionOptions, Mechanism, MechanismConfig, MultiHeadAttentionConfig,
    Pattern, Positions, explain, standard,
};
use zoo_backend::OpenDevice;
use zoo_conformance::*;
use zoo_oracle::{Mask, Precision, Problem, SMALL_HEADS, SMALL_SEQUENCE, solve};

use crate::find_problem;
use crate::multi_head::{self_attention, test_kv_heads};

pub(crate) fn trials(suite: &mut Suite, opened: &OpenDevice) {
    for (name, mechanism) in crate::other_mechanisms::with_softmax() {
        for problem in PROBLEMS {
            let problem = Problem {
                // Weights are returned before dropout.
                dropout: None,
                ..find_problem(problem)
            };
            if accepts(&mechanism, &problem) {
                suite.add(format!("explain/{name}/{}", problem.name), move |device| {
                    check_weights(&mechanism, &problem, DType::F32, device);
                });
            }
        }
        for (dtype_name, dtype) in crate::half_types(opened) {
            suite.add(format!("explain/{name}/{dtype_name}"), move |device| {
                let [problem, _] = crate::other_mechanisms::aligned_problems(&mechanism);
                check_weights(&mechanism, &problem, dtype, device);
            });
        }
    }
    for mechanism in Mechanism::ALL {
        suite.add(format!("explain/multi-head/{mechanism}"), move |device| {
            check_layer(mechanism, device);
        });
    }
    suite.add_table("explain/", TESTS);
}

/// More keys, more queries, fully masked rows, shared heads, every kind of mask, and all score
/// modifications.
const PROBLEMS: &[&str] = &[
    "one",
    "odd",
    "causal-more-keys",
    "causal-more-queries",
    "causal-and-lengths",
    "causal-or-prefix",
    "key-padding",
    "dense-mask",
    "documents",
    "softcap",
    "alibi",
    "bias",
    "bias-of-keys",
    "everything",
    "multi-query",
    "several-tiles",
];

fn check_weights(mechanism: &MechanismConfig, problem: &Problem, dtype: DType, device: &Device) {
    let tensors = Tensors::from_problem(problem, device).cast(dtype);
    let queries = all_queries(problem);
    must(compare_forward(mechanism, problem, &tensors, &queries));
    // Some of the queries, unsorted and with a duplicate.
    let seq_q = problem.seq_q;
    let rows = [seq_q - 1, 0, seq_q / 2, seq_q / 3, seq_q - 1];
    let (query, key) = (tensors.query.clone(), tensors.key.clone());
    let explained = explain(*mechanism, query, key, &tensors.options, &rows);
    let dims = [problem.batch, problem.heads, rows.len(), problem.seq_k];
    assert_eq!(explained.dims(), dims);
    let reference = reference_problem(mechanism, problem, &tensors);
    let solution = solve(&reference, &tensors.inputs());
    let mut want = vec![];
    for head in solution.weights.chunks(seq_q * problem.seq_k) {
        for row in rows {
            want.extend_from_slice(&head[row * problem.seq_k..][..problem.seq_k]);
        }
    }
    let forward = precision(&tensors).forward(solution.largest_score);
    must(forward.check("weights", &to_vec(explained), &want));
}

/// Weights times values equal the output of a layer with parameters, positions and shared heads.
fn check_layer(mechanism: Mechanism, device: &Device) {
    const SEQ: usize = SMALL_SEQUENCE;
    let mechanism = mechanism.small_for_tests();
    assert_not_full_attention(&mechanism, SMALL_HEADS, [SEQ; 2], Mask::Causal, device);
    let attention = MultiHeadAttentionConfig::new(8, SMALL_HEADS)
        .with_n_heads_kv(test_kv_heads(&mechanism))
        .with_d_head(4)
        .with_positions(Positions::Rotary { theta: 1e4 })
        .with_mechanism(mechanism)
        .init(device);
    let x = random_normal([2, SEQ, 8], device);
    let rows = [SEQ - 1, 0, 4];
    let explained = attention.explain(
        AttentionInput::self_attn(x.clone()).pattern(Pattern::Causal),
        &rows,
    );
    let value = attention.value.forward(x.clone());
    let kv_heads = value.dims()[2] / 4;
    let value = value.reshape([2, SEQ, kv_heads, 4]).swap_dims(1, 2);
    let context = explained
        .reshape([2, kv_heads, 4 / kv_heads * 3, SEQ])
        .matmul(value);
    let context = context.reshape([2, 4, 3, 4]).swap_dims(1, 2);
    let got = attention.output.forward(context.reshape([2, 3, 16]));
    let all = self_attention(&attention, &x, Pattern::Causal);
    let want = rows.map(|row| all.clone().slice_dim(1, row..row + 1));
    assert_close(got, Tensor::cat(want.to_vec(), 1));
}

const TESTS: &[(&str, Test)] = &[
    ("gradients-match-standard-attention", |device| {
        let problem = find_problem("multi-query");
        let tensors = Tensors::from_problem(&problem, &device.clone().autodiff());
        let rows = [2, 0, 2];
        let gradients = |is_explained: bool| {
            let tensors = tensors.clone().require_grad();
            let (query, key) = (tensors.query.clone(), tensors.key.clone());
            let weights = if is_explained {
                explain(Mechanism::Flash, query, key, &tensors.options, &rows)
            } else {
                let all = tensors.apply(standard).into_weights();
                let some = rows.map(|row| all.clone().slice_dim(2, row..row + 1));
                Tensor::cat(some.to_vec(), 2)
            };
            let gradients = weights.square().sum().backward();
            let gradient = |tensor: Tensor<4>| to_vec(tensor.grad(&gradients).expect("a gradient"));
            [tensors.query, tensors.key].map(gradient)
        };
        for (got, want) in gradients(true).into_iter().zip(gradients(false)) {
            let tolerance = Precision::F32.backward(0.0);
            must(tolerance.compare("gradient", &got, &want));
        }
    }),
    ("row-out-of-range-is-rejected", |device| {
        let message = "attention weights: rows must be below seq_q = 3, got 3";
        assert_rejected(Mechanism::Flash, Pattern::Full, &[1, 3], message, device);
    }),
    ("empty-rows-are-rejected", |device| {
        let message = "attention weights: rows must not be empty";
        assert_rejected(Mechanism::Flash, Pattern::Full, &[], message, device);
    }),
    ("unsupported-pattern-is-rejected", |device| {
        let message = "linear attention: it accepts full and causal patterns, key lengths and key \
                       padding only, got blocks";
        let pattern = Pattern::Block { size: 2 };
        assert_rejected(Mechanism::Linear, pattern, &[0], message, device);
    }),
];

fn assert_rejected(
    mechanism: Mechanism,
    pattern: Pattern,
    rows: &[usize],
    message: &str,
    device: &Device,
) {
    let zeros = || Tensor::<4>::zeros([1, 1, 3, 2], device);
    let options = AttentionOptions::new().with_pattern(pattern);
    let call = || explain(mechanism, zeros(), zeros(), &options, rows);
    assert_panics_with(call, message);
}
