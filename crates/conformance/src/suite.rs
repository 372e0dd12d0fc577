//! What the test programs of this crate share: their list of trials, and how they compare.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{Device, Tensor};
use libtest_mimic::{Failed, Trial};
use zoo_oracle::Precision;

use crate::tensors::numbers;

/// A test on a device.
pub type Test = fn(&Device) -> Result<(), Failed>;

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
    pub fn add(
        &mut self,
        name: impl Into<String>,
        test: impl FnOnce(&Device) -> Result<(), Failed> + Send + 'static,
    ) {
        let device = self.device.clone();
        self.trials.push(Trial::test(name, move || test(&device)));
    }

    /// Adds a trial on the device with autodiff.
    pub fn add_training(
        &mut self,
        name: impl Into<String>,
        test: impl FnOnce(&Device) -> Result<(), Failed> + Send + 'static,
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

/// Checks that a call panics with this message.
///
/// # Errors
///
/// What it did instead.
pub fn is_refused<T>(call: impl FnOnce() -> T, message: &str) -> Result<(), Failed> {
    match panic_message(call)? {
        said if said == message => Ok(()),
        said => Err(format!("it said {said:?} instead of {message:?}").into()),
    }
}

/// Checks that a call panics with a message that contains `part`.
///
/// # Errors
///
/// What it did instead.
pub fn is_refused_with<T>(call: impl FnOnce() -> T, part: &str) -> Result<(), Failed> {
    match panic_message(call)? {
        said if said.contains(part) => Ok(()),
        said => Err(format!("it said {said:?} without {part:?}").into()),
    }
}

fn panic_message<T>(call: impl FnOnce() -> T) -> Result<String, Failed> {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else {
        return Err("it was not refused".into());
    };
    let said = panic.downcast_ref::<String>().cloned();
    let said = said.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    Ok(said.unwrap_or_default())
}

/// Checks that two ways of computing agree. Both are rounded: what the gradients of a single
/// attention may be off by.
///
/// # Errors
///
/// The worst element, if it is further off.
pub fn same<const D: usize>(got: Tensor<D>, want: Tensor<D>) -> Result<(), Failed> {
    let tolerance = Precision::F32.backward(0.0);
    tolerance.compare("result", &numbers(got), &numbers(want))?;
    Ok(())
}
