//! One case: its memory, its time, and whether it is right.

use anyhow::Result;
use zoo_backend::Opened;
use zoo_bench_core::case::{Case, Task};
use zoo_bench_core::fault::Fault;
use zoo_bench_core::plan::Sampling;
use zoo_bench_core::record::Report;

use crate::attention::{Attention, measure_attention, measure_matmul};
use crate::model::measure_model;

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
    let (mut body, mut counted) = (None, None);
    let outcome = match &case.task {
        Task::Matmul { side } => measure_matmul(*side, opened, sampling)?,
        Task::Attention { mechanism, problem } => {
            let attention = Attention {
                mechanism: *mechanism,
                problem,
                pass: case.pass,
            };
            let (outcome, by) = measure_attention(attention, opened, sampling, fault)?;
            body = by.map(str::to_owned);
            outcome
        }
        Task::Model { setup, attention } => {
            let (outcome, of_model) =
                measure_model(setup, *attention, case.pass, opened, sampling, fault)?;
            counted = Some(of_model);
            outcome
        }
    };
    Ok(Report {
        device: opened.to_string(),
        body,
        counted,
        outcome,
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
