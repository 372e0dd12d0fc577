//! Fully masked rows, padding, NaN and refused inputs, for every mechanism at
//! [small sizes](small_for_tests).

use burn::tensor::Device;
use zoo_attention::{Mechanism, MechanismConfig};
use zoo_conformance::*;
use zoo_oracle::{
    Difference, Input, Inputs, Mask, Precision, Problem, SMALL_HEADS, SMALL_SEQUENCE,
    padding_reaches, small_for_tests, solve,
};

use crate::hidden::same;
use crate::named;

type Test = fn(&MechanismConfig, &Device);

pub(crate) fn trials(mechanism: Mechanism, suite: &mut Suite) {
    for (name, test) in TESTS {
        suite.add(format!("{mechanism}/{name}"), move |device| {
            test(&small_for_tests(mechanism), device);
        });
    }
}

fn takes(config: &MechanismConfig, input: Input) -> bool {
    input.refused_by(config.mechanism()).is_none()
}

/// The masks that show all keys, or all up to the query, as far as the mechanism takes them.
fn masks(config: &MechanismConfig) -> Vec<Mask> {
    match takes(config, Input::NotCausal) {
        true => vec![Mask::Causal, Mask::Full],
        false => vec![Mask::Causal],
    }
}

const TESTS: &[(&str, Test)] = &[
    (
        "small-sizes-differ-from-full-attention",
        |config, device| {
            for mask in masks(config) {
                differs_from_full(config, SMALL_HEADS, [SMALL_SEQUENCE; 2], mask, device);
            }
        },
    ),
    ("fully-masked-rows-are-zero", |config, device| {
        let plain = Problem::small_for(config);
        fully_masked_rows_are_zero(config, &with_padding(plain.clone()), device);
        // That it is refused is tested below.
        if takes(config, Input::DenseMask) {
            fully_masked_rows_are_zero(config, &Input::DenseMask.added_to(plain), device);
        }
    }),
    ("padding-changes-nothing", |config, device| {
        for mask in masks(config) {
            padding_changes_nothing(config, mask, device);
        }
    }),
    ("nan-is-seen-where-it-is-visible", |config, device| {
        let problem = Problem::small_for(config);
        is_seen_where_visible(config, &problem, 5, f32::NAN, device);
        if Difference::of(config.mechanism()) == Difference::None {
            let tiles = named("several-tiles");
            for number in [f32::NAN, f32::INFINITY] {
                is_seen_where_visible(config, &tiles, 70, number, device);
            }
        }
    }),
    ("a-plain-mask-serves-a-training-tensor", |config, device| {
        let plain = Problem::small_for(config);
        let problem = match takes(config, Input::DenseMask) {
            true => Input::DenseMask.added_to(plain),
            false => with_padding(plain),
        };
        let masked = Tensors::of(&problem, device);
        let training = Tensors {
            options: masked.options.clone(),
            ..Tensors::of(&problem, &device.clone().autodiff())
        };
        let [want, got] = [masked, training].map(|tensors| numbers(tensors.attend(config)));
        must(Precision::F32.forward(0.0).compare("context", &got, &want));
    }),
    ("refuses-what-it-cannot-compute", |config, device| {
        for input in Input::ALL {
            let Some(reason) = input.refused_by(config.mechanism()) else {
                continue;
            };
            let unsupported = |option: &str| format!("{option} is not supported, since {reason}");
            let message = match input {
                Input::Softcap => unsupported("softcap"),
                Input::Alibi => unsupported("ALiBi"),
                Input::Bias => unsupported("bias"),
                Input::Dropout => unsupported("dropout"),
                _ => reason.to_owned(),
            };
            let problem = input.added_to(Problem::small_for(config));
            let said = refusal(|| Tensors::of(&problem, device).attend(config));
            assert!(said.contains(&message), "{input:?}: {said}");
        }
    }),
];

/// A causal problem in which the first keys of one example are padding, and all of the other.
fn with_padding(problem: Problem) -> Problem {
    let padding = [3, SMALL_SEQUENCE].map(|padded| {
        let is_padding = |key: usize| key < padded;
        (0..SMALL_SEQUENCE).map(is_padding).collect()
    });
    problem.with_mask(Mask::All(vec![
        Mask::Causal,
        Mask::KeyPadding(padding.to_vec()),
    ]))
}

/// A row that sees nothing is exactly zero, has no gradient, and reaches no other.
fn fully_masked_rows_are_zero(config: &MechanismConfig, problem: &Problem, device: &Device) {
    let tensors = Tensors::of(problem, &device.clone().autodiff()).require_grad();
    let solved = given(config, problem, &tensors);
    let masked: Vec<usize> = (0..problem.queries())
        .filter(|&row| solved.hidden_from(row).iter().all(|&hidden| hidden))
        .collect();
    assert!((1..problem.queries()).contains(&masked.len()), "{masked:?}");
    let context = tensors.attend(config);
    let queries = all_queries(problem);
    must(judge_context(
        config,
        problem,
        &tensors,
        &queries,
        context.clone(),
    ));
    let answer = solve(&solved, &tensors.inputs());
    let [context, d_query, d_key, d_value] = tensors.results(context);
    let is_zero = |what: &str, row: usize, numbers: &[f32], width: usize| {
        let own = &numbers[row * width..][..width];
        assert!(
            own.iter().all(|&x| x == 0.0),
            "{what} of row {row} is {own:?}"
        );
    };
    for row in masked {
        is_zero("the result", row, &context, problem.d_value);
        // `lsh` makes keys of its queries: that of a masked row may be seen by others.
        let own = row * problem.d_head..(row + 1) * problem.d_head;
        let as_key = answer.d_query_as_key.get(own).unwrap_or_default();
        if as_key.iter().all(|&x| x == 0.0) {
            is_zero("the gradient by the query", row, &d_query, problem.d_head);
        }
    }
    let gradients = [d_query, d_key, d_value].concat();
    assert!(gradients.iter().all(|x| x.is_finite()), "{gradients:?}");
}

/// A sequence with large numbers behind its end, which key lengths hide, gives the results and
/// the gradients that it gives alone. Where [`padding_reaches`] says otherwise, it does not.
fn padding_changes_nothing(config: &MechanismConfig, mask: Mask, device: &Device) {
    const LONG: usize = SMALL_SEQUENCE + 4;
    let device = &device.clone().autodiff();
    let alone = Problem {
        batch: 1,
        mask: mask.clone(),
        ..Problem::small_for(config)
    };
    let padded = Problem {
        seq_q: LONG,
        seq_k: LONG,
        mask: Mask::All(vec![mask, Mask::KeyLengths(vec![SMALL_SEQUENCE])]),
        ..alone.clone()
    };
    let inputs = alone.inputs();
    let pad = |numbers: &[f32], width: usize, filler: f32| {
        let rest = vec![filler; (LONG - SMALL_SEQUENCE) * width];
        let heads = numbers.chunks(SMALL_SEQUENCE * width);
        heads.flat_map(|head| [head, &rest].concat()).collect()
    };
    let padded_inputs = Inputs {
        query: pad(&inputs.query, alone.d_head, 90.0),
        key: pad(&inputs.key, alone.d_head, 1e4),
        value: pad(&inputs.value, alone.d_value, -1e4),
        // Nothing is asked of padding.
        upstream: pad(&inputs.upstream, alone.d_value, 0.0),
        bias: vec![],
    };
    let of = |problem: &Problem, inputs: &Inputs| {
        let tensors = Tensors::new(problem, inputs, device).require_grad();
        tensors.results(tensors.attend(config))
    };
    let widths = [alone.d_value, alone.d_head, alone.d_head, alone.d_value];
    let (want, got) = (of(&alone, &inputs), of(&padded, &padded_inputs));
    let mut differs = false;
    for (((name, width), want), got) in RESULTS.into_iter().zip(widths).zip(want).zip(got) {
        let own = SMALL_SEQUENCE * width;
        let (mut of_own, mut of_padding) = (vec![], vec![]);
        for head in got.chunks(LONG * width) {
            of_own.extend_from_slice(&head[..own]);
            of_padding.extend_from_slice(&head[own..]);
        }
        let want: Vec<f64> = want.into_iter().map(f64::from).collect();
        // Both are rounded, the gradient of a key after a difference.
        let tolerance = Precision::F32.backward(8.0);
        let checked = tolerance.check_as_large_as(0.1, name, &of_own, &want);
        match padding_reaches(config) {
            None => drop(must(checked)),
            Some(_) => differs |= checked.is_err(),
        }
        let is_of_key = name == "d_key" || name == "d_value";
        let is_zero = of_padding.iter().all(|&x| x == 0.0);
        assert!(!is_of_key || is_zero, "{name} of padding is not zero");
    }
    if let Some(reason) = padding_reaches(config) {
        assert!(differs, "padding changed nothing, though {reason}");
    }
}

/// NaN in a query makes its row NaN. NaN in a key or a value makes the rows NaN that see it:
/// it is never dropped. Other heads stay as they are but for rounding, and so do other rows of a
/// query that is NaN. The same holds for infinity in a query or a value, of which rows may be
/// anything else than they were.
///
/// `lsh` reads no keys, and a query that is NaN is a key to others and may be sorted anywhere:
/// of it, other rows of the same head may change. `hard` shows the NaN of a value to those who
/// chose it.
fn is_seen_where_visible(
    config: &MechanismConfig,
    problem: &Problem,
    position: usize,
    number: f32,
    device: &Device,
) {
    let inputs = problem.inputs();
    let tensors = Tensors::new(problem, &inputs, device);
    let clean = numbers(tensors.attend(config));
    let weights = solve(&given(config, problem, &tensors), &inputs).weights;

    let (seq_q, seq_k) = (problem.seq_q, problem.seq_k);
    let group = problem.heads / problem.kv_heads;
    // That position of the last example's last head, and of the head it shares.
    let head = problem.batch * problem.heads - 1;
    let row = head * seq_q + position;
    let key = head / group * seq_k + position;
    let heads_of_key = head / group * group..head / group * group + group;
    let (d_head, d_value) = (problem.d_head, problem.d_value);
    let is_lsh = config.mechanism() == Mechanism::Lsh;

    // Of each row, whether it stayed, and whether it shows the number.
    let rows = |spoil: &dyn Fn(&mut Inputs)| -> Vec<(bool, bool)> {
        let mut inputs = inputs.clone();
        spoil(&mut inputs);
        let spoilt = numbers(Tensors::new(problem, &inputs, device).attend(config));
        (spoilt.chunks(d_value).zip(clean.chunks(d_value)))
            .map(|(spoilt, clean)| {
                let stayed = same(clean, spoilt);
                (stayed, !stayed && (spoilt[0].is_nan() || !number.is_nan()))
            })
            .collect()
    };
    let is_own_head = |other: usize| heads_of_key.contains(&(other / seq_q));

    let by_query = rows(&|inputs| inputs.query[row * d_head] = number);
    for (other, (stayed, is_shown)) in by_query.into_iter().enumerate() {
        let may_change = stayed || is_lsh && other / seq_q == head;
        let is_right = if other == row { is_shown } else { may_change };
        assert!(is_right, "{number} in query {row}: row {other}");
    }
    let of_value = rows(&|inputs| inputs.value[key * d_value] = number);
    let mut spoilt = vec![("value", of_value)];
    if number.is_nan() {
        spoilt.push(("key", rows(&|inputs| inputs.key[key * d_head] = number)));
    }
    for (what, rows) in spoilt {
        let is_read = what == "value" || !is_lsh;
        let mut seeing = 0;
        for (other, (stayed, is_shown)) in rows.into_iter().enumerate() {
            let sees = is_own_head(other) && weights[other * seq_k + position] != 0.0;
            if sees && is_read {
                seeing += 1;
                assert!(is_shown, "row {other} sees {number} in a {what}");
            }
            let may_change = is_own_head(other) && is_read;
            assert!(
                stayed || may_change,
                "row {other}: {number} in {what} {key}"
            );
        }
        assert!(seeing > 0 || !is_read, "nobody sees {number} in a {what}");
    }
}
