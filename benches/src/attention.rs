//! A mechanism on a problem of the catalogue, or the matmul that others are held against.

use std::any::Any;
use std::ops::Range;

use anyhow::Result;
use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::{DecodeCache, MechanismConfig, which_body_of};
use zoo_bench_core::case::{Fault, Pass, queries_to_check};
use zoo_bench_core::record::{Measured, Outcome, Peak, Report};
use zoo_conformance::{Errors, Tensors, judge_context, judge_forward, judge_gradients};
use zoo_oracle::{Mask, Mismatch, Problem};
use zoo_spec::Mechanism;

use crate::Setting;
use crate::timing::{peak_of, samples, wait_for};

/// What is run again and again, its inputs on the device. Whatever it returns holds the results.
type Work = Box<dyn FnMut() -> Box<dyn Any>>;

/// The time of a piece of work, and the memory that it and its inputs take. Memory first, on a
/// process that has done nothing yet but run `small` work, to start threads, load kernels and let
/// the backend set itself up.
fn measure(
    mut small: Work,
    make: impl FnOnce() -> Work,
    setting: Setting<'_>,
) -> Result<(Vec<f64>, Option<Peak>)> {
    let device = &setting.device();
    small();
    drop(small);
    wait_for(device)?;
    let (mut run, peak) = peak_of(setting.opened, device, || Ok(make()), |run| Ok(run()), 1)?;
    Ok((samples(device, setting.sampling, || Ok(run()))?, peak))
}

/// Measures the matmul of two square matrices. It is only a yardstick: nothing is checked.
pub(crate) fn measure_matmul(side: usize, setting: Setting<'_>) -> Result<Report> {
    let work = |side: usize| -> Work {
        let device = &setting.opened.device;
        let draw = || Tensor::<2>::random([side, side], Distribution::Default, device);
        let (left, right) = (draw(), draw());
        Box::new(move || Box::new(left.clone().matmul(right.clone())))
    };
    let (seconds, peak) = measure(work(8), || work(side), setting)?;
    let measured = Measured {
        seconds,
        peak,
        error: None,
        checked: None,
    };
    Ok(Outcome::Measured(measured).into())
}

/// Measures a mechanism, then checks it, which takes memory of its own. Says what computed it, too,
/// where its mechanism has several ways.
pub(crate) fn measure_attention(
    mechanism: Mechanism,
    problem: &Problem,
    setting: Setting<'_>,
) -> Result<Report> {
    let (pass, device) = (setting.pass, setting.device());
    let mechanism = MechanismConfig::from(mechanism);
    let queries = match pass {
        Pass::Decode | Pass::Generate => 1,
        Pass::Forward | Pass::Train => 8,
    };
    let small = Problem {
        // Every mechanism takes it.
        mask: Mask::Causal,
        ..Problem::new("small", [1, 1, queries, 8, 8])
    };
    let work = |problem: &Problem| work(mechanism, problem, pass, &device);
    let (seconds, peak) = measure(work(&small), || work(problem), setting)?;

    let (checked, body) = check(&mechanism, problem, setting);
    let outcome = match checked {
        Ok(errors) => Outcome::Measured(Measured {
            seconds,
            peak,
            error: Some(errors.context.max(errors.gradients)),
            checked: None,
        }),
        Err(mismatch) => Outcome::Wrong {
            error: mismatch.error.is_finite().then_some(mismatch.error),
            detail: mismatch.to_string(),
        },
    };
    Ok(Report {
        body: body.map(str::to_owned),
        ..outcome.into()
    })
}

fn work(mechanism: MechanismConfig, problem: &Problem, pass: Pass, device: &Device) -> Work {
    let tensors = Tensors::new(problem, &problem.inputs(), device);
    match pass {
        Pass::Forward => Box::new(move || Box::new(tensors.attend(&mechanism))),
        Pass::Train => {
            let tensors = tensors.require_grad();
            Box::new(move || Box::new(tensors.train(&mechanism)))
        }
        Pass::Decode | Pass::Generate => {
            let mut step = decoding(&mechanism, tensors);
            Box::new(move || Box::new(step()))
        }
    }
}

/// A step with a cache that is filled but for the last position, which is taken in again and again.
fn decoding(mechanism: &MechanismConfig, tensors: Tensors) -> impl FnMut() -> Tensor<4> + use<> {
    let [_, _, positions, _] = tensors.key.dims();
    let mut cache = DecodeCache::new(*mechanism, positions)
        .unwrap_or_else(|error| panic!("such a case is not planned: {error}"));
    let cut = |range: Range<usize>| {
        [&tensors.key, &tensors.value].map(|tensor| tensor.clone().slice_dim(2, range.clone()))
    };
    if positions > 1 {
        let [key, value] = cut(0..positions - 1);
        cache.extend(key, value, &tensors.options);
    }
    let last = cut(positions - 1..positions);
    move || {
        // All inputs stay in memory.
        let tensors = &tensors;
        let before = cache.len();
        let [key, value] = last.clone();
        let context = cache.step(tensors.query.clone(), key, value, &tensors.options);
        // A state cannot go back, and need not: it is as large as before. Nor can a window,
        // which is, once it is full.
        let _ = cache.rewind(before);
        context
    }
}

/// Compares with the oracle, and tells what computed it, where the mechanism has several ways.
fn check(
    mechanism: &MechanismConfig,
    problem: &Problem,
    setting: Setting<'_>,
) -> (Result<Errors, Mismatch>, Option<&'static str>) {
    let queries = queries_to_check(problem);
    let mut inputs = problem.inputs();
    inputs.keep_upstream_of(&queries, problem.d_value);
    let mut tensors = Tensors::new(problem, &inputs, &setting.device());
    if setting.fault == Some(Fault::Wrong) {
        tensors.options.scale = Some(2.0 * problem.scale());
    }
    match setting.pass {
        Pass::Forward => {
            let body = body_of(mechanism, &tensors);
            (judge_forward(mechanism, problem, &tensors, &queries), body)
        }
        Pass::Train => {
            let body = body_of(mechanism, &tensors.clone().require_grad());
            (judge_gradients(mechanism, problem, tensors, &queries), body)
        }
        Pass::Decode | Pass::Generate => {
            let context = decoding(mechanism, tensors.clone())();
            let judged = judge_context(mechanism, problem, &tensors, &queries, context);
            (judged, None)
        }
    }
}

fn body_of(mechanism: &MechanismConfig, tensors: &Tensors) -> Option<&'static str> {
    let [query, key, value] = [&tensors.query, &tensors.key, &tensors.value];
    let body = which_body_of(mechanism, query, key, value, &tensors.options);
    body.map(|body| body.word())
}
