//! Attention weights returned by `explain` against those of the oracle.

use zoo_attention::explain;

use crate::multi_head::{causal_or_full, self_attention, test_kv_heads};
use crate::prelude::*;
use crate::{half_types, other_mechanisms};

pub(crate) fn trials(suite: &mut Suite, opened: &OpenDevice) {
    for (name, mechanism) in other_mechanisms::with_softmax() {
        let prefix = format!("explain/{name}/");
        // Weights are returned before dropout.
        let problems = PROBLEMS.map(|name| Problem {
            dropout: None,
            ..find_problem(name)
        });
        let problems = other_mechanisms::accepted(&mechanism, problems);
        suite.add_cases(&prefix, problems, move |problem, device| {
            check_weights(&mechanism, &problem, DType::F32, device);
        });
        suite.add_cases(&prefix, half_types(opened), move |dtype, device| {
            let [problem, _] = other_mechanisms::aligned_problems(&mechanism);
            check_weights(&mechanism, &problem, dtype, device);
        });
    }
    suite.add_each("explain/multi-head/", Mechanism::ALL, check_layer);
    suite.add_table("explain/", TESTS);
}

/// More keys, more queries, fully masked rows, shared heads, every kind of mask, and all score
/// modifications.
pub(crate) const PROBLEMS: [&str; 16] = [
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
    let attention = MultiHeadAttentionConfig::new(8, SMALL_HEADS)
        .with_n_heads_kv(test_kv_heads(&mechanism))
        .with_d_head(4)
        .with_positions(Positions::rotary(1e4))
        .with_mechanism(mechanism)
        .init(device);
    let x = random_normal([2, SEQ, 8], device);
    let rows = [SEQ - 1, 0, 4];
    let pattern = causal_or_full(&mechanism);
    let input = AttentionInput::self_attn(x.clone()).pattern(pattern.clone());
    let explained = attention.explain(input, &rows);
    let got = apply_weights(&attention, explained, x.clone());
    let all = self_attention(&attention, &x, pattern);
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
    ("invalid-rows-and-patterns-are-rejected", |device| {
        let zeros = || Tensor::<4>::zeros([1, 1, 3, 2], device);
        let out_of_range = "attention weights: rows must be below seq_q = 3, got 3";
        let no_rows = "attention weights: rows must not be empty";
        let blocks = "linear attention: it accepts full and causal patterns, key lengths and key \
                      padding only, got blocks";
        let block = Pattern::Block { size: 2 };
        for (mechanism, pattern, rows, message) in [
            (Mechanism::Flash, Pattern::Full, &[1, 3][..], out_of_range),
            (Mechanism::Flash, Pattern::Full, &[], no_rows),
            (Mechanism::Linear, block, &[0], blocks),
        ] {
            let options = AttentionOptions::new().with_pattern(pattern);
            let call = || explain(mechanism, zeros(), zeros(), &options, rows);
            assert_panics_with(call, message);
        }
    }),
];
