//! What `explain` says of a few queries is what the mechanism did for them: its weights are
//! the oracle's, and times the values they are the mechanism's own result.

use burn::tensor::{DType, Device, Distribution, Tensor};
use libtest_mimic::Failed;
use zoo_attention::{
    AttentionOptions, Mechanism, MechanismConfig, MultiHeadAttentionConfig, Pattern, Positions,
    explain, standard,
};
use zoo_backend::Opened;
use zoo_conformance::{
    Suite, Tensors, Test, differs_from_full, given, is_refused, numbers, same, takes,
};
use zoo_oracle::{
    Mask, Precision, Problem, SMALL_HEADS, SMALL_SEQUENCE, Tolerance, find, small_for_tests, solve,
};

pub(crate) fn trials(suite: &mut Suite, opened: &Opened) {
    let mut mechanisms = crate::others::mechanisms();
    mechanisms.push(("standard", Mechanism::Standard.into()));
    mechanisms.push(("flash", Mechanism::Flash.into()));
    for (name, mechanism) in mechanisms {
        for problem in PROBLEMS {
            let problem = Problem {
                // Weights are those before any are dropped.
                dropout: None,
                ..find(problem).expect("a problem of the catalogue")
            };
            if !takes(&mechanism, &problem) {
                continue;
            }
            suite.add(format!("explain/{name}/{}", problem.name), move |device| {
                says_what_was_done(&mechanism, &problem, DType::F32, device)
            });
        }
        for (word, dtype) in crate::half_types(opened) {
            suite.add(format!("explain/{name}/{word}"), move |device| {
                let [problem, _] = crate::others::aligned_problems(&mechanism);
                says_what_was_done(&mechanism, &problem, dtype, device)
            });
        }
    }
    for mechanism in Mechanism::ALL {
        suite.add(format!("explain/multi-head/{mechanism}"), move |device| {
            a_layer_says_what_it_did(mechanism, device)
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

/// Some of the queries, not in their order, and one of them twice.
fn some_rows(seq_q: usize) -> Vec<usize> {
    vec![seq_q - 1, 0, seq_q / 2, seq_q / 3, seq_q - 1]
}

fn says_what_was_done(
    mechanism: &MechanismConfig,
    problem: &Problem,
    dtype: DType,
    device: &Device,
) -> Result<(), Failed> {
    let tensors = Tensors::new(problem, &problem.inputs(), device).cast(dtype);
    let inputs = tensors.inputs();
    let rows = some_rows(problem.seq_q);
    let (query, key) = (tensors.query.clone(), tensors.key.clone());
    let explained = explain(*mechanism, query, key, &tensors.options, &rows);
    let dims = [problem.batch, problem.heads, rows.len(), problem.seq_k];
    assert!(
        explained.dims() == dims,
        "{:?} instead of {dims:?}",
        explained.dims()
    );
    let explained = numbers(explained);
    let result = numbers(tensors.attend(mechanism));

    let solved = given(mechanism, problem, &tensors);
    let answer = solve(&solved, &inputs);
    let (seq_k, d_value) = (problem.seq_k, problem.d_value);
    let (mut weights, mut by_mechanism, mut by_weights) = (vec![], vec![], vec![]);
    let mut largest_terms = 0f64;
    for at in 0..problem.batch * problem.heads * rows.len() {
        let head = at / rows.len();
        let row = head * problem.seq_q + rows[at % rows.len()];
        weights.extend_from_slice(&answer.weights[row * seq_k..][..seq_k]);
        by_mechanism.extend_from_slice(&result[row * d_value..][..d_value]);
        let kv_head = head / (problem.heads / problem.kv_heads);
        let (mut sum, mut terms) = (vec![0.0; d_value], vec![0.0; d_value]);
        for (j, &weight) in explained[at * seq_k..][..seq_k].iter().enumerate() {
            let value = &inputs.value[(kv_head * seq_k + j) * d_value..][..d_value];
            for ((sum, terms), &value) in sum.iter_mut().zip(&mut terms).zip(value) {
                let term = f64::from(weight) * f64::from(value);
                *sum += term;
                *terms += term.abs();
            }
        }
        largest_terms = terms.into_iter().fold(largest_terms, f64::max);
        by_weights.extend(sum);
    }
    let precision = match dtype {
        DType::F16 => Precision::F16,
        DType::BF16 => Precision::Bf16,
        _ => Precision::F32,
    };
    let forward = precision.forward(answer.largest_score);
    forward.check("weights", &explained, &weights)?;
    // Both sides are rounded, each as far as one may be, and one of them before its terms
    // were added up.
    let both = Tolerance {
        relative: 2.0 * forward.relative,
        ..forward
    };
    both.check_as_large_as(
        largest_terms,
        "weights times values",
        &by_mechanism,
        &by_weights,
    )?;
    Ok(())
}

/// With its own parameters and positions, and heads that share values.
fn a_layer_says_what_it_did(mechanism: Mechanism, device: &Device) -> Result<(), Failed> {
    const SEQ: usize = SMALL_SEQUENCE;
    let mechanism = small_for_tests(mechanism);
    differs_from_full(&mechanism, SMALL_HEADS, [SEQ; 2], Mask::Causal, device)?;
    let attention = MultiHeadAttentionConfig::new(8, SMALL_HEADS)
        .with_kv_heads(crate::multi_head::shared(&mechanism))
        .with_d_head(Some(4))
        .with_positions(Positions::Rotary { theta: 1e4 })
        .with_mechanism(mechanism)
        .init(device);
    let x = Tensor::<3>::random([2, SEQ, 8], Distribution::Normal(0.0, 1.0), device);
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
    let all = attention.forward(x.clone(), x.clone(), x, Pattern::Causal);
    let want = rows.map(|row| all.clone().slice_dim(1, row..row + 1));
    same(got, Tensor::cat(want.to_vec(), 1))
}

const TESTS: &[(&str, Test)] = &[
    ("has-the-gradient-of-weights-that-are-held", |device| {
        let device = &device.clone().autodiff();
        let problem = find("multi-query").expect("a problem of the catalogue");
        let tensors = Tensors::new(&problem, &problem.inputs(), device);
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
            [tensors.query, tensors.key].map(|tensor| tensor.grad(&gradients).map(numbers))
        };
        for (got, want) in gradients(true).into_iter().zip(gradients(false)) {
            let got = got.ok_or("weights depend on queries and keys")?;
            let want = want.ok_or("as held ones do")?;
            let tolerance = Precision::F32.backward(0.0);
            tolerance.compare("gradient", &got, &want)?;
        }
        Ok(())
    }),
    ("a-row-that-is-no-query-is-refused", |device| {
        refused(
            device,
            &[1, 3],
            "explained attention: rows must be below the 3 queries there are, got 3",
        )
    }),
    ("no-rows-are-refused", |device| {
        refused(
            device,
            &[],
            "explained attention: there must be a row to explain, got none",
        )
    }),
    ("what-cannot-be-seen-is-refused", |device| {
        let zeros = || Tensor::<4>::zeros([1, 1, 3, 2], device);
        let options = AttentionOptions::new().with_pattern(Pattern::Block { size: 2 });
        is_refused(
            || explain(Mechanism::Linear, zeros(), zeros(), &options, &[0]),
            "linear attention: it accepts full and causal patterns, key lengths and key \
             padding only, got blocks",
        )
    }),
];

fn refused(device: &Device, rows: &[usize], message: &str) -> Result<(), Failed> {
    let zeros = || Tensor::<4>::zeros([1, 1, 3, 2], device);
    is_refused(
        || {
            let options = AttentionOptions::new();
            explain(Mechanism::Flash, zeros(), zeros(), &options, rows);
        },
        message,
    )
}
