//! What `explain` says of a few queries is what the mechanism did for them: its weights are the
//! oracle's, and so is the mechanism's result, which the oracle has of these weights.

use burn::tensor::{DType, Device, Tensor};
use zoo_attention::{
    AttentionOptions, Mechanism, MechanismConfig, MultiHeadAttentionConfig, Pattern, Positions,
    explain, standard,
};
use zoo_backend::Opened;
use zoo_conformance::*;
use zoo_oracle::{Mask, Precision, Problem, SMALL_HEADS, SMALL_SEQUENCE, small_for_tests, solve};

use crate::multi_head::{shared, to_itself};
use crate::named;

pub(crate) fn trials(suite: &mut Suite, opened: &Opened) {
    for (name, mechanism) in crate::others::with_softmax() {
        for problem in PROBLEMS {
            let problem = Problem {
                // Weights are those before any are dropped.
                dropout: None,
                ..named(problem)
            };
            if takes(&mechanism, &problem) {
                suite.add(format!("explain/{name}/{}", problem.name), move |device| {
                    says_what_was_done(&mechanism, &problem, DType::F32, device);
                });
            }
        }
        for (word, dtype) in crate::half_types(opened) {
            suite.add(format!("explain/{name}/{word}"), move |device| {
                let [problem, _] = crate::others::aligned_problems(&mechanism);
                says_what_was_done(&mechanism, &problem, dtype, device);
            });
        }
    }
    for mechanism in Mechanism::ALL {
        suite.add(format!("explain/multi-head/{mechanism}"), move |device| {
            a_layer_says_what_it_did(mechanism, device);
        });
    }
    suite.add_table("explain/", TESTS);
}

/// More keys, more queries, rows that see nothing, shared heads, every kind of mask, and
/// everything that is done to scores.
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

fn says_what_was_done(
    mechanism: &MechanismConfig,
    problem: &Problem,
    dtype: DType,
    device: &Device,
) {
    let tensors = Tensors::of(problem, device).cast(dtype);
    must(judge_forward(
        mechanism,
        problem,
        &tensors,
        &all_queries(problem),
    ));
    // Some of the queries, not in their order, and one of them twice.
    let seq_q = problem.seq_q;
    let rows = [seq_q - 1, 0, seq_q / 2, seq_q / 3, seq_q - 1];
    let (query, key) = (tensors.query.clone(), tensors.key.clone());
    let explained = explain(*mechanism, query, key, &tensors.options, &rows);
    let dims = [problem.batch, problem.heads, rows.len(), problem.seq_k];
    assert_eq!(explained.dims(), dims);
    let answer = solve(&given(mechanism, problem, &tensors), &tensors.inputs());
    let mut want = vec![];
    for head in answer.weights.chunks(seq_q * problem.seq_k) {
        for row in rows {
            want.extend_from_slice(&head[row * problem.seq_k..][..problem.seq_k]);
        }
    }
    let forward = precision(&tensors).forward(answer.largest_score);
    must(forward.check("weights", &numbers(explained), &want));
}

/// With its own parameters and positions, and heads that share values.
fn a_layer_says_what_it_did(mechanism: Mechanism, device: &Device) {
    const SEQ: usize = SMALL_SEQUENCE;
    let mechanism = small_for_tests(mechanism);
    differs_from_full(&mechanism, SMALL_HEADS, [SEQ; 2], Mask::Causal, device);
    let attention = MultiHeadAttentionConfig::new(8, SMALL_HEADS)
        .with_kv_heads(shared(&mechanism))
        .with_d_head(Some(4))
        .with_positions(Positions::Rotary { theta: 1e4 })
        .with_mechanism(mechanism)
        .init(device);
    let x = normal([2, SEQ, 8], device);
    let rows = [SEQ - 1, 0, 4];
    let explained = attention.explain(x.clone(), x.clone(), Pattern::Causal, &rows);
    // Two heads share each head of values, mostly.
    let value = attention.value.forward(x.clone());
    let kv_heads = value.dims()[2] / 4;
    let value = value.reshape([2, SEQ, kv_heads, 4]).swap_dims(1, 2); // [batch, kv_heads, seq, d_head]
    let context = explained
        .reshape([2, kv_heads, 4 / kv_heads * 3, SEQ])
        .matmul(value);
    let context = context.reshape([2, 4, 3, 4]).swap_dims(1, 2);
    let got = attention.output.forward(context.reshape([2, 3, 16]));
    let all = to_itself(&attention, &x, Pattern::Causal);
    let want = rows.map(|row| all.clone().slice_dim(1, row..row + 1));
    same(got, Tensor::cat(want.to_vec(), 1));
}

const TESTS: &[(&str, Test)] = &[
    ("has-the-gradient-of-weights-that-are-held", |device| {
        let problem = named("multi-query");
        let tensors = Tensors::of(&problem, &device.clone().autodiff());
        let rows = [2, 0, 2];
        let gradients = |is_explained: bool| {
            let tensors = tensors.clone().require_grad();
            let (query, key) = (tensors.query.clone(), tensors.key.clone());
            let weights = match is_explained {
                true => explain(Mechanism::Flash, query, key, &tensors.options, &rows),
                false => {
                    let all = tensors.apply(standard).weights;
                    let some = rows.map(|row| all.clone().slice_dim(2, row..row + 1));
                    Tensor::cat(some.to_vec(), 2)
                }
            };
            let gradients = weights.square().sum().backward();
            let of = |tensor: Tensor<4>| numbers(tensor.grad(&gradients).expect("a gradient"));
            [tensors.query, tensors.key].map(of)
        };
        for (got, want) in gradients(true).into_iter().zip(gradients(false)) {
            must(
                Precision::F32
                    .backward(0.0)
                    .compare("gradient", &got, &want),
            );
        }
    }),
    ("a-row-that-is-no-query-is-refused", |device| {
        let said = "explained attention: rows must be below the 3 queries there are, got 3";
        refused(Mechanism::Flash, Pattern::Full, &[1, 3], said, device);
    }),
    ("no-rows-are-refused", |device| {
        let said = "explained attention: there must be a row to explain, got none";
        refused(Mechanism::Flash, Pattern::Full, &[], said, device);
    }),
    ("what-cannot-be-seen-is-refused", |device| {
        let said = "linear attention: it accepts full and causal patterns, key lengths and key \
                    padding only, got blocks";
        refused(
            Mechanism::Linear,
            Pattern::Block { size: 2 },
            &[0],
            said,
            device,
        );
    }),
];

fn refused(mechanism: Mechanism, pattern: Pattern, rows: &[usize], said: &str, device: &Device) {
    let zeros = || Tensor::<4>::zeros([1, 1, 3, 2], device);
    let options = AttentionOptions::new().with_pattern(pattern);
    is_refused(
        || explain(mechanism, zeros(), zeros(), &options, rows),
        said,
    );
}
