//! How long a piece of work takes, warmed up, then sampled, and how much memory.

use std::time::Instant;

use anyhow::{Result, anyhow};
use burn::tensor::Device;
use zoo_backend::{Meter, Opened};
use zoo_bench_core::plan::Sampling;
use zoo_bench_core::record::Peak;

/// Enough for a 10th and a 90th percentile to mean something.
const LEAST_SAMPLES: usize = 10;

/// Samples of `work` in seconds, the wait for the device inside each. What it
/// returns is kept until then: a result that nobody holds need not be computed.
pub(crate) fn samples<T>(
    device: &Device,
    sampling: Sampling,
    mut work: impl FnMut() -> Result<T>,
) -> Result<Vec<f64>> {
    let mut once = || -> Result<f64> {
        let start = Instant::now();
        let result = work()?;
        wait_for(device)?;
        drop(result);
        Ok(start.elapsed().as_secs_f64())
    };
    let start = Instant::now();
    while start.elapsed() < sampling.warm_up {
        once()?;
    }
    let start = Instant::now();
    let mut seconds = Vec::new();
    loop {
        seconds.push(once()?);
        let elapsed = start.elapsed();
        let enough = seconds.len() >= LEAST_SAMPLES && elapsed >= sampling.budget;
        if enough || elapsed >= sampling.patience {
            return Ok(seconds);
        }
    }
}

/// Makes a piece of work and runs it some `times`: the work, and the most memory both took.
pub(crate) fn peak_of<W, T>(
    opened: &Opened,
    device: &Device,
    make: impl FnOnce() -> Result<W>,
    mut run: impl FnMut(&mut W) -> Result<T>,
    times: usize,
) -> Result<(W, Option<Peak>)> {
    let mut meter = Meter::start(opened);
    let mut work = make()?;
    wait_for(device)?;
    meter.inputs_are_there();
    for _ in 0..times {
        let result = run(&mut work)?;
        wait_for(device)?;
        drop(result);
    }
    let peak = meter.peak().map(|(bytes, how)| Peak {
        bytes,
        how: how.to_owned(),
    });
    Ok((work, peak))
}

/// Waits until the device has done everything it was told.
pub(crate) fn wait_for(device: &Device) -> Result<()> {
    device
        .sync()
        .map_err(|error| anyhow!("the device failed: {error:?}"))
}
