//! How long a piece of work takes: warmed up, then sampled.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use burn::tensor::Device;

/// When to sample and when to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampling {
    /// Run this long before the first sample: caches are filled, shaders compiled.
    pub(crate) warm_up: Duration,
    /// Sample this long, if that gives [`LEAST_SAMPLES`].
    pub(crate) budget: Duration,
    /// Stop after this long, however few there are.
    pub(crate) patience: Duration,
}

/// Enough for a 10th and a 90th percentile to mean something.
const LEAST_SAMPLES: usize = 10;

/// Samples of `work` in seconds, the wait for the device inside each. What it
/// returns is kept until then: a result that nobody holds need not be computed.
pub(crate) fn samples<T>(
    device: &Device,
    sampling: Sampling,
    mut work: impl FnMut() -> T,
) -> Result<Vec<f64>> {
    let mut once = || -> Result<f64> {
        let start = Instant::now();
        let result = work();
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

/// Waits until the device has done everything it was told.
pub(crate) fn wait_for(device: &Device) -> Result<()> {
    device
        .sync()
        .map_err(|error| anyhow!("the device failed: {error:?}"))
}
