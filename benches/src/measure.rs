//! One case: its memory, its time, and whether it is right.

use anyhow::Result;
use burn::tensor::Device;
use zoo_backend::Opened;
use zoo_bench_core::case::{Case, Pass, Task};
use zoo_bench_core::fault::Fault;
use zoo_bench_core::plan::Sampling;
use zoo_bench_core::record::Report;

use crate::attention::{measure_attention, measure_matmul};
use crate::model::measure_model;

/// How far a case goes, on what device, and how it is sampled.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) pass: Pass,
    pub(crate) opened: &'a Opened,
    pub(crate) sampling: Sampling,
    pub(crate) fault: Option<Fault>,
}

impl Setting<'_> {
    /// The device, which records gradients in training.
    pub(crate) fn device(&self) -> Device {
        let device = self.opened.device.clone();
        match self.pass {
            Pass::Train => device.autodiff(),
            Pass::Forward | Pass::Decode | Pass::Generate => device,
        }
    }
}

/// Measures `case`, and says on what device.
pub(crate) fn measure(
    case: &Case,
    opened: &Opened,
    sampling: Sampling,
    fault: Option<Fault>,
) -> Result<Report> {
    match fault {
        Some(Fault::Hang) => loop {
            std::thread::park();
        },
        Some(Fault::Exhaust) => exhaust(),
        Some(Fault::Crash) => panic!("made to crash"),
        Some(Fault::Wrong | Fault::Inexact) | None => {}
    }
    zoo_backend::settle_allocator();
    let setting = Setting {
        pass: case.pass,
        opened,
        sampling,
        fault,
    };
    let report = match &case.task {
        Task::Matmul { side } => measure_matmul(*side, setting)?,
        Task::Attention { mechanism, problem } => measure_attention(*mechanism, problem, setting)?,
        Task::Model { setup, attention } => measure_model(setup, *attention, setting)?,
    };
    Ok(Report {
        device: Some(opened.to_string()),
        ..report
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
