//! How long a piece of work takes: warmed up, sampled, with its spread.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use burn::tensor::Device;

/// Samples of one piece of work.
#[derive(Debug, Clone)]
pub(crate) struct Timing {
    sorted: Vec<Duration>,
}

/// Warm up until caches are filled and shaders compiled, whatever the work costs.
const WARM_UP: Duration = Duration::from_millis(300);
/// Enough samples for a 10th and a 90th percentile to mean something.
const LEAST_SAMPLES: usize = 10;
/// Cheap work is sampled for this long.
const BUDGET: Duration = Duration::from_secs(1);

impl Timing {
    /// Times `work`, waiting for the device inside the timed region.
    pub(crate) fn of(device: &Device, mut work: impl FnMut()) -> Result<Self> {
        let mut once = || -> Result<Duration> {
            let start = Instant::now();
            work();
            device
                .sync()
                .map_err(|error| anyhow!("the device failed: {error:?}"))?;
            Ok(start.elapsed())
        };
        let start = Instant::now();
        while start.elapsed() < WARM_UP {
            once()?;
        }
        let start = Instant::now();
        let mut sorted = Vec::new();
        while sorted.len() < LEAST_SAMPLES || start.elapsed() < BUDGET {
            sorted.push(once()?);
        }
        sorted.sort_unstable();
        Ok(Self { sorted })
    }

    /// The time that `share` of the samples are below.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let last = self.sorted.len() - 1;
        self.sorted[(last as f64 * share).round() as usize]
    }

    pub(crate) fn median(&self) -> Duration {
        self.quantile(0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_samples() {
        let timing = Timing {
            sorted: (1..=11).map(Duration::from_millis).collect(),
        };
        assert_eq!(timing.median(), Duration::from_millis(6));
        assert_eq!(timing.quantile(0.1), Duration::from_millis(2));
        assert_eq!(timing.quantile(0.9), Duration::from_millis(10));
    }
}
