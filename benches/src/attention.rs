//! Benchmarks of an attention mechanism, and of a matmul for comparison.

use std::any::Any;
use std::ops::Range;

use anyhow::Result;
use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::mechanisms::selected_kernel_of;
use zoo_attention::{DecodeCache, MechanismConfig};
use zoo_bench_core::case::{Fault, MATMUL_SIZE, Pass, queries_to_check};
use zoo_bench_core::record::{Measured, Outcome, Peak, Report};
use zoo_conformance::{Errors, Tensors, compare_context, compare_forward, compare_gradients};
use zoo_oracle::{Inputs, Mask, Mismatch, Problem};
use zoo_spec::Mechanism;

use crate::Setting;
use crate::timing::{peak_memory, samples, sync};

/// A repeatable computation with its inputs on the device. The return value holds the results.
pub(crate) type Workload = Box<dyn FnMut() -> Box<dyn Any>>;

/// Samples and peak memory of a workload including its inputs. Memory is measured first, in a
/// process that has only run `warm_up`, which starts threads and initialises backend and kernels.
pub(crate) fn measure(
    mut warm_up: Workload,
    make: impl FnOnce() -> Workload,
    setting: Setting<'_>,
) -> Result<(Vec<f64>, Option<Peak>)> {
    let device = &setting.device();
    warm_up();
    drop(warm_up);
    sync(device)?;
    let (mut run, peak) = peak_memory(setting.opened, device, || Ok(make()), |run| Ok(run()), 1)?;
    Ok((samples(device, setting.sampling, || Ok(run()))?, peak))
}

/// Measures a matmul. The result is not checked.
pub(crate) fn measure_matmul(setting: Setting<'_>) -> Result<Report> {
    let work = |size: usize| -> Workload {
        let device = &setting.opened.device;
        let random = || Tensor::<2>::random([size, size], Distribution::Default, device);
        let (left, right) = (random(), random());
        Box::new(move || Box::new(left.clone().matmul(right.clone())))
    };
    let (seconds, peak) = measure(work(8), || work(MATMUL_SIZE), setting)?;
    Ok(measured(seconds, peak, None).into())
}

fn measured(seconds: Vec<f64>, peak: Option<Peak>, error: Option<f64>) -> Outcome {
    Outcome::Measured(Measured {
        seconds,
        peak,
        error,
        checked: None,
    })
}

/// Measures a mechanism, then checks its results, which needs additional memory.
pub(crate) fn measure_attention(
    mechanism: Mechanism,
    problem: &Problem,
    setting: Setting<'_>,
) -> Result<Report> {
    let (pass, device) = (setting.pass, setting.device());
    let mechanism = MechanismConfig::from(mechanism);
    let work = |problem: &Problem| work(mechanism, problem, pass, &device);
    let (seconds, peak) = measure(work(&warm_up_problem(pass)), || work(problem), setting)?;

    let (checked, kernel) = check(&mechanism, problem, setting);
    Ok(Report {
        kernel: kernel.map(str::to_owned),
        ..outcome(seconds, peak, checked).into()
    })
}

/// A small problem that every mechanism supports.
pub(crate) fn warm_up_problem(pass: Pass) -> Problem {
    let queries = match pass {
        Pass::Decode | Pass::Generate => 1,
        Pass::Forward | Pass::Train => 8,
    };
    Problem {
        mask: Mask::Causal,
        ..Problem::new("small", [1, 1, queries, 8, 8])
    }
}

/// The measurements, unless the results are wrong.
pub(crate) fn outcome(
    seconds: Vec<f64>,
    peak: Option<Peak>,
    checked: Result<Errors, Mismatch>,
) -> Outcome {
    match checked {
        Ok(errors) => measured(seconds, peak, Some(errors.context.max(errors.gradients))),
        Err(mismatch) => Outcome::Wrong {
            error: mismatch.error.is_finite().then_some(mismatch.error),
            detail: mismatch.to_string(),
        },
    }
}

/// The queries that are compared with the oracle, and inputs in which only these have an output
/// gradient.
pub(crate) fn checked_inputs(problem: &Problem) -> (Vec<usize>, Inputs) {
    let queries = queries_to_check(problem);
    let mut inputs = problem.inputs();
    inputs.zero_output_grad_except(&queries, problem.d_value);
    (queries, inputs)
}

fn work(mechanism: MechanismConfig, problem: &Problem, pass: Pass, device: &Device) -> Workload {
    let tensors = Tensors::new(problem, &problem.inputs(), device);
    match pass {
        Pass::Forward => Box::new(move || Box::new(tensors.attend(&mechanism))),
        Pass::Train => {
            let tensors = tensors.require_grad();
            Box::new(move || Box::new(tensors.forward_backward(&mechanism)))
        }
        Pass::Decode | Pass::Generate => {
            let mut step = decode_step(&mechanism, tensors);
            Box::new(move || Box::new(step()))
        }
    }
}

/// A decoding step of the last position, with a cache of all positions before it.
fn decode_step(mechanism: &MechanismConfig, tensors: Tensors) -> impl FnMut() -> Tensor<4> + use<> {
    let [_, _, positions, _] = tensors.key.dims();
    let mut cache = DecodeCache::new(*mechanism, positions)
        .unwrap_or_else(|error| panic!("unsupported cases are not planned: {error}"));
    let slice = |range: Range<usize>| {
        [&tensors.key, &tensors.value].map(|tensor| tensor.clone().slice_dim(2, range.clone()))
    };
    if positions > 1 {
        let [key, value] = slice(0..positions - 1);
        cache.extend(key, value, &tensors.options);
    }
    let last = slice(positions - 1..positions);
    move || {
        // Captured as a whole: all inputs count as memory.
        let tensors = &tensors;
        let before = cache.len();
        let [key, value] = last.clone();
        let context = cache.step(tensors.query.clone(), key, value, &tensors.options);
        // Fails for a recurrent state and for a full window. Both have a constant size, so the
        // next step costs the same.
        let _ = cache.truncate(before);
        context
    }
}

/// Compares with the oracle; also returns the kernel that ran, if the mechanism has several.
fn check(
    mechanism: &MechanismConfig,
    problem: &Problem,
    setting: Setting<'_>,
) -> (Result<Errors, Mismatch>, Option<&'static str>) {
    let (queries, inputs) = checked_inputs(problem);
    let mut tensors = Tensors::new(problem, &inputs, &setting.device());
    if setting.fault == Some(Fault::Wrong) {
        tensors.options.scale = Some(2.0 * problem.scale());
    }
    let measured = match setting.pass {
        Pass::Forward => Some(tensors.clone()),
        Pass::Train => Some(tensors.clone().require_grad()),
        Pass::Decode | Pass::Generate => None,
    };
    let kernel = measured.and_then(|tensors| {
        let [query, key, value] = [&tensors.query, &tensors.key, &tensors.value];
        selected_kernel_of(mechanism, query, key, value, &tensors.options)
    });
    let checked = match setting.pass {
        Pass::Forward => compare_forward(mechanism, problem, &tensors, &queries),
        Pass::Train => compare_gradients(mechanism, problem, tensors, &queries),
        Pass::Decode | Pass::Generate => {
            let context = decode_step(mechanism, tensors.clone())();
            compare_context(mechanism, problem, &tensors, &queries, context)
        }
    };
    (checked, kernel.map(|kernel| kernel.name()))
}
