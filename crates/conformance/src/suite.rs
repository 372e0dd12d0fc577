//! Helpers of the test programs: the list of trials, and assertions.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{Device, Distribution, Tensor};
use libtest_mimic::Trial;
use zoo_attention::MultiHeadAttention;
use zoo_kernels::causal_convolution;
use zoo_kernels::matmul::matmul;
use zoo_oracle::{Mismatch, Tolerance};

use crate::compare::f32_precision;
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

    /// Adds a trial for each case. Its name is the prefix and that of the case.
    pub fn add_cases<T: Send + 'static>(
        &mut self,
        prefix: &str,
        cases: impl IntoIterator<Item = (impl Display, T)>,
        test: impl Fn(T, &Device) + Copy + Send + 'static,
    ) {
        for (name, case) in cases {
            self.add(format!("{prefix}{name}"), move |device| test(case, device));
        }
    }

    /// [`add_cases`](Self::add_cases) for cases that have a name themselves.
    pub fn add_each<T: Display + Copy + Send + 'static>(
        &mut self,
        prefix: &str,
        cases: impl IntoIterator<Item = T>,
        test: impl Fn(T, &Device) + Copy + Send + 'static,
    ) {
        let named = cases.into_iter().map(|case| (case, case));
        self.add_cases(prefix, named, test);
    }

    /// Adds a table of tests, whose names get a prefix.
    pub fn add_table(&mut self, prefix: &str, tests: &[(&str, Test)]) {
        self.add_cases(prefix, tests.iter().copied(), |test, device| test(device));
    }

    /// [`add_table`](Self::add_table) on the device with autodiff.
    pub fn add_training_table(&mut self, prefix: &str, tests: &[(&str, Test)]) {
        self.add_cases(prefix, tests.iter().copied(), |test, device| {
            test(&device.clone().autodiff());
        });
    }
}

/// Unwraps a result. Panics with the error as it is displayed.
#[track_caller]
pub fn must<T, E: Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// Checks that a result is an error with this message.
#[track_caller]
pub fn assert_error<T, E: Display>(result: Result<T, E>, message: &str) {
    let error = result.err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some(message));
}

/// The message of the panic of a call. Panics if the call does not panic.
#[track_caller]
pub fn panic_message<T>(call: impl FnOnce() -> T) -> String {
    caught_message(call).expect("the call did not panic")
}

fn caught_message<T>(call: impl FnOnce() -> T) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(call)).err()?;
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    Some(message.unwrap_or_default())
}

/// Checks that a call panics with this message.
#[track_caller]
pub fn assert_panics_with<T>(call: impl FnOnce() -> T, message: &str) {
    assert_eq!(caught_message(call).as_deref(), Some(message));
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
    let tolerance = f32_precision(&got.device()).backward(0.0);
    tolerance.compare(name, &to_vec(got), &to_vec(want))
}

/// Checks that two [results](crate::Tensors::results) are equal within a tolerance.
#[track_caller]
pub fn assert_results_close(tolerance: Tolerance, got: [Vec<f32>; 4], want: [Vec<f32>; 4]) {
    for ((name, got), want) in RESULT_NAMES.iter().zip(got).zip(want) {
        must(tolerance.compare(name, &got, &want));
    }
}

/// `[batch, seq, heads * d_head]` as `[batch, heads, seq, d_head]`.
pub fn split_heads(x: Tensor<3>, heads: usize) -> Tensor<4> {
    let [batch, seq, width] = x.dims();
    let heads = x.reshape([batch, seq, heads, width / heads]);
    heads.swap_dims(1, 2)
}

/// The inverse of [`split_heads`].
pub fn merge_heads(x: Tensor<4>) -> Tensor<3> {
    let [batch, heads, seq, d_head] = x.dims();
    x.swap_dims(1, 2).reshape([batch, seq, heads * d_head])
}

/// The output of a layer for its weights `[batch, heads, seq_q, seq_k]` and the input
/// `[batch, seq_k, d_value_input]` of its values.
pub fn apply_weights(
    attention: &MultiHeadAttention,
    weights: Tensor<4>,
    input: Tensor<3>,
) -> Tensor<3> {
    let [batch, heads, seq_q, seq_k] = weights.dims();
    let input = match (&attention.latent, &attention.key) {
        // The values of `mla` are projections of normalised latent vectors.
        (Some(latent), Some(key)) => {
            let [size] = latent.norm.gamma.dims();
            let rows = key.forward(input);
            latent.norm.forward(rows.slice_dim(2, 0..size))
        }
        _ => input,
    };
    let values = attention.value.forward(input);
    let values = match &attention.params.short_conv {
        Some(convolution) => causal_convolution(values, convolution.value.val()),
        None => values,
    };
    let d_head = attention.output.weight.dims()[0] / heads;
    let kv_heads = values.dims()[2] / d_head;
    // All query heads of a KV head in one matrix.
    let shared = weights.reshape([batch, kv_heads, heads / kv_heads * seq_q, seq_k]);
    let context = matmul(shared, split_heads(values, kv_heads));
    let context = context.reshape([batch, heads, seq_q, d_head]);
    attention.output.forward(merge_heads(context))
}

/// A tensor of standard normal values from the device's random generator.
pub fn random_normal<const D: usize>(dims: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(dims, Distribution::Normal(0.0, 1.0), device)
}
