//! What the test programs of this crate share: their list of trials, and how they compare.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{Device, Distribution, Tensor};
use libtest_mimic::Trial;
use zoo_oracle::{Mismatch, Precision, Tolerance};

use crate::tensors::{RESULTS, numbers};

/// A test on a device. It fails by a panic.
pub type Test = fn(&Device);

/// The trials of a test program, all on one device.
#[derive(Debug)]
pub struct Suite {
    device: Device,
    /// The trials so far.
    pub trials: Vec<Trial>,
}

impl Suite {
    /// A suite without trials.
    pub fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            trials: Vec::new(),
        }
    }

    /// Adds a trial on the device.
    pub fn add(&mut self, name: impl Into<String>, test: impl FnOnce(&Device) + Send + 'static) {
        let device = self.device.clone();
        self.trials.push(Trial::test(name, move || {
            test(&device);
            Ok(())
        }));
    }

    /// Adds a trial on the device with autodiff.
    pub fn add_training(
        &mut self,
        name: impl Into<String>,
        test: impl FnOnce(&Device) + Send + 'static,
    ) {
        self.add(name, move |device| test(&device.clone().autodiff()));
    }

    /// Adds a table of tests by their names after a prefix.
    pub fn add_table(&mut self, prefix: &str, tests: &[(&str, Test)]) {
        for (name, test) in tests {
            self.add(format!("{prefix}{name}"), *test);
        }
    }
}

/// What must have come out of a call. Panics with the error otherwise.
#[track_caller]
pub fn must<T, E: Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// The message of the panic by which a call is refused. Panics if it is not.
#[track_caller]
pub fn refusal<T>(call: impl FnOnce() -> T) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else {
        panic!("it was not refused");
    };
    let said = panic.downcast_ref::<String>().cloned();
    let said = said.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    said.unwrap_or_default()
}

/// Checks that a call panics with this message.
#[track_caller]
pub fn is_refused<T>(call: impl FnOnce() -> T, message: &str) {
    assert_eq!(refusal(call), message);
}

/// Checks that a call panics with a message that contains `part`.
#[track_caller]
pub fn is_refused_with<T>(call: impl FnOnce() -> T, part: &str) {
    let said = refusal(call);
    assert!(said.contains(part), "it said {said:?} without {part:?}");
}

/// Checks that two ways of computing agree. Both are rounded: what the gradients of a single
/// attention may be off by.
#[track_caller]
pub fn same<const D: usize>(got: Tensor<D>, want: Tensor<D>) {
    same_as("result", got, want);
}

/// [`same`] with a name for the message of a failure.
#[track_caller]
pub fn same_as<const D: usize>(what: &str, got: Tensor<D>, want: Tensor<D>) {
    must(compare(what, got, want));
}

/// Whether two ways of computing agree as [`same`] has it.
pub fn is_same<const D: usize>(got: Tensor<D>, want: Tensor<D>) -> bool {
    compare("result", got, want).is_ok()
}

fn compare<const D: usize>(what: &str, got: Tensor<D>, want: Tensor<D>) -> Result<f64, Mismatch> {
    let tolerance = Precision::F32.backward(0.0);
    tolerance.compare(what, &numbers(got), &numbers(want))
}

/// Checks that two ways of computing the results of [`Tensors`](crate::Tensors) agree.
#[track_caller]
pub fn same_results(tolerance: Tolerance, got: [Vec<f32>; 4], want: [Vec<f32>; 4]) {
    for ((name, got), want) in RESULTS.iter().zip(got).zip(want) {
        must(tolerance.compare(name, &got, &want));
    }
}

/// A tensor of standard normal numbers, drawn by the device.
pub fn normal<const D: usize>(dims: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(dims, Distribution::Normal(0.0, 1.0), device)
}
