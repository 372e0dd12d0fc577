//! What is measured: a matmul for scale, then attention at each length.

use anyhow::Result;
use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::Mechanism;
use zoo_conformance::{Tensors, check_forward, check_gradients};
use zoo_testkit::Problem;

use crate::timing::Timing;

/// One row of the table.
pub(crate) enum Case {
    /// Square matrices of this size: the rate to compare the others with.
    Matmul(usize),
    /// Attention, forward only.
    Forward(Mechanism, Problem),
    /// Attention, forward and backward.
    Train(Mechanism, Problem),
}

/// The matmul, then every mechanism at every length.
pub(crate) fn cases(lengths: &[usize]) -> Vec<Case> {
    let mut cases = vec![Case::Matmul(1024)];
    for &n in lengths {
        for mechanism in Mechanism::ALL {
            let problem = Problem::new("bench", [1, 8, n, n, 64]);
            cases.push(Case::Forward(mechanism, problem.clone()));
            cases.push(Case::Train(mechanism, problem));
        }
    }
    cases
}

impl Case {
    /// Checks the case against the oracle, times it, and returns its row.
    pub(crate) fn measure(&self, device: &Device) -> Result<Vec<String>> {
        match self {
            Self::Matmul(n) => {
                let draw = || Tensor::<2>::random([*n, *n], Distribution::Default, device);
                let (a, b) = (draw(), draw());
                let timing = Timing::of(device, || drop(a.clone().matmul(b.clone())))?;
                let work = 2.0 * (*n as f64).powi(3);
                Ok(row("matmul", "forward", *n, &timing, work, "-".to_owned()))
            }
            Self::Forward(mechanism, problem) => {
                let error = match check_forward(*mechanism, problem, device) {
                    Ok(errors) => errors.context,
                    Err(mismatch) => return Ok(wrong(*mechanism, "forward", problem, &mismatch)),
                };
                let tensors = Tensors::new(problem, &problem.inputs(), device);
                let timing = Timing::of(device, || drop(attend(*mechanism, &tensors)))?;
                let error = format!("{error:.1e}");
                let work = work(problem);
                Ok(row(
                    mechanism.word(),
                    "forward",
                    problem.seq_q,
                    &timing,
                    work,
                    error,
                ))
            }
            Self::Train(mechanism, problem) => {
                let error = match check_gradients(*mechanism, problem, device) {
                    Ok(errors) => errors.context.max(errors.gradients),
                    Err(mismatch) => return Ok(wrong(*mechanism, "train", problem, &mismatch)),
                };
                let device = device.clone().autodiff();
                let mut tensors = Tensors::new(problem, &problem.inputs(), &device);
                for tensor in [&mut tensors.query, &mut tensors.key, &mut tensors.value] {
                    *tensor = tensor.clone().require_grad();
                }
                let timing = Timing::of(&device, || {
                    let context = attend(*mechanism, &tensors);
                    drop((context * tensors.upstream.clone()).sum().backward());
                })?;
                let error = format!("{error:.1e}");
                // The backward pass does five matmuls where the forward pass does two.
                let work = 3.5 * work(problem);
                Ok(row(
                    mechanism.word(),
                    "train",
                    problem.seq_q,
                    &timing,
                    work,
                    error,
                ))
            }
        }
    }
}

fn attend(mechanism: Mechanism, tensors: &Tensors) -> Tensor<4> {
    let Tensors {
        query,
        key,
        value,
        options,
        ..
    } = tensors.clone();
    mechanism.attend(query, key, value, &options)
}

/// Floating-point operations of the two matmuls of a forward pass.
fn work(problem: &Problem) -> f64 {
    let pairs = problem.batch * problem.heads * problem.seq_q * problem.seq_k;
    2.0 * pairs as f64 * (problem.d_head + problem.d_value) as f64
}

fn row(name: &str, pass: &str, n: usize, timing: &Timing, work: f64, error: String) -> Vec<String> {
    let ms = |share| format!("{:.2}", timing.quantile(share).as_secs_f64() * 1e3);
    vec![
        name.to_owned(),
        pass.to_owned(),
        n.to_string(),
        ms(0.5),
        ms(0.1),
        ms(0.9),
        format!("{:.0}", work / timing.median().as_secs_f64() / 1e9),
        error,
    ]
}

/// A wrong result has no time.
fn wrong(
    mechanism: Mechanism,
    pass: &str,
    problem: &Problem,
    mismatch: &zoo_testkit::Mismatch,
) -> Vec<String> {
    eprintln!("{mechanism} {pass} at n = {}: {mismatch}", problem.seq_q);
    let error = format!("WRONG {:.1e}", mismatch.error);
    let [none, n] = ["-".to_owned(), problem.seq_q.to_string()];
    vec![
        mechanism.to_string(),
        pass.to_owned(),
        n,
        none.clone(),
        none.clone(),
        none.clone(),
        none,
        error,
    ]
}
