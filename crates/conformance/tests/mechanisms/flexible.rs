//! Masks and score functions of PyTorch's FlexAttention (attention-gym), sinks and sigmoid weights,
//! forward and backward against the oracle.

use zoo_attention::flash::{flash, flash_with_sink, sigmoid_attention};
use zoo_attention::mechanisms::{Fixed, Strided};
use zoo_attention::{RelativeBuckets, ScoreMod};

use crate::prelude::*;

/// Whether batch index, head, query and key form a visible pair.
type Visible = fn(usize, usize, i64, i64) -> bool;
/// The term that a score function adds to the score of a pair.
type Bias = fn(usize, usize, i64, i64) -> f32;

const MASKS: &[(&str, Visible)] = &[
    ("causal", |_, _, query, key| key <= query),
    ("sliding-window", |_, _, query, key| {
        (0..20).contains(&(query - key))
    }),
    ("dilated-window", |_, _, query, key| {
        (0..40).contains(&(query - key)) && (query - key) % 3 == 0
    }),
    ("prefix", |batch, _, query, key| {
        key < 10 + 5 * batch as i64 || key <= query
    }),
    ("document", |batch, _, query, key| {
        let document = |position: i64| position / (17 + 9 * batch as i64);
        document(query) == document(key) && key <= query
    }),
    // Every response attends to the prefix and to itself.
    ("shared-prefix", |_, _, query, key| {
        let response = |position: i64| (position - 30).div_euclid(25);
        key <= query && (key < 30 || response(query) == response(key))
    }),
    // Positions in a grid of rows of 9.
    ("neighbourhood-2d", |_, _, query, key| {
        let distance = |a: i64, b: i64| (a - b).abs();
        distance(query / 9, key / 9) <= 2 && distance(query % 9, key % 9) <= 3
    }),
    ("window-per-head", |_, head, query, key| {
        (0..8_i64 << head).contains(&(query - key))
    }),
];

const BIASES: &[(&str, Bias)] = &[
    ("alibi", |_, head, query, key| {
        -(0.5_f32.powi(head as i32 + 1)) * (query - key).abs() as f32
    }),
    ("relative", |_, _, query, key| {
        0.1 * (query - key) as f32 / 10.0
    }),
    ("t5-relative-bias", |_, head, query, key| {
        let distance = (query - key).unsigned_abs() as usize;
        // Exact up to 8, then logarithmic.
        let bucket = match distance {
            0..8 => distance,
            _ => 8 + (distance / 8).ilog2() as usize,
        };
        let after = usize::from(key > query);
        ((bucket * 7 + after * 3 + head) as f32).sin()
    }),
    // A bias of the edges of a graph, by its endpoints.
    ("graph-bias", |batch, _, query, key| {
        let is_edge = (query * key + batch as i64) % 5 == 0;
        if is_edge { 1.5 } else { -0.5 }
    }),
];

const SOFTCAP: f32 = 1.5;
/// Numbers of keys of two examples.
const LENGTHS: [usize; 2] = [101, 85];

pub(crate) fn trials(suite: &mut Suite) {
    for &(name, visible) in MASKS {
        suite.add_training(format!("flexible/mask/{name}"), move |device| {
            let pattern = Pattern::mask_fn(visible);
            let none: Bias = |_, _, _, _| 0.0;
            check(&problem(), visible, none, device, |options| {
                options.with_pattern(pattern.clone())
            });
            // With keys of their own, heads are computed together.
            let own_keys = problem().with_kv_heads(4);
            let within = |batch, head, query, key| {
                visible(batch, head, query, key) && key < LENGTHS[batch] as i64
            };
            check(&own_keys, within, none, device, |options| {
                options.with_pattern(pattern.and(Pattern::key_lengths(LENGTHS)))
            });
        });
    }
    for &(name, bias) in BIASES {
        suite.add_training(format!("flexible/score/{name}"), move |device| {
            let visible: Visible = |_, _, query, key| key <= query;
            check(&problem(), visible, bias, device, move |options| {
                let options = options.with_pattern(Pattern::Causal);
                options.with_score_mod(ScoreMod::bias(bias))
            });
        });
    }
    suite.add_training("flexible/score/softcap", |device| {
        let problem = problem().with_softcap(f64::from(SOFTCAP));
        check(
            &problem,
            |_, _, _, _| true,
            |_, _, _, _| 0.0,
            device,
            |options| {
                let capped = |score: f32| SOFTCAP * (score / SOFTCAP).tanh();
                let derivative = |score: f32| 1.0 - (score / SOFTCAP).tanh().powi(2);
                options.with_score_mod(ScoreMod::new(
                    move |score, _, _, _, _| capped(score),
                    move |score, _, _, _, _| derivative(score),
                ))
            },
        );
    });
    // The first tiles of every kernel are masked completely.
    suite.add_training("flexible/score/minus-infinity", |device| {
        let visible: Visible = |_, _, query, key| (0..20).contains(&(query - key));
        let problem = Problem::new("flexible", [1, 2, 40, 600, 8]);
        check(
            &problem,
            visible,
            |_, _, _, _| 0.0,
            device,
            move |options| {
                options.with_score_mod(ScoreMod::new(
                    move |score, batch, head, query, key| match visible(batch, head, query, key) {
                        true => score,
                        false => f32::NEG_INFINITY,
                    },
                    |_, _, _, _, _| 1.0,
                ))
            },
        );
    });
    suite.add_training("flexible/score/per-head-mask", |device| {
        let visible: Visible = |_, head, query, key| (0..8_i64 << head).contains(&(query - key));
        let bias: Bias = |_, head, _, key| (head + 1) as f32 * 0.01 * key as f32;
        check(&problem(), visible, bias, device, move |options| {
            let options = options.with_pattern(Pattern::mask_fn(visible));
            options.with_score_mod(ScoreMod::bias(bias))
        });
    });
    // By gathered tiles, of queries and keys that are not consecutive.
    suite.add_training("flexible/score/strided", |device| {
        let near = Pattern::Window { left: 8, right: 8 };
        let pattern = near.or(Pattern::Strided { stride: 9 });
        check_gathered(&Strided { stride: Some(9) }.into(), pattern, device);
    });
    suite.add_training("flexible/score/fixed", |device| {
        let fixed = Fixed {
            block_size: Some(10),
            summary: 2,
        };
        check_gathered(&fixed.into(), Pattern::fixed(10, 2), device);
    });
    // Alone, with a bias, and by gathered tiles.
    suite.add_training("flexible/relative-bias", |device| {
        let strided = Strided { stride: Some(9) };
        check_relative_bias(&problem(), &Mechanism::Flash.into(), device);
        check_relative_bias(&problem(), &Mechanism::Standard.into(), device);
        check_relative_bias(&problem(), &strided.into(), device);
        let with_bias = problem().with_bias([2, 1, 70, 1]);
        check_relative_bias(&with_bias, &Mechanism::Flash.into(), device);
    });
    // Several tiles of the portable loops.
    suite.add_training("flexible/relative-bias/long", |device| {
        let long = Problem::new("flexible", [1, 2, 300, 530, 8]);
        check_relative_bias(&long, &Mechanism::Flash.into(), device);
    });
    for is_causal in [false, true] {
        let name = if is_causal { "causal" } else { "full" };
        suite.add_training(format!("flexible/sink/{name}"), move |device| {
            check_sink(is_causal, device);
        });
        suite.add_training(format!("flexible/sigmoid/{name}"), move |device| {
            check_sigmoid(is_causal, device);
        });
    }
}

/// Shared heads, more keys than queries, several tiles of the CPU kernels.
fn problem() -> Problem {
    Problem::new("flexible", [2, 4, 70, 101, 12]).with_kv_heads(2)
}

/// Compares `flash` with the options of `with` to the oracle, to which masks and score functions
/// are a bias.
fn check(
    problem: &Problem,
    visible: impl Fn(usize, usize, i64, i64) -> bool,
    bias: impl Fn(usize, usize, i64, i64) -> f32,
    device: &Device,
    with: impl FnOnce(AttentionOptions) -> AttentionOptions,
) {
    let [batch, heads, seq_q, seq_k] = problem.scores_shape();
    let reference = problem.clone().with_bias([batch, heads, seq_q, seq_k]);
    let mut inputs = reference.inputs();
    let mut biases = inputs.bias.iter_mut();
    for example in 0..batch {
        for head in 0..heads {
            for query in 0..seq_q {
                let position = (query + seq_k - seq_q) as i64;
                for key in 0..seq_k as i64 {
                    let is_visible = visible(example, head, position, key);
                    let added = bias(example, head, position, key);
                    *biases.next().expect("a bias") =
                        if is_visible { added } else { f32::NEG_INFINITY };
                }
            }
        }
    }
    let solution = solve(&reference, &inputs);
    let masked = inputs.bias.iter().filter(|bias| bias.is_infinite()).count();
    assert!(masked < inputs.bias.len(), "everything is masked");

    let tensors = Tensors::new(problem, &inputs, device).require_grad();
    let options = with(AttentionOptions::new());
    let context = tensors.apply(|query, key, value, _| flash(query, key, value, &options));
    let gradients = tensors.backward(context.clone());
    let forward = Precision::F32.forward(solution.largest_score);
    must(forward.check("context", &to_vec(context), &solution.context));
    let backward = Precision::F32.backward(solution.largest_score);
    must(tensors.check_gradients(&gradients, &solution, backward));
}

/// Compares a mechanism with the same pattern in standard attention, for a score function whose
/// derivative depends on all of its arguments.
fn check_gathered(mechanism: &MechanismConfig, pattern: Pattern, device: &Device) {
    let term = |batch: usize, head: usize, query: i64, key: i64| {
        0.3 * ((batch + 3 * head) as f32 + (5 * query - 2 * key) as f32).sin()
    };
    let square = ScoreMod::new(
        move |score, batch, head, query, key| score + term(batch, head, query, key) * score * score,
        move |score, batch, head, query, key| 1.0 + 2.0 * term(batch, head, query, key) * score,
    );
    let tensors = Tensors::new(&problem(), &problem().inputs(), device).require_grad();
    let options = tensors.options.clone().with_score_mod(square);
    let results = |mechanism: &MechanismConfig, options: AttentionOptions| {
        let tensors = Tensors {
            options,
            ..tensors.clone()
        };
        tensors.results(tensors.attend(mechanism))
    };
    let causal = pattern.and(Pattern::Causal);
    let plain = tensors.options.clone().with_pattern(causal.clone());
    let plain = results(&Mechanism::Standard.into(), plain);
    let expected = options.clone().with_pattern(causal);
    let expected = results(&Mechanism::Standard.into(), expected);
    let got = results(mechanism, options.with_pattern(Pattern::Causal));
    let tolerance = Precision::F32.backward(0.0);
    let is_close = tolerance.compare("context", &plain[0], &expected[0]);
    assert!(is_close.is_err(), "the score function has an effect");
    assert_results_close(tolerance, got, expected);
}

/// Compares a relative bias from the table of T5 with a bias of all pairs: the output, and the
/// gradients of the inputs and of the table.
fn check_relative_bias(problem: &Problem, mechanism: &MechanismConfig, device: &Device) {
    let buckets = RelativeBuckets {
        num_buckets: 12,
        max_distance: 40,
        is_bidirectional: true,
    };
    let [batch, heads, seq_q, seq_k] = problem.scores_shape();
    let column =
        |query: usize, key: usize| buckets.bucket(key as i64 - (query + seq_k - seq_q) as i64);
    let values: Vec<f32> = (0..heads * 12).map(|i| (i as f32).sin()).collect();
    let inputs = problem.inputs();
    let tensors = Tensors::new(problem, &inputs, device).require_grad();
    let own = tensors.options.bias.clone();

    let table = Tensor::<1>::from_floats(values.as_slice(), device).reshape([heads, 12]);
    let table = table.require_grad();
    let bias = buckets.bias(table.clone(), seq_q, seq_k);
    let options = tensors.options.clone().with_relative_bias(bias);
    let relative = Tensors {
        options,
        ..tensors.clone()
    };
    let context = relative.attend(mechanism);
    let gradients = relative.backward(context.clone());
    let got = relative.input_gradients(&gradients);
    let d_table = to_vec(table.grad(&gradients).expect("a gradient"));

    let pairs = (0..heads * seq_q * seq_k).map(|i| {
        let (row, key) = (i / seq_k, i % seq_k);
        values[row / seq_q * 12 + column(row % seq_q, key)]
    });
    let pairs: Vec<f32> = pairs.collect();
    let dense = Tensor::<1>::from_floats(pairs.as_slice(), device);
    let dense = dense.reshape([1, heads, seq_q, seq_k]).require_grad();
    let sum = match own {
        Some(own) => dense.clone() + own,
        None => dense.clone().expand([batch, heads, seq_q, seq_k]),
    };
    let tensors = Tensors {
        options: tensors.options.clone().with_bias(sum),
        ..tensors
    };
    let expected = tensors.attend(mechanism);
    let gradients = tensors.backward(expected.clone());
    let d_dense = to_vec(dense.grad(&gradients).expect("a gradient"));
    let mut expected_table = vec![0.0; heads * 12];
    let mut terms = expected_table.clone();
    for (i, d) in d_dense.into_iter().enumerate() {
        let (row, key) = (i / seq_k, i % seq_k);
        let element = row / seq_q * 12 + column(row % seq_q, key);
        expected_table[element] += f64::from(d);
        terms[element] += f64::from(d.abs());
    }
    let tolerance = Precision::F32.backward(0.0);
    must(tolerance.compare("context", &to_vec(context), &to_vec(expected)));
    for (got, expected) in got.iter().zip(tensors.input_gradients(&gradients)) {
        must(tolerance.compare("input gradient", got, &expected));
    }
    for (i, d) in expected_table.iter().enumerate() {
        // The bucket of a distance of zero after the query is empty.
        assert_eq!(*d == 0.0, i % 12 == 6, "element {i}");
    }
    // Each element is a sum of thousands of terms that almost cancel.
    let scale = terms.into_iter().fold(0.0, f64::max);
    must(tolerance.check_with_min_scale(scale, "d_table", &d_table, &expected_table));
}

fn pattern(is_causal: bool) -> Pattern {
    if is_causal {
        Pattern::Causal
    } else {
        Pattern::Full
    }
}

/// A sink is a key of zeros with a bias, whose value is zero.
fn check_sink(is_causal: bool, device: &Device) {
    let problem = problem();
    let [batch, heads, seq_q, seq_k] = problem.scores_shape();
    let sinks = [0.0, 1.5, -2.0, 0.3];
    let with_sink = Problem {
        seq_k: seq_k + 1,
        ..problem.clone()
    };
    let with_sink = with_sink.with_bias([batch, heads, seq_q, seq_k + 1]);
    let mut inputs = with_sink.inputs();
    let (d_head, d_value) = (problem.d_head, problem.d_value);
    let mut own = inputs.clone();
    (own.key, own.value) = (Vec::new(), Vec::new());
    for (rows, own, width) in [
        (&mut inputs.key, &mut own.key, d_head),
        (&mut inputs.value, &mut own.value, d_value),
    ] {
        for head in rows.chunks_exact_mut((seq_k + 1) * width) {
            let (keys, sink) = head.split_at_mut(seq_k * width);
            own.extend_from_slice(keys);
            sink.fill(0.0);
        }
    }
    for (row, biases) in inputs.bias.chunks_exact_mut(seq_k + 1).enumerate() {
        let (head, query) = (row / seq_q % heads, row % seq_q);
        let position = query + seq_k - seq_q;
        for (key, bias) in biases.iter_mut().enumerate() {
            let is_masked = is_causal && key < seq_k && key > position;
            *bias = match key {
                _ if is_masked => f32::NEG_INFINITY,
                _ if key == seq_k => sinks[head],
                _ => 0.0,
            };
        }
    }
    let solution = solve(&with_sink, &inputs);

    let tensors = Tensors::new(&problem, &own, device).require_grad();
    let sink = Tensor::<1>::from_floats(sinks, device).require_grad();
    let options = AttentionOptions::new().with_pattern(pattern(is_causal));
    let context = tensors
        .apply(|query, key, value, _| flash_with_sink(query, key, value, sink.clone(), &options));
    let gradients = tensors.backward(context.clone());
    let forward = Precision::F32.forward(solution.largest_score);
    must(forward.check("context", &to_vec(context), &solution.context));
    let backward = Precision::F32.backward(solution.largest_score);
    let [d_query, d_key, d_value] = tensors.input_gradients(&gradients);
    let without_sink = |grads: &[f64], width: usize| -> Vec<f64> {
        let heads = grads.chunks_exact((seq_k + 1) * width);
        heads
            .flat_map(|head| &head[..seq_k * width])
            .copied()
            .collect()
    };
    let terms = &solution.terms;
    must(backward.check_with_min_scale(terms.d_query, "d_query", &d_query, &solution.d_query));
    let expected = without_sink(&solution.d_key, problem.d_head);
    must(backward.check_with_min_scale(terms.d_key, "d_key", &d_key, &expected));
    let expected = without_sink(&solution.d_value, problem.d_value);
    must(backward.check("d_value", &d_value, &expected));
    let mut d_sink = vec![0.0; heads];
    for (row, d_bias) in solution.d_bias.chunks_exact(seq_k + 1).enumerate() {
        d_sink[row / seq_q % heads] += d_bias[seq_k];
    }
    let got = to_vec(sink.grad(&gradients).expect("a gradient"));
    must(backward.check_with_min_scale(terms.d_bias, "d_sink", &got, &d_sink));
}

/// Sigmoid weights with ALiBi, their context and gradients by definition, in `f64`. The causal ones
/// have key lengths, too.
fn check_sigmoid(is_causal: bool, device: &Device) {
    let problem = problem();
    let inputs = problem.inputs();
    let [batch, heads, seq_q, seq_k] = problem.scores_shape();
    let (d_head, d_value) = (problem.d_head, problem.d_value);
    let group = heads / problem.kv_heads;
    let at =
        |values: &[f32], row: usize, width: usize, x: usize| f64::from(values[row * width + x]);
    let mut context = vec![0.0; inputs.output_grad.len()];
    let [mut d_query, mut d_key, mut d_value_sum] =
        [&inputs.query, &inputs.key, &inputs.value].map(|values| vec![0.0; values.len()]);
    let scale = 1.0 / (d_head as f64).sqrt();
    let slopes = [0.0, 0.125, 0.25, 0.5];
    for row in 0..batch * heads * seq_q {
        let (head, query) = (row / seq_q, row % seq_q);
        for key in 0..seq_k {
            let position = query + seq_k - seq_q;
            let is_masked = key > position || key >= LENGTHS[head / heads];
            if is_causal && is_masked {
                continue;
            }
            let key_row = head / group * seq_k + key;
            let product =
                |x: usize| at(&inputs.query, row, d_head, x) * at(&inputs.key, key_row, d_head, x);
            let penalty = slopes[head % heads] * position.abs_diff(key) as f32;
            let score: f64 = scale * (0..d_head).map(product).sum::<f64>() - f64::from(penalty);
            let weight = 1.0 / (1.0 + (-score).exp());
            let mut d_weight = 0.0;
            for x in 0..d_value {
                let (value, grad) = (
                    at(&inputs.value, key_row, d_value, x),
                    at(&inputs.output_grad, row, d_value, x),
                );
                context[row * d_value + x] += weight * value;
                d_value_sum[key_row * d_value + x] += weight * grad;
                d_weight += grad * value;
            }
            let d_score = scale * weight * (1.0 - weight) * d_weight;
            for x in 0..d_head {
                d_query[row * d_head + x] += d_score * at(&inputs.key, key_row, d_head, x);
                d_key[key_row * d_head + x] += d_score * at(&inputs.query, row, d_head, x);
            }
        }
    }
    let tensors = Tensors::new(&problem, &inputs, device).require_grad();
    let pattern = match is_causal {
        true => Pattern::Causal.and(Pattern::key_lengths(LENGTHS)),
        false => Pattern::Full,
    };
    let options = AttentionOptions::new()
        .with_pattern(pattern)
        .with_alibi(slopes);
    let got = tensors.apply(|query, key, value, _| sigmoid_attention(query, key, value, &options));
    let gradients = tensors.backward(got.clone());
    must(
        Precision::F32
            .forward(8.0)
            .check("context", &to_vec(got), &context),
    );
    let backward = Precision::F32.backward(8.0);
    let [got_query, got_key, got_value] = tensors.input_gradients(&gradients);
    must(backward.check("d_query", &got_query, &d_query));
    must(backward.check("d_key", &got_key, &d_key));
    must(backward.check("d_value", &got_value, &d_value_sum));
}
