//! One case: its memory, its time, and whether it is right.

use std::cell::RefCell;
use std::ops::Range;

use anyhow::Result;
use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::{DecodeCache, MechanismConfig, which_body_of};
use zoo_backend::{Meter, Opened};
use zoo_comparison::case::{Case, Fault, Pass, Subject, queries_to_check};
use zoo_comparison::record::{Measured, Outcome, Peak};
use zoo_conformance::{Errors, Tensors, judge_context, judge_forward, judge_gradients};
use zoo_testkit::{Mask, Mismatch, Problem};

use crate::timing::{Sampling, samples, wait_for};

/// Measures `case`: memory first, on a process that has done nothing yet but
/// load the code; then the time; then the check, which takes memory of its own.
/// Says what computed it, too, where its mechanism has several ways.
pub(crate) fn measure(
    case: &Case,
    opened: &Opened,
    sampling: Sampling,
    fault: Option<Fault>,
) -> Result<(Outcome, Option<&'static str>)> {
    match fault {
        Some(Fault::Hang) => loop {
            std::thread::park();
        },
        Some(Fault::Exhaust) => exhaust(),
        Some(Fault::Crash) => panic!("made to crash"),
        Some(Fault::Wrong) | None => {}
    }
    let device = match case.pass {
        Pass::Forward | Pass::Decode => opened.device.clone(),
        Pass::Train => opened.device.clone().autodiff(),
    };
    settle_allocator();
    // Start threads, load kernels, let the backend set itself up.
    let queries = match case.pass {
        Pass::Decode => 1,
        Pass::Forward | Pass::Train => 8,
    };
    let small = Problem {
        // Every mechanism takes it.
        mask: Mask::Causal,
        ..Problem::new("small", [1, 1, queries, 8, 8])
    };
    Work::new(case, &small, &device).run();
    wait_for(&device)?;

    let mut meter = Meter::start(opened);
    let work = Work::new(case, &case.problem, &device);
    wait_for(&device)?;
    meter.inputs_are_there();
    let result = work.run();
    wait_for(&device)?;
    let peak = meter.peak().map(|(bytes, how)| Peak {
        bytes,
        how: how.to_owned(),
    });
    drop(result);
    let body = work.body();

    let seconds = samples(&device, sampling, || work.run())?;
    drop(work);

    let error = match check(case, &device, fault) {
        None => None,
        Some(Ok(errors)) => Some(errors.context.max(errors.gradients)),
        Some(Err(mismatch)) => {
            let wrong = Outcome::Wrong {
                error: mismatch.error.is_finite().then_some(mismatch.error),
                detail: mismatch.to_string(),
            };
            return Ok((wrong, body));
        }
    };
    let measured = Measured {
        seconds,
        peak,
        error,
    };
    Ok((Outcome::Measured(measured), body))
}

/// Frees a large block, as every program has that loaded a model.
///
/// glibc keeps freed memory up to twice the largest block that was ever freed, and returns
/// the rest to the system: a process that has freed nothing large gives the results of
/// every pass back, and pays for their pages again in the next. Training at n = 512 took a
/// tenth longer on flex and a quarter on ndarray. PyTorch's process keeps its memory: 226
/// page faults a pass there, where ours had 845. What is above 32 MiB is not counted.
fn settle_allocator() {
    const LARGEST: usize = 32 << 20;
    drop(std::hint::black_box(vec![1u8; LARGEST - (1 << 16)]));
}

/// What is run again and again, its inputs on the device.
enum Work {
    Matmul(Tensor<2>, Tensor<2>),
    Forward(MechanismConfig, Tensors),
    Train(MechanismConfig, Tensors),
    Decode(Box<RefCell<Decoding>>),
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
        let mut cache = DecodeCache::new(mechanism.clone(), places)
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

impl Work {
    fn new(case: &Case, problem: &Problem, device: &Device) -> Self {
        match (case.subject, case.pass) {
            (Subject::Matmul, _) => {
                let n = problem.seq_k;
                let draw = || Tensor::random([n, n], Distribution::Default, device);
                Self::Matmul(draw(), draw())
            }
            (Subject::Mechanism(mechanism), Pass::Forward) => {
                let tensors = Tensors::new(problem, &problem.inputs(), device);
                Self::Forward(mechanism.into(), tensors)
            }
            (Subject::Mechanism(mechanism), Pass::Train) => {
                let tensors = Tensors::new(problem, &problem.inputs(), device);
                Self::Train(mechanism.into(), tensors.require_grad())
            }
            (Subject::Mechanism(mechanism), Pass::Decode) => {
                let tensors = Tensors::new(problem, &problem.inputs(), device);
                let decoding = Decoding::new(&mechanism.into(), tensors);
                Self::Decode(Box::new(RefCell::new(decoding)))
            }
        }
    }

    fn body(&self) -> Option<&'static str> {
        let (mechanism, tensors) = match self {
            Self::Matmul(..) | Self::Decode(_) => return None,
            Self::Forward(mechanism, tensors) | Self::Train(mechanism, tensors) => {
                (mechanism, tensors)
            }
        };
        let Tensors {
            query,
            key,
            value,
            options,
            ..
        } = tensors;
        which_body_of(mechanism, query, key, value, options).map(|body| body.word())
    }

    /// Runs it once. Whatever is returned holds the results.
    fn run(&self) -> Box<dyn std::any::Any> {
        match self {
            Self::Matmul(a, b) => Box::new(a.clone().matmul(b.clone())),
            Self::Forward(mechanism, tensors) => Box::new(tensors.attend(mechanism)),
            Self::Train(mechanism, tensors) => Box::new(tensors.train(mechanism)),
            Self::Decode(decoding) => Box::new(decoding.borrow_mut().step()),
        }
    }
}

/// Compares with the oracle; a matmul is only a yardstick.
fn check(case: &Case, device: &Device, fault: Option<Fault>) -> Option<Result<Errors, Mismatch>> {
    let Subject::Mechanism(mechanism) = case.subject else {
        return None;
    };
    let mechanism = &mechanism.into();
    let problem = &case.problem;
    let queries = queries_to_check(problem);
    let mut inputs = problem.inputs();
    inputs.keep_upstream_of(&queries, problem.d_value);
    let mut tensors = Tensors::new(problem, &inputs, device);
    if fault == Some(Fault::Wrong) {
        tensors.options.scale = Some(2.0 * problem.scale());
    }
    Some(match case.pass {
        Pass::Forward => judge_forward(mechanism, problem, &tensors, &queries),
        Pass::Train => judge_gradients(mechanism, problem, tensors, &queries),
        Pass::Decode => {
            let context = Decoding::new(mechanism, tensors.clone()).step();
            judge_context(mechanism, problem, &tensors, &queries, context)
        }
    })
}

/// Takes memory, page by page, until somebody puts an end to it.
fn exhaust() -> ! {
    let mut taken = Vec::new();
    loop {
        taken.push(vec![1u8; 1 << 26]);
        std::hint::black_box(&taken);
    }
}
