//! What is measured: a matmul for scale, then attention at each length.

use anyhow::Result;
use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::Mechanism;
use zoo_conformance::{Errors, Tensors, check_forward, check_gradients};
use zoo_testkit::{Mismatch, Problem};

use crate::timing::Timing;

/// One row of the table to be.
pub(crate) enum Case {
    /// Square matrices of this size: the rate to compare the others with.
    Matmul(usize),
    /// Attention, forward only.
    Forward(Mechanism, Problem),
    /// Attention, forward and backward.
    Train(Mechanism, Problem),
}

/// One row of the table.
pub(crate) enum Measured {
    /// With its time.
    Right(Vec<String>),
    /// A wrong result has none.
    Wrong(Vec<String>),
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
    pub(crate) fn measure(&self, device: &Device) -> Result<Measured> {
        let error = match self.check(device) {
            None => "-".to_owned(),
            Some(Ok(errors)) => format!("{:.1e}", errors.context.max(errors.gradients)),
            Some(Err(mismatch)) => {
                eprintln!("{mismatch}");
                let error = format!("WRONG {:.1e}", mismatch.error);
                let [none, mut row] = [vec!["-".to_owned(); 4], self.head()];
                row.extend(none);
                row.push(error);
                return Ok(Measured::Wrong(row));
            }
        };
        let timing = self.time(device)?;
        let ms = |share| format!("{:.2}", timing.quantile(share).as_secs_f64() * 1e3);
        let rate = self.work() / timing.median().as_secs_f64() / 1e9;
        let mut row = self.head();
        row.extend([ms(0.5), ms(0.1), ms(0.9), format!("{rate:.0}"), error]);
        Ok(Measured::Right(row))
    }

    /// The first cells of its row: what, which pass, how long.
    fn head(&self) -> Vec<String> {
        let (name, pass, n) = match self {
            Self::Matmul(n) => ("matmul", "forward", *n),
            Self::Forward(mechanism, problem) => (mechanism.word(), "forward", problem.seq_q),
            Self::Train(mechanism, problem) => (mechanism.word(), "train", problem.seq_q),
        };
        vec![name.to_owned(), pass.to_owned(), n.to_string()]
    }

    fn check(&self, device: &Device) -> Option<Result<Errors, Mismatch>> {
        match self {
            Self::Matmul(_) => None,
            Self::Forward(mechanism, problem) => Some(check_forward(*mechanism, problem, device)),
            Self::Train(mechanism, problem) => Some(check_gradients(*mechanism, problem, device)),
        }
    }

    fn time(&self, device: &Device) -> Result<Timing> {
        match self {
            Self::Matmul(n) => {
                let draw = || Tensor::<2>::random([*n, *n], Distribution::Default, device);
                let (a, b) = (draw(), draw());
                Timing::of(device, || drop(a.clone().matmul(b.clone())))
            }
            Self::Forward(mechanism, problem) => {
                let tensors = Tensors::new(problem, &problem.inputs(), device);
                Timing::of(device, || drop(tensors.attend(*mechanism)))
            }
            Self::Train(mechanism, problem) => {
                let device = device.clone().autodiff();
                let tensors = Tensors::new(problem, &problem.inputs(), &device).require_grad();
                Timing::of(&device, || drop(tensors.train(*mechanism)))
            }
        }
    }

    /// Floating-point operations of its matmuls.
    fn work(&self) -> f64 {
        let forward = |problem: &Problem| {
            let pairs = problem.batch * problem.heads * problem.seq_q * problem.seq_k;
            2.0 * pairs as f64 * (problem.d_head + problem.d_value) as f64
        };
        match self {
            Self::Matmul(n) => 2.0 * (*n as f64).powi(3),
            Self::Forward(_, problem) => forward(problem),
            // The backward pass does five matmuls where the forward pass does two.
            Self::Train(_, problem) => 3.5 * forward(problem),
        }
    }
}
