//! Keys and values that a mask hides may hold anything: neither results nor gradients depend
//! on it, not even where it is NaN or infinite.
//!
//! Padding is often left as it was allocated, and zero times NaN is NaN.

use burn::tensor::Device;
use libtest_mimic::Failed;
use zoo_attention::{Mechanism, MechanismConfig};
use zoo_conformance::{Suite, Tensors, numbers, takes};
use zoo_oracle::{Inputs, Mask, Problem};

use crate::others;

/// What hidden rows hold.
const GARBAGE: [(&str, f32); 3] = [
    ("nan", f32::NAN),
    ("infinity", f32::INFINITY),
    ("minus-infinity", f32::NEG_INFINITY),
];

pub(crate) fn trials(suite: &mut Suite) {
    let both = [
        ("standard", Mechanism::Standard.into()),
        ("flash", Mechanism::Flash.into()),
    ];
    for (name, mechanism) in both.into_iter().chain(others::mechanisms()) {
        for (garbage_name, garbage) in GARBAGE {
            let trial = format!("{name}/hidden/{garbage_name}-in-padding");
            suite.add_training(trial, move |device| in_padding(&mechanism, device, garbage));
            let Some(problem) = taken(&mechanism, &Mask::Causal) else {
                continue;
            };
            let trial = format!("{name}/hidden/{garbage_name}-in-the-future");
            suite.add(trial, move |device| {
                in_the_future(&mechanism, &problem, device, garbage)
            });
        }
        let trial = format!("{name}/hidden/finite-inputs-may-be-assumed");
        suite.add_training(trial, move |device| assumed_finite(&mechanism, device));
    }
}

/// A problem over several tiles of every kernel with such a mask, and as many key and value
/// heads as the mechanism has; none if it does not take the mask.
fn taken(mechanism: &MechanismConfig, mask: &Mask) -> Option<Problem> {
    let problems = [4, 2, 1].map(|kv_heads| {
        Problem::new("hidden", [2, 4, SEQ, SEQ, 8])
            .with_kv_heads(kv_heads)
            .with_mask(mask.clone())
    });
    problems
        .into_iter()
        .find(|problem| takes(mechanism, problem))
}

const SEQ: usize = 150;

/// Keys of each example that are not padding.
const LENGTHS: [usize; 2] = [143, 70];

fn padded(mechanism: &MechanismConfig) -> Problem {
    let lengths = Mask::KeyLengths(LENGTHS.to_vec());
    let causal = Mask::All(vec![Mask::Causal, lengths.clone()]);
    let problem = taken(mechanism, &lengths).or_else(|| taken(mechanism, &causal));
    problem.expect("every mechanism takes key lengths")
}

/// The context, and the gradients by query, key and value.
fn results(mechanism: &MechanismConfig, tensors: &Tensors) -> [Vec<f32>; 4] {
    let (context, gradients) = tensors.train(mechanism);
    let [d_query, d_key, d_value] = tensors.gradients_by_inputs(&gradients);
    [numbers(context), d_query, d_key, d_value]
}

/// Whether two results are the same but for rounding. What holds garbage may be computed by
/// other kernels, which add in another order; NaN and infinity are far from everything.
pub(crate) fn same(a: &[f32], b: &[f32]) -> bool {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * (1.0 + a.abs());
    a.len() == b.len() && a.iter().zip(b).all(near)
}

/// With finite inputs, `assume_finite` changes nothing.
fn assumed_finite(mechanism: &MechanismConfig, device: &Device) -> Result<(), Failed> {
    let problem = padded(mechanism);
    let [checked, assumed] = [false, true].map(|assume_finite| {
        let mut tensors = Tensors::new(&problem, &problem.inputs(), device).require_grad();
        tensors.options.assume_finite = assume_finite;
        results(mechanism, &tensors)
    });
    let names = ["context", "d_query", "d_key", "d_value"];
    for (name, (checked, assumed)) in names.iter().zip(checked.iter().zip(&assumed)) {
        assert!(same(checked, assumed), "{name} changed");
    }
    Ok(())
}

fn in_padding(mechanism: &MechanismConfig, device: &Device, garbage: f32) -> Result<(), Failed> {
    let problem = padded(mechanism);
    let is_padding = |example: usize, key: usize| key >= LENGTHS[example];
    let [clean, dirty] = [0.0, garbage].map(|element| {
        let mut inputs = problem.inputs();
        fill(mechanism, &problem, &mut inputs, is_padding, element);
        let tensors = Tensors::new(&problem, &inputs, device).require_grad();
        results(mechanism, &tensors)
    });
    let widths = [
        problem.d_value,
        problem.d_head,
        problem.d_head,
        problem.d_value,
    ];
    for (at, name) in ["context", "d_query", "d_key", "d_value"]
        .iter()
        .enumerate()
    {
        let rows = clean[at]
            .chunks(widths[at])
            .zip(dirty[at].chunks(widths[at]));
        for (row, (clean, dirty)) in rows.enumerate() {
            assert!(
                same(clean, dirty),
                "{name} of row {row}: {clean:?} became {dirty:?}"
            );
        }
    }
    // Without this, two results of nothing would be equal as well.
    for (name, clean) in ["context", "d_value"].iter().zip([&clean[0], &clean[3]]) {
        assert!(!clean.iter().all(|x| *x == 0.0), "{name} is zero");
    }
    Ok(())
}

fn in_the_future(
    mechanism: &MechanismConfig,
    problem: &Problem,
    device: &Device,
    garbage: f32,
) -> Result<(), Failed> {
    /// Neither the first nor the last of a tile or of a chunk.
    const FIRST: usize = 137;
    let [clean, dirty] = [0.0, garbage].map(|element| {
        let mut inputs = problem.inputs();
        fill(
            mechanism,
            problem,
            &mut inputs,
            |_, key| key >= FIRST,
            element,
        );
        let context = Tensors::new(problem, &inputs, device).attend(mechanism);
        numbers(context)
    });
    let rows = clean
        .chunks(problem.d_value)
        .zip(dirty.chunks(problem.d_value));
    let mut shown = 0;
    for (row, (clean, dirty)) in rows.enumerate() {
        let sees = row % problem.seq_q >= FIRST;
        assert!(
            sees || same(clean, dirty),
            "row {row}: {clean:?} became {dirty:?}"
        );
        shown += usize::from(sees && dirty.iter().any(|x| !x.is_finite()));
    }
    // A query that sees NaN must show it. Those of `local-p` look where they are told to.
    let looks_anywhere = mechanism.mechanism() == Mechanism::LocalP;
    assert!(
        !garbage.is_nan() || shown != 0 || looks_anywhere,
        "no row that sees NaN shows it"
    );
    Ok(())
}

/// Writes an element into the keys and values of some positions; into the values alone where
/// the queries are the keys, since a query is not hidden.
fn fill(
    mechanism: &MechanismConfig,
    problem: &Problem,
    inputs: &mut Inputs,
    is_filled: impl Fn(usize, usize) -> bool,
    element: f32,
) {
    let mut tensors = vec![(&mut inputs.value, problem.d_value)];
    if mechanism.mechanism() != Mechanism::Lsh {
        tensors.push((&mut inputs.key, problem.d_head));
    }
    for (rows, width) in tensors {
        let of_example = rows.len() / problem.batch;
        for (row, elements) in rows.chunks_mut(width).enumerate() {
            let example = row * width / of_example;
            if is_filled(example, row % problem.seq_k) {
                elements.fill(element);
            }
        }
    }
}
