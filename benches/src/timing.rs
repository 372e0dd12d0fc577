//! Time samples and peak memory of a workload.

use std::time::Instant;

use anyhow::{Result, anyhow};
use burn::tensor::Device;
use zoo_backend::{Meter, OpenDevice};
use zoo_bench_core::plan::Sampling;
use zoo_bench_core::record::Peak;

/// Enough for meaningful 10th and 90th percentiles.
const MIN_SAMPLES: usize = 10;

/// Samples of `work` in seconds, including device synchronisation. The result is dropped after it,
/// since a backend need not compute an unused result.
pub(crate) fn samples<T>(
    device: &Device,
    sampling: Sampling,
    mut work: impl FnMut() -> Result<T>,
) -> Result<Vec<f64>> {
    let mut once = || -> Result<f64> {
        let start = Instant::now();
        let result = work()?;
        sync(device)?;
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
        let enough = seconds.len() >= MIN_SAMPLES && elapsed >= sampling.min_time;
        if enough || elapsed >= sampling.max_time {
            return Ok(seconds);
        }
    }
}

/// Creates a workload, runs it `times` times, and returns it with the peak memory.
pub(crate) fn peak_memory<W, T>(
    opened: &OpenDevice,
    device: &Device,
    make: impl FnOnce() -> Result<W>,
    mut run: impl FnMut(&mut W) -> Result<T>,
    times: usize,
) -> Result<(W, Option<Peak>)> {
    let mut meter = Meter::start(opened);
    let mut work = make()?;
    sync(device)?;
    meter.reset_peak();
    for _ in 0..times {
        let result = run(&mut work)?;
        sync(device)?;
        drop(result);
    }
    let peak = meter.peak().map(|(bytes, how)| Peak {
        bytes,
        how: how.to_owned(),
    });
    Ok((work, peak))
}

pub(crate) fn sync(device: &Device) -> Result<()> {
    device
        .sync()
        .map_err(|error| anyhow!("the device failed: {error:?}"))
}
