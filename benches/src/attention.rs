//! A mechanism on a problem of the catalogue, or the matmul that others are held against.

use std::any::Any;
use std::cell::RefCell;
use std::ops::Range;

use anyhow::Result;
use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::{DecodeCache, MechanismConfig, which_body_of};
use zoo_bench_core::case::{Pass, queries_to_check};
use zoo_bench_core::fault::Fault;
use zoo_bench_core::record::{Measured, Outcome, Report};
use zoo_conformance::{Errors, Tensors, judge_context, judge_forward, judge_gradients};
use zoo_oracle::{Mask, Mismatch, Problem};
use zoo_spec::Mechanism;

use crate::Setting;
use crate::timing::{peak_of, samples, wait_for};

/// Measures the matmul of two square matrices. It is only a yardstick: nothing is checked.
pub(crate) fn measure_matmul(side: usize, setting: Setting<'_>) -> Result<Report> {
    let Setting {
        opened, sampling, ..
    } = setting;
    let device = &opened.device;
    let work = |side: usize| {
        let draw = || Tensor::<2>::random([side, side], Distribution::Default, device);
        let (left, right) = (draw(), draw());
        move || left.clone().matmul(right.clone())
    };
    // Start threads, load kernels, let the backend set itself up.
    work(8)();
    wait_for(device)?;
    let (run, peak) = peak_of(opened, device, || Ok(work(side)), |run| Ok(run()), 1)?;
    let measured = Measured {
        seconds: samples(device, sampling, || Ok(run()))?,
        peak,
        error: None,
        checked: None,
    };
    Ok(Outcome::Measured(measured).into())
}

/// Measures a mechanism: memory first, on a process that has done nothing yet but
/// load the code; then the time; then the check, which takes memory of its own.
/// Says what computed it, too, where its mechanism has several ways.
pub(crate) fn measure_attention(
    mechanism: Mechanism,
    problem: &Problem,
    setting: Setting<'_>,
) -> Result<Report> {
    let (pass, device) = (setting.pass, setting.device());
    let mechanism = MechanismConfig::from(mechanism);
    // Start threads, load kernels, let the backend set itself up.
    let queries = match pass {
        Pass::Decode | Pass::Generate => 1,
        Pass::Forward | Pass::Train => 8,
    };
    let small = Problem {
        // Every mechanism takes it.
        mask: Mask::Causal,
        ..Problem::new("small", [1, 1, queries, 8, 8])
    };
    work(mechanism, &small, pass, &device)();
    wait_for(&device)?;

    let make = || Ok(work(mechanism, problem, pass, &device));
    let (run, peak) = peak_of(setting.opened, &device, make, |run| Ok(run()), 1)?;
    let seconds = samples(&device, setting.sampling, || Ok(run()))?;
    drop(run);

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

/// What is run again and again, its inputs on the device. Whatever it returns holds the results.
type Work = Box<dyn Fn() -> Box<dyn Any>>;

fn work(mechanism: MechanismConfig, problem: &Problem, pass: Pass, device: &Device) -> Work {
    let tensors = Tensors::new(problem, &problem.inputs(), device);
    match pass {
        Pass::Forward => Box::new(move || Box::new(tensors.attend(&mechanism))),
        Pass::Train => {
            let tensors = tensors.require_grad();
            Box::new(move || Box::new(tensors.train(&mechanism)))
        }
        Pass::Decode | Pass::Generate => {
            let decoding = RefCell::new(Decoding::new(&mechanism, tensors));
            Box::new(move || Box::new(decoding.borrow_mut().step()))
        }
    }
}

/// A cache that is filled but for the last place, which is taken in again and again.
struct Decoding {
    cache: DecodeCache,
    tensors: Tensors,
    /// The key and value of the last place.
    last: [Tensor<4>; 2],
}

impl Decoding {
    fn new(mechanism: &MechanismConfig, tensors: Tensors) -> Self {
        let [_, _, places, _] = tensors.key.dims();
        let cut = |tensor: &Tensor<4>, places: Range<usize>| tensor.clone().slice_dim(2, places);
        let mut cache = DecodeCache::new(*mechanism, places)
            .unwrap_or_else(|error| panic!("such a case is not planned: {error}"));
        let [before, last] = [0..places - 1, places - 1..places]
            .map(|range| [&tensors.key, &tensors.value].map(|tensor| cut(tensor, range.clone())));
        if places > 1 {
            let [key, value] = before;
            cache.extend(key, value, &tensors.options);
        }
        Self {
            cache,
            tensors,
            last,
        }
    }

    fn step(&mut self) -> Tensor<4> {
        let before = self.cache.len();
        let [key, value] = self.last.clone();
        let Tensors { query, options, .. } = &self.tensors;
        let context = self.cache.step(query.clone(), key, value, options);
        // A state cannot go back, and need not: it is as large as before. Nor can a window,
        // which is, once it is full.
        let _ = self.cache.rewind(before);
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
            let context = Decoding::new(mechanism, tensors.clone()).step();
            let judged = judge_context(mechanism, problem, &tensors, &queries, context);
            (judged, None)
        }
    }
}

fn body_of(mechanism: &MechanismConfig, tensors: &Tensors) -> Option<&'static str> {
    let Tensors {
        query,
        key,
        value,
        options,
        ..
    } = tensors;
    which_body_of(mechanism, query, key, value, options).map(|body| body.word())
}
