//! Fully masked rows, padding, NaN and unsupported inputs, for every mechanism at
//! [small sizes](Mechanism::small_for_tests).

use burn::tensor::TensorData;
use zoo_attention::ScoreMod;
use zoo_oracle::{Precision, padding_effect};

use crate::masked_values::is_close_slice;
use crate::prelude::*;

type Test = fn(&MechanismConfig, &Device);

pub(crate) fn trials(mechanism: Mechanism, suite: &mut Suite) {
    let config = mechanism.small_for_tests();
    let tests = TESTS.iter().copied();
    suite.add_cases(&format!("{mechanism}/"), tests, move |test, device| {
        test(&config, device);
    });
}

/// Whether a mechanism accepts problems with this requirement.
pub(crate) fn supports(mechanism: Mechanism, requirement: Requirement) -> bool {
    requirement.unsupported_reason(mechanism).is_none()
}

/// A term that a score function adds has the effect of a bias with the same values.
fn check_score_function(config: &MechanismConfig, device: &Device) {
    let problem = Problem::small_for(config);
    let term =
        |head: usize, query: i64, key: i64| ((3 * head as i64 + query - 2 * key) as f32).sin();
    let [_, heads, seq_q, seq_k] = problem.scores_shape();
    let first = (seq_k - seq_q) as i64;
    let values: Vec<f32> = (0..heads * seq_q * seq_k)
        .map(|i| {
            let (row, key) = (i / seq_k, i % seq_k);
            term(row / seq_q, first + (row % seq_q) as i64, key as i64)
        })
        .collect();
    let device = &device.clone().autodiff();
    let tensors = Tensors::from_problem(&problem, device).require_grad();
    let bias = TensorData::new(values, [1, heads, seq_q, seq_k]);
    let bias = Tensor::from_data(bias, device);
    let options = &tensors.options;
    let score_mod = ScoreMod::bias(move |_, head, query, key| term(head, query, key));
    let [plain, want, got] = [
        options.clone(),
        options.clone().with_bias(bias),
        options.clone().with_score_mod(score_mod),
    ]
    .map(|options| {
        let tensors = Tensors {
            options,
            ..tensors.clone()
        };
        tensors.results(tensors.attend(config))
    });
    let tolerance = Precision::F32.backward(0.0);
    assert!(tolerance.compare("context", &plain[0], &want[0]).is_err());
    assert_results_close(tolerance, got, want);
}

/// The causal and the full mask, if the mechanism supports them.
fn masks(config: &MechanismConfig) -> Vec<Mask> {
    let masks = [
        (Mask::Causal, Requirement::Causal),
        (Mask::Full, Requirement::Bidirectional),
    ];
    let is_supported = |(_, requirement): &(_, _)| supports(config.mechanism(), *requirement);
    let supported = masks.into_iter().filter(is_supported);
    supported.map(|(mask, _)| mask).collect()
}

const TESTS: &[(&str, Test)] = &[
    (
        "small-sizes-differ-from-full-attention",
        |config, device| {
            for mask in masks(config) {
                assert_not_full_attention(config, SMALL_HEADS, [SMALL_SEQUENCE; 2], mask, device);
            }
        },
    ),
    ("fully-masked-rows-are-zero", |config, device| {
        let plain = Problem::small_for(config);
        fully_masked_rows_are_zero(config, &with_padding(plain.clone()), device);
        // Rejection is tested below.
        if supports(config.mechanism(), Requirement::DenseMask) {
            fully_masked_rows_are_zero(config, &Requirement::DenseMask.add_to(plain), device);
        }
    }),
    ("score-functions-are-biases", |config, device| {
        // The others reject both.
        if supports(config.mechanism(), Requirement::Bias) {
            check_score_function(config, device);
        }
    }),
    ("padding-has-no-effect", |config, device| {
        for mask in masks(config) {
            check_padding(config, mask, device);
        }
    }),
    ("visible-nan-propagates", |config, device| {
        let problem = Problem::small_for(config);
        check_propagation(config, &problem, 5, f32::NAN, device);
        if Difference::from(config.mechanism()) == Difference::None {
            let tiles = find_problem("several-tiles");
            for value in [f32::NAN, f32::INFINITY] {
                check_propagation(config, &tiles, 70, value, device);
            }
        }
    }),
    (
        "mask-without-autodiff-with-autodiff-tensors",
        |config, device| {
            let plain = Problem::small_for(config);
            let problem = if supports(config.mechanism(), Requirement::DenseMask) {
                Requirement::DenseMask.add_to(plain)
            } else {
                with_padding(plain)
            };
            let masked = Tensors::from_problem(&problem, device);
            let training = Tensors {
                options: masked.options.clone(),
                ..Tensors::from_problem(&problem, &device.clone().autodiff())
            };
            let [want, got] = [masked, training].map(|tensors| to_vec(tensors.attend(config)));
            must(Precision::F32.forward(0.0).compare("context", &got, &want));
        },
    ),
    ("unsupported-inputs-are-rejected", |config, device| {
        for requirement in Requirement::ALL {
            let Some(reason) = requirement.unsupported_reason(config.mechanism()) else {
                continue;
            };
            let unsupported = |option: &str| format!("{option} is not supported, since {reason}");
            let expected = match requirement {
                Requirement::Softcap => unsupported("softcap"),
                Requirement::Alibi => unsupported("ALiBi"),
                Requirement::Bias => unsupported("bias"),
                Requirement::Dropout => unsupported("dropout"),
                _ => reason.to_owned(),
            };
            let problem = requirement.add_to(Problem::small_for(config));
            let message = panic_message(|| Tensors::from_problem(&problem, device).attend(config));
            assert!(message.contains(&expected), "{requirement:?}: {message}");
        }
    }),
];

/// The problem with left padding in one example and only padding in the other.
fn with_padding(problem: Problem) -> Problem {
    let padding = [3, SMALL_SEQUENCE].map(|padded| {
        let is_padding = |key: usize| key < padded;
        (0..SMALL_SEQUENCE).map(is_padding).collect()
    });
    let masks = vec![problem.mask.clone(), Mask::KeyPadding(padding.to_vec())];
    problem.with_mask(Mask::All(masks))
}

/// Context and query gradient of fully masked rows are exactly zero.
fn fully_masked_rows_are_zero(config: &MechanismConfig, problem: &Problem, device: &Device) {
    let tensors = Tensors::from_problem(problem, &device.clone().autodiff()).require_grad();
    let reference = reference_problem(config, problem, &tensors);
    let masked: Vec<usize> = (0..problem.queries())
        .filter(|&row| reference.mask_row(row).iter().all(|&masked| masked))
        .collect();
    assert!((1..problem.queries()).contains(&masked.len()), "{masked:?}");
    let context = tensors.attend(config);
    let queries = all_queries(problem);
    must(compare_context(
        config,
        problem,
        &tensors,
        &queries,
        context.clone(),
    ));
    let solution = solve(&reference, &tensors.inputs());
    let [context, d_query, d_key, d_value] = tensors.results(context);
    let assert_zero = |name: &str, row: usize, values: &[f32], width: usize| {
        let values = &values[row * width..][..width];
        let is_zero = values.iter().all(|&x| x == 0.0);
        assert!(is_zero, "{name} of row {row} is {values:?}");
    };
    for row in masked {
        assert_zero("context", row, &context, problem.d_value);
        // The keys of `lsh` are its queries: others may attend to that of a masked row.
        let range = row * problem.d_head..(row + 1) * problem.d_head;
        let as_key = solution.d_query_as_key.get(range).unwrap_or_default();
        if as_key.iter().all(|&x| x == 0.0) {
            assert_zero("d_query", row, &d_query, problem.d_head);
        }
    }
    let gradients = [d_query, d_key, d_value].concat();
    assert!(gradients.iter().all(|x| x.is_finite()), "{gradients:?}");
}

/// A sequence padded with large values, which key lengths mask, has the same results and gradients
/// as without padding, unless the mechanism has a [`padding_effect`].
fn check_padding(config: &MechanismConfig, mask: Mask, device: &Device) {
    const PADDED: usize = SMALL_SEQUENCE + 4;
    let device = &device.clone().autodiff();
    let unpadded = Problem {
        batch: 1,
        mask: mask.clone(),
        ..Problem::small_for(config)
    };
    let padded = Problem {
        seq_q: PADDED,
        seq_k: PADDED,
        mask: Mask::All(vec![mask, Mask::KeyLengths(vec![SMALL_SEQUENCE])]),
        ..unpadded.clone()
    };
    let inputs = unpadded.inputs();
    let pad = |values: &[f32], width: usize, filler: f32| {
        let rest = vec![filler; (PADDED - SMALL_SEQUENCE) * width];
        let heads = values.chunks(SMALL_SEQUENCE * width);
        heads.flat_map(|head| [head, &rest].concat()).collect()
    };
    let padded_inputs = Inputs {
        query: pad(&inputs.query, unpadded.d_head, 90.0),
        key: pad(&inputs.key, unpadded.d_head, 1e4),
        value: pad(&inputs.value, unpadded.d_value, -1e4),
        // Padding is not part of the loss.
        output_grad: pad(&inputs.output_grad, unpadded.d_value, 0.0),
        bias: vec![],
    };
    let results = |problem: &Problem, inputs: &Inputs| {
        let tensors = Tensors::new(problem, inputs, device).require_grad();
        tensors.results(tensors.attend(config))
    };
    let (d_head, d_value) = (unpadded.d_head, unpadded.d_value);
    let widths = [d_value, d_head, d_head, d_value];
    let want = results(&unpadded, &inputs);
    let got = results(&padded, &padded_inputs);
    let mut differs = false;
    for (((name, width), want), got) in RESULT_NAMES.into_iter().zip(widths).zip(want).zip(got) {
        let end = SMALL_SEQUENCE * width;
        let heads = got.chunks(PADDED * width).map(|head| head.split_at(end));
        let (sequence, padding): (Vec<_>, Vec<_>) = heads.unzip();
        let (sequence, padding) = (sequence.concat(), padding.concat());
        let want: Vec<f64> = want.into_iter().map(f64::from).collect();
        // Both are rounded, and terms of the key gradient cancel.
        let tolerance = Precision::F32.backward(8.0);
        let checked = tolerance.check_with_min_scale(0.1, name, &sequence, &want);
        match padding_effect(config) {
            None => drop(must(checked)),
            Some(_) => differs |= checked.is_err(),
        }
        let is_key_gradient = name == "d_key" || name == "d_value";
        let is_zero = padding.iter().all(|&x| x == 0.0);
        assert!(!is_key_gradient || is_zero, "{name} of padding is not zero");
    }
    if let Some(reason) = padding_effect(config) {
        assert!(differs, "padding has no effect, although {reason}");
    }
}

/// NaN in a query makes its row NaN. NaN in a key or value makes all rows NaN that attend to it.
/// Other heads, and other rows for NaN in a query, are unchanged up to rounding. The same holds for
/// infinity in a query or value, except that the affected rows may have any new value.
///
/// `lsh` does not read keys, and its queries are keys, which are sorted anywhere if they are NaN:
/// other rows of the same head may change. The landmarks of `nystrom` are means over all queries:
/// NaN in one affects all rows of its head. With `moba`, infinity or NaN in a key affects the rows that
/// select its block because of it. With `hard`, NaN in a value affects the rows that selected
/// it.
fn check_propagation(
    config: &MechanismConfig,
    problem: &Problem,
    position: usize,
    value: f32,
    device: &Device,
) {
    let inputs = problem.inputs();
    let tensors = Tensors::new(problem, &inputs, device);
    let clean = to_vec(tensors.attend(config));
    let weights = solve(&reference_problem(config, problem, &tensors), &inputs).weights;

    let (seq_q, seq_k) = (problem.seq_q, problem.seq_k);
    let group = problem.heads / problem.kv_heads;
    // This position in the last head of the last example, and in its KV head.
    let head = problem.batch * problem.heads - 1;
    let row = head * seq_q + position;
    let key = head / group * seq_k + position;
    let heads_of_key = head / group * group..head / group * group + group;
    let (d_head, d_value) = (problem.d_head, problem.d_value);
    let is_lsh = config.mechanism() == Mechanism::Lsh;
    let mixes_queries = is_lsh || config.mechanism() == Mechanism::Nystrom;

    // For each row, whether it is unchanged, and whether it has the value.
    let rows = |modify: &dyn Fn(&mut Inputs)| -> Vec<(bool, bool)> {
        let mut inputs = inputs.clone();
        modify(&mut inputs);
        let modified = to_vec(Tensors::new(problem, &inputs, device).attend(config));
        (modified.chunks(d_value).zip(clean.chunks(d_value)))
            .map(|(modified, clean)| {
                let unchanged = is_close_slice(clean, modified);
                let is_affected = !unchanged && (modified[0].is_nan() || !value.is_nan());
                (unchanged, is_affected)
            })
            .collect()
    };
    let is_same_head = |other: usize| heads_of_key.contains(&(other / seq_q));

    let by_query = rows(&|inputs| inputs.query[row * d_head] = value);
    for (other, (unchanged, is_affected)) in by_query.into_iter().enumerate() {
        let is_allowed = unchanged || mixes_queries && other / seq_q == head;
        let is_correct = if other == row {
            is_affected
        } else {
            is_allowed
        };
        assert!(is_correct, "{value} in query {row}: row {other}");
    }
    let by_value = rows(&|inputs| inputs.value[key * d_value] = value);
    let mut modified = vec![("value", by_value)];
    if value.is_nan() {
        modified.push(("key", rows(&|inputs| inputs.key[key * d_head] = value)));
    }
    for (name, rows) in modified {
        let is_read = name == "value" || !is_lsh;
        let mut attending = 0;
        for (other, (unchanged, is_affected)) in rows.into_iter().enumerate() {
            let attends = is_same_head(other) && weights[other * seq_k + position] != 0.0;
            if attends && is_read {
                attending += 1;
                assert!(is_affected, "row {other} attends to {value} in a {name}");
            }
            let may_change = is_same_head(other) && is_read;
            assert!(unchanged || may_change, "{value} in {name}: row {other}");
        }
        assert!(attending > 0 || !is_read, "{name} is not visible");
    }
}
