//! Independence of results and gradients from masked keys and values, even NaN and infinity.
//!
//! Padding is often uninitialised memory, and zero times NaN is NaN.

use crate::prelude::*;
use crate::{half_types, other_mechanisms};

const NON_FINITE: [(&str, f32); 3] = [
    ("nan", f32::NAN),
    ("infinity", f32::INFINITY),
    ("minus-infinity", f32::NEG_INFINITY),
];

pub(crate) fn trials(suite: &mut Suite, opened: &OpenDevice) {
    for (name, mechanism) in other_mechanisms::with_softmax() {
        for (value_name, value) in NON_FINITE {
            let trial = format!("{name}/masked/{value_name}-in-padding");
            suite.add_training(trial, move |device| {
                check_padding(&mechanism, device, value, DType::F32)
            });
            let Some(problem) = accepted_problem(&mechanism, &Mask::Causal, DType::F32) else {
                continue;
            };
            let trial = format!("{name}/masked/{value_name}-in-future-keys");
            suite.add(trial, move |device| {
                check_future_keys(&mechanism, &problem, device, value, DType::F32);
            });
        }
        let trial = format!("{name}/masked/assume-finite-has-no-effect");
        suite.add_training(trial, move |device| check_assume_finite(&mechanism, device));
    }
    let flash = MechanismConfig::from(Mechanism::Flash);
    for (dtype_name, dtype) in half_types(opened) {
        let problem = accepted_problem(&flash, &Mask::Causal, dtype).expect("a causal mask");
        for (value_name, value) in NON_FINITE {
            let trial = format!("flash/masked/{value_name}-in-padding/{dtype_name}");
            suite.add_training(trial, move |device| {
                check_padding(&flash, device, value, dtype)
            });
            let trial = format!("flash/masked/{value_name}-in-future-keys/{dtype_name}");
            let problem = problem.clone();
            suite.add(trial, move |device| {
                check_future_keys(&flash, &problem, device, value, dtype);
            });
        }
    }
}

/// A problem over several tiles of every kernel with this mask and the mechanism's number of key
/// and value heads; none if the mechanism does not accept the mask.
fn accepted_problem(mechanism: &MechanismConfig, mask: &Mask, dtype: DType) -> Option<Problem> {
    // The kernels for half precision need heads of whole fragments.
    let d_head = if dtype == DType::F32 { 8 } else { 32 };
    let problem = Problem::new("hidden", [2, 4, SEQ, SEQ, d_head]).with_mask(mask.clone());
    other_mechanisms::with_heads_of(mechanism, problem)
}

const SEQ: usize = 150;

/// Number of keys of each example without padding.
const LENGTHS: [usize; 2] = [143, 70];

fn padded(mechanism: &MechanismConfig, dtype: DType) -> Problem {
    let lengths = Mask::KeyLengths(LENGTHS.to_vec());
    let causal = Mask::All(vec![Mask::Causal, lengths.clone()]);
    accepted_problem(mechanism, &lengths, dtype)
        .or_else(|| accepted_problem(mechanism, &causal, dtype))
        .expect("every mechanism accepts key lengths")
}

/// Whether two results are finite and equal up to rounding. Inputs with non-finite values may use
/// other kernels, which sum in another order.
pub(crate) fn is_close_slice(a: &[f32], b: &[f32]) -> bool {
    let is_close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * (1.0 + a.abs());
    a.len() == b.len() && a.iter().zip(b).all(is_close)
}

/// [`is_close_slice`], in half precision with its rounding.
fn is_close_in(dtype: DType, a: &[f32], b: &[f32]) -> bool {
    if dtype == DType::F32 {
        return is_close_slice(a, b);
    }
    let is_close = |(a, b): (&f32, &f32)| (a - b).abs() <= 0.02 * (1.0 + a.abs());
    a.len() == b.len() && a.iter().zip(b).all(is_close)
}

fn check_assume_finite(mechanism: &MechanismConfig, device: &Device) {
    let problem = padded(mechanism, DType::F32);
    let [default, assumed] = [false, true].map(|assume_finite| {
        let mut tensors = Tensors::from_problem(&problem, device).require_grad();
        tensors.options.assume_finite = assume_finite;
        tensors.results(tensors.attend(mechanism))
    });
    for (name, (default, assumed)) in RESULT_NAMES.iter().zip(default.iter().zip(&assumed)) {
        assert!(is_close_slice(default, assumed), "{name} changed");
    }
}

fn check_padding(mechanism: &MechanismConfig, device: &Device, value: f32, dtype: DType) {
    let problem = padded(mechanism, dtype);
    let is_padding = |example: usize, key: usize| key >= LENGTHS[example];
    let [clean, dirty] = [0.0, value].map(|value| {
        let tensors = filled(mechanism, &problem, is_padding, value, device);
        let tensors = tensors.cast(dtype).require_grad();
        tensors.results(tensors.attend(mechanism))
    });
    let (d_head, d_value) = (problem.d_head, problem.d_value);
    for (i, width) in [d_value, d_head, d_head, d_value].into_iter().enumerate() {
        let rows = clean[i].chunks(width).zip(dirty[i].chunks(width));
        for (row, (clean, dirty)) in rows.enumerate() {
            let (name, is_close) = (RESULT_NAMES[i], is_close_in(dtype, clean, dirty));
            assert!(is_close, "{name} {row}: {clean:?} became {dirty:?}");
        }
    }
    // Two results of zeros would be equal as well.
    for i in [0, 3] {
        let is_zero = clean[i].iter().all(|x| *x == 0.0);
        assert!(!is_zero, "{} is zero", RESULT_NAMES[i]);
    }
}

fn check_future_keys(
    mechanism: &MechanismConfig,
    problem: &Problem,
    device: &Device,
    value: f32,
    dtype: DType,
) {
    /// Neither the first nor the last key of a tile or chunk.
    const FIRST: usize = 137;
    let is_future = |_, key| key >= FIRST;
    let [clean, dirty] = [0.0, value].map(|value| {
        let tensors = filled(mechanism, problem, is_future, value, device).cast(dtype);
        to_vec(tensors.attend(mechanism))
    });
    let width = problem.d_value;
    let mut affected = 0;
    for (row, (clean, dirty)) in clean.chunks(width).zip(dirty.chunks(width)).enumerate() {
        let may_attend = row % problem.seq_q >= FIRST;
        let is_correct = may_attend || is_close_in(dtype, clean, dirty);
        assert!(is_correct, "row {row}: {clean:?} became {dirty:?}");
        affected += usize::from(may_attend && dirty.iter().any(|x| !x.is_finite()));
    }
    // Visible NaN propagates. The windows of `local-p` may not contain it.
    let is_local_p = mechanism.mechanism() == Mechanism::LocalP;
    let propagates = !value.is_nan() || affected != 0 || is_local_p;
    assert!(propagates, "visible NaN affects no row");
}

/// Tensors of a problem with this value in the keys and values of some positions; only in values if
/// the keys are the queries, which are not masked.
pub(crate) fn filled(
    mechanism: &MechanismConfig,
    problem: &Problem,
    is_filled: impl Fn(usize, usize) -> bool,
    value: f32,
    device: &Device,
) -> Tensors {
    let mut inputs = problem.inputs();
    let mut tensors = vec![(&mut inputs.value, problem.d_value)];
    if mechanism.mechanism() != Mechanism::Lsh {
        tensors.push((&mut inputs.key, problem.d_head));
    }
    for (rows, width) in tensors {
        let example_len = rows.len() / problem.batch;
        for (row, values) in rows.chunks_mut(width).enumerate() {
            let example = row * width / example_len;
            if is_filled(example, row % problem.seq_k) {
                values.fill(value);
            }
        }
    }
    Tensors::new(problem, &inputs, device)
}
