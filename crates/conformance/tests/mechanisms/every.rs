//! Fully masked rows, padding, NaN and refused inputs, for every mechanism at
//! [small sizes](small_for_tests).

use burn::tensor::Device;
use libtest_mimic::Failed;
use zoo_attention::{Mechanism, MechanismConfig};
use zoo_conformance::{
    Suite, Tensors, all_queries, differs_from_full, given, is_refused_with, judge_context, numbers,
};
use zoo_oracle::{
    Difference, Input, Inputs, Mask, Precision, Problem, SMALL_HEADS, SMALL_SEQUENCE, find,
    padding_reaches, small_for_tests, solve,
};

use crate::hidden::same;

type Test = fn(Mechanism, &Device) -> Result<(), Failed>;

pub(crate) fn trials(mechanism: Mechanism, suite: &mut Suite) {
    for (name, test) in TESTS {
        suite.add(format!("{mechanism}/{name}"), move |device| {
            test(mechanism, device)
        });
    }
}

const TESTS: &[(&str, Test)] = &[
    (
        "small-sizes-differ-from-full-attention",
        |mechanism, device| {
            let config = small_for_tests(mechanism);
            let sizes = [SMALL_SEQUENCE; 2];
            differs_from_full(&config, SMALL_HEADS, sizes, Mask::Causal, device)?;
            if Input::NotCausal.refused_by(mechanism).is_none() {
                differs_from_full(&config, SMALL_HEADS, sizes, Mask::Full, device)?;
            }
            Ok(())
        },
    ),
    ("fully-masked-rows-are-zero", |mechanism, device| {
        let config = small_for_tests(mechanism);
        let plain = Problem::small_for(&config);
        fully_masked_rows_are_zero(&config, &with_padding(plain.clone()), device)?;
        match Input::DenseMask.refused_by(mechanism) {
            None => {
                let by_mask = Input::DenseMask.added_to(plain);
                fully_masked_rows_are_zero(&config, &by_mask, device)
            }
            // That it is refused is tested below.
            Some(_) => Ok(()),
        }
    }),
    ("padding-changes-nothing", |mechanism, device| {
        let config = small_for_tests(mechanism);
        padding_changes_nothing(&config, Mask::Causal, device)?;
        match Input::NotCausal.refused_by(mechanism) {
            None => padding_changes_nothing(&config, Mask::Full, device),
            Some(_) => Ok(()),
        }
    }),
    ("nan-is-seen-where-it-is-visible", |mechanism, device| {
        let config = small_for_tests(mechanism);
        let problem = Problem::small_for(&config);
        is_seen_where_visible(&config, &problem, 5, f32::NAN, device)?;
        if Difference::of(mechanism) != Difference::None {
            return Ok(());
        }
        let tiles = find("several-tiles").expect("a problem of the catalogue");
        for number in [f32::NAN, f32::INFINITY] {
            is_seen_where_visible(&config, &tiles, 70, number, device)?;
        }
        Ok(())
    }),
    (
        "a-plain-mask-serves-a-training-tensor",
        |mechanism, device| {
            let config = small_for_tests(mechanism);
            let plain = Problem::small_for(&config);
            let problem = match Input::DenseMask.refused_by(mechanism) {
                None => Input::DenseMask.added_to(plain),
                Some(_) => with_padding(plain),
            };
            let of = |device: &Device| Tensors::new(&problem, &problem.inputs(), device);
            let masked = of(device);
            let training = Tensors {
                options: masked.options.clone(),
                ..of(&device.clone().autodiff())
            };
            let tolerance = Precision::F32.forward(0.0);
            let [want, got] = [masked, training].map(|tensors| numbers(tensors.attend(&config)));
            tolerance.compare("context", &got, &want)?;
            Ok(())
        },
    ),
    ("refuses-what-it-cannot-compute", |mechanism, device| {
        let config = small_for_tests(mechanism);
        for input in Input::ALL {
            let Some(reason) = input.refused_by(mechanism) else {
                continue;
            };
            let option = match input {
                Input::Softcap => Some("softcap"),
                Input::Alibi => Some("ALiBi"),
                Input::Bias => Some("bias"),
                Input::Dropout => Some("dropout"),
                _ => None,
            };
            let message = match option {
                Some(option) => format!("{option} is not supported, since {reason}"),
                None => reason.to_owned(),
            };
            let problem = input.added_to(Problem::small_for(&config));
            let tensors = Tensors::new(&problem, &problem.inputs(), device);
            is_refused_with(|| tensors.attend(&config), &message)
                .map_err(|error| format!("{input:?}: {error:?}"))?;
        }
        Ok(())
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
fn fully_masked_rows_are_zero(
    config: &MechanismConfig,
    problem: &Problem,
    device: &Device,
) -> Result<(), Failed> {
    let device = &device.clone().autodiff();
    let tensors = Tensors::new(problem, &problem.inputs(), device).require_grad();
    let solved = given(config, problem, &tensors);
    let masked: Vec<usize> = (0..problem.queries())
        .filter(|&row| solved.hidden_from(row).iter().all(|&hidden| hidden))
        .collect();
    assert!(
        !masked.is_empty() && masked.len() != problem.queries(),
        "{} of {} rows are masked",
        masked.len(),
        problem.queries()
    );
    let (context, gradients) = tensors.train(config);
    judge_context(
        config,
        problem,
        &tensors,
        &all_queries(problem),
        context.clone(),
    )?;
    let answer = solve(&solved, &tensors.inputs());
    let [d_query, d_key, d_value] = tensors.gradients_by_inputs(&gradients);
    let context = numbers(context);
    for row in masked {
        is_zero("the result", row, &context, problem.d_value)?;
        // `lsh` makes keys of its queries: that of a masked row may be seen by others.
        let own = row * problem.d_head..(row + 1) * problem.d_head;
        let as_key = answer.d_query_as_key.get(own).unwrap_or_default();
        if as_key.iter().all(|&x| x == 0.0) {
            is_zero("the gradient by the query", row, &d_query, problem.d_head)?;
        }
    }
    let finite = [&d_query, &d_key, &d_value];
    assert!(
        finite.iter().all(|d| d.iter().all(|x| x.is_finite())),
        "a gradient is not finite"
    );
    Ok(())
}

fn is_zero(what: &str, row: usize, numbers: &[f32], width: usize) -> Result<(), Failed> {
    let own = &numbers[row * width..][..width];
    assert!(
        own.iter().all(|&x| x == 0.0),
        "{what} of row {row} is {own:?}"
    );
    Ok(())
}

/// A sequence with large numbers behind its end, which key lengths hide, gives the results and
/// the gradients that it gives alone. Where [`padding_reaches`] says otherwise, it does not.
fn padding_changes_nothing(
    config: &MechanismConfig,
    mask: Mask,
    device: &Device,
) -> Result<(), Failed> {
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
        let (context, gradients) = tensors.train(config);
        let [d_query, d_key, d_value] = tensors.gradients_by_inputs(&gradients);
        [numbers(context), d_query, d_key, d_value]
    };
    let widths = [alone.d_value, alone.d_head, alone.d_head, alone.d_value];
    let names = ["context", "d_query", "d_key", "d_value"];
    let (want, got) = (of(&alone, &inputs), of(&padded, &padded_inputs));
    let mut differs = false;
    for (((name, width), want), got) in names.into_iter().zip(widths).zip(want).zip(got) {
        let heads = || got.chunks(LONG * width);
        let own: Vec<f32> = heads()
            .flat_map(|head| &head[..SMALL_SEQUENCE * width])
            .copied()
            .collect();
        let want: Vec<f64> = want.into_iter().map(f64::from).collect();
        // Both are rounded, the gradient of a key after a difference.
        let tolerance = Precision::F32.backward(8.0);
        let checked = tolerance.check_as_large_as(0.1, name, &own, &want);
        match padding_reaches(config) {
            None => drop(checked?),
            Some(_) => differs |= checked.is_err(),
        }
        let is_of_key = name == "d_key" || name == "d_value";
        let of_padding = || heads().flat_map(|head| &head[SMALL_SEQUENCE * width..]);
        assert!(
            !is_of_key || !of_padding().any(|&x| x != 0.0),
            "{name} of padding is not zero"
        );
    }
    match padding_reaches(config) {
        Some(reason) if !differs => Err(format!("padding changed nothing, though {reason}").into()),
        _ => Ok(()),
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
) -> Result<(), Failed> {
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
        let may_change = is_lsh && other / seq_q == head;
        match other == row {
            true => assert!(is_shown, "{number} in a query is not in its row"),
            false => assert!(
                stayed || may_change,
                "{number} in query {row} is in row {other}"
            ),
        }
    }
    let mut spoilt = vec![(
        "value",
        rows(&|inputs| inputs.value[key * d_value] = number),
    )];
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
                assert!(
                    is_shown,
                    "row {other} sees {number} in a {what}, and is not"
                );
            }
            let may_change = is_own_head(other) && is_read;
            assert!(
                stayed || may_change,
                "{number} in {what} {key} is in row {other}"
            );
        }
        assert!(
            seeing > 0 || !is_read,
            "nobody sees the {what} that is {number}"
        );
    }
    Ok(())
}
