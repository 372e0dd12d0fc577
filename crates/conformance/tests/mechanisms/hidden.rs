//! Keys and values that a mask hides may hold anything: neither results nor gradients depend
//! on it, not even where it is NaN or infinite.
//!
//! Padding is often left as it was allocated, and zero times NaN is NaN.

use burn::tensor::Device;
use zoo_attention::{Mechanism, MechanismConfig};
use zoo_conformance::*;
use zoo_oracle::{Inputs, Mask, Problem};

use crate::others;

const GARBAGE: [(&str, f32); 3] = [
    ("nan", f32::NAN),
    ("infinity", f32::INFINITY),
    ("minus-infinity", f32::NEG_INFINITY),
];

pub(crate) fn trials(suite: &mut Suite) {
    for (name, mechanism) in others::with_softmax() {
        for (garbage_name, garbage) in GARBAGE {
            let trial = format!("{name}/hidden/{garbage_name}-in-padding");
            suite.add_training(trial, move |device| in_padding(&mechanism, device, garbage));
            let Some(problem) = taken(&mechanism, &Mask::Causal) else {
                continue;
            };
            let trial = format!("{name}/hidden/{garbage_name}-in-the-future");
            suite.add(trial, move |device| {
                in_the_future(&mechanism, &problem, device, garbage);
            });
        }
        let trial = format!("{name}/hidden/finite-inputs-may-be-assumed");
        suite.add_training(trial, move |device| assumed_finite(&mechanism, device));
    }
}

/// A problem over several tiles of every kernel with such a mask, and as many key and value
/// heads as the mechanism has; none if it does not take the mask.
fn taken(mechanism: &MechanismConfig, mask: &Mask) -> Option<Problem> {
    let problem = Problem::new("hidden", [2, 4, SEQ, SEQ, 8]).with_mask(mask.clone());
    others::with_heads_of(mechanism, problem)
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

/// Whether two results are the same but for rounding. What holds garbage may be computed by
/// other kernels, which add in another order; NaN and infinity are far from everything.
pub(crate) fn same(a: &[f32], b: &[f32]) -> bool {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * (1.0 + a.abs());
    a.len() == b.len() && a.iter().zip(b).all(near)
}

/// With finite inputs, `assume_finite` changes nothing.
fn assumed_finite(mechanism: &MechanismConfig, device: &Device) {
    let problem = padded(mechanism);
    let [checked, assumed] = [false, true].map(|assume_finite| {
        let mut tensors = Tensors::of(&problem, device).require_grad();
        tensors.options.assume_finite = assume_finite;
        tensors.results(tensors.attend(mechanism))
    });
    for (name, (checked, assumed)) in RESULTS.iter().zip(checked.iter().zip(&assumed)) {
        assert!(same(checked, assumed), "{name} changed");
    }
}

fn in_padding(mechanism: &MechanismConfig, device: &Device, garbage: f32) {
    let problem = padded(mechanism);
    let is_padding = |example: usize, key: usize| key >= LENGTHS[example];
    let [clean, dirty] = [0.0, garbage].map(|element| {
        let mut inputs = problem.inputs();
        fill(mechanism, &problem, &mut inputs, is_padding, element);
        let tensors = Tensors::new(&problem, &inputs, device).require_grad();
        tensors.results(tensors.attend(mechanism))
    });
    let (d_head, d_value) = (problem.d_head, problem.d_value);
    for (at, width) in [d_value, d_head, d_head, d_value].into_iter().enumerate() {
        let rows = clean[at].chunks(width).zip(dirty[at].chunks(width));
        for (row, (clean, dirty)) in rows.enumerate() {
            let name = RESULTS[at];
            assert!(
                same(clean, dirty),
                "{name} of row {row}: {clean:?} became {dirty:?}"
            );
        }
    }
    // Without this, two results of nothing would be equal as well.
    for at in [0, 3] {
        let is_zero = clean[at].iter().all(|x| *x == 0.0);
        assert!(!is_zero, "{} is zero", RESULTS[at]);
    }
}

fn in_the_future(mechanism: &MechanismConfig, problem: &Problem, device: &Device, garbage: f32) {
    /// Neither the first nor the last of a tile or of a chunk.
    const FIRST: usize = 137;
    let [clean, dirty] = [0.0, garbage].map(|element| {
        let mut inputs = problem.inputs();
        let is_future = |_, key| key >= FIRST;
        fill(mechanism, problem, &mut inputs, is_future, element);
        numbers(Tensors::new(problem, &inputs, device).attend(mechanism))
    });
    let width = problem.d_value;
    let mut shown = 0;
    for (row, (clean, dirty)) in clean.chunks(width).zip(dirty.chunks(width)).enumerate() {
        let sees = row % problem.seq_q >= FIRST;
        let is_right = sees || same(clean, dirty);
        assert!(is_right, "row {row}: {clean:?} became {dirty:?}");
        shown += usize::from(sees && dirty.iter().any(|x| !x.is_finite()));
    }
    // A query that sees NaN must show it. Those of `local-p` look where they are told to.
    let looks_anywhere = mechanism.mechanism() == Mechanism::LocalP;
    let is_shown = !garbage.is_nan() || shown != 0 || looks_anywhere;
    assert!(is_shown, "no row that sees NaN shows it");
}

/// Writes an element into the keys and values of some positions; into the values alone where
/// the queries are the keys, since a query is not hidden.
pub(crate) fn fill(
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
