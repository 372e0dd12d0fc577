//! Helpers of the test programs: the list of trials, and assertions.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{Device, Distribution, Tensor};
use libtest_mimic::Trial;
use zoo_oracle::{Mismatch, Precision, Tolerance};

use crate::tensors::{RESULT_NAMES, to_vec};

/// A test on a device, which panics if it fails.
pub type Test = fn(&Device);

/// The trials of a test program, all on one device.
#[derive(Debug)]
pub struct Suite {
    device: Device,
    /// Trials added so far.
    pub trials: Vec<Trial>,
}

impl Suite {
    /// An empty suite.
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

    /// Adds a table of tests, whose names get a prefix.
    pub fn add_table(&mut self, prefix: &str, tests: &[(&str, Test)]) {
        for (name, test) in tests {
            self.add(format!("{prefix}{name}"), *test);
        }
    }
}

/// Unwraps a result. Panics with the error as it is displayed.
#[track_caller]
pub fn must<T, E: Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// The message of the panic of a call. Panics if the call does not panic.
#[track_caller]
pub fn panic_message<T>(call: impl FnOnce() -> T) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else {
        panic!("the call did not panic");
    };
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    message.unwrap_or_default()
}

/// Checks that a call panics with this message.
#[track_caller]
pub fn assert_panics_with<T>(call: impl FnOnce() -> T, message: &str) {
    assert_eq!(panic_message(call), message);
}

/// Checks that a call panics with a message that contains `part`.
#[track_caller]
pub fn assert_panics_containing<T>(call: impl FnOnce() -> T, part: &str) {
    let message = panic_message(call);
    assert!(message.contains(part), "{message:?}, expected {part:?}");
}

/// Checks that two results are equal within the tolerance of gradients, since both are rounded.
#[track_caller]
pub fn assert_close<const D: usize>(got: Tensor<D>, want: Tensor<D>) {
    assert_close_as("result", got, want);
}

/// [`assert_close`] with a name for the error message.
#[track_caller]
pub fn assert_close_as<const D: usize>(name: &str, got: Tensor<D>, want: Tensor<D>) {
    must(compare(name, got, want));
}

/// Whether two results are equal within the tolerance of [`assert_close`].
pub fn is_close<const D: usize>(got: Tensor<D>, want: Tensor<D>) -> bool {
    compare("result", got, want).is_ok()
}

fn compare<const D: usize>(name: &str, got: Tensor<D>, want: Tensor<D>) -> Result<f64, Mismatch> {
    let tolerance = Precision::F32.backward(0.0);
    tolerance.compare(name, &to_vec(got), &to_vec(want))
}

/// Checks that two [results](crate::Tensors::results) are equal within a tolerance.
#[track_caller]
pub fn assert_results_close(tolerance: Tolerance, got: [Vec<f32>; 4], want: [Vec<f32>; 4]) {
    for ((name, got), want) in RESULT_NAMES.iter().zip(got).zip(want) {
        must(tolerance.compare(name, &got, &want));
    }
}

/// A tensor of standard normal values from the device's random generator.
pub fn random_normal<const D: usize>(dims: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(dims, Distribution::Normal(0.0, 1.0), device)
}
