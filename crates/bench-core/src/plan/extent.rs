//! Time budget of a run and of each case, and the benchmark suites.

use std::time::Duration;

use zoo_oracle::Problem;

use crate::model::{Model, Size};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// Two lengths, small models, about two minutes.
    #[default]
    Quick,
    /// All lengths that fit into memory, models of the size in the papers.
    Full,
}

impl Extent {
    pub fn size(self) -> Size {
        match self {
            Self::Quick => Size::Small,
            Self::Full => Size::Base,
        }
    }

    pub(super) fn lengths(self, problem: &Problem) -> &'static [usize] {
        match (self, problem.seq_q == 1) {
            (Self::Quick, false) => &[256, 1024],
            (Self::Quick, true) => &[1024, 8192],
            (Self::Full, false) => &[128, 256, 512, 1024, 2048, 4096, 8192, 16_384],
            (Self::Full, true) => &[1024, 4096, 16_384, 65_536],
        }
    }

    /// Sampling of each of `processes` child processes.
    pub fn sampling(self, processes: usize) -> Sampling {
        let per_process = |seconds: f64, min, max| {
            Duration::from_secs_f64((seconds / processes as f64).clamp(min, max))
        };
        match self {
            Self::Quick => Sampling {
                warm_up: Duration::from_millis(200),
                // Fast cases take 20 seconds in total.
                min_time: per_process(20.0, 0.1, 1.0),
                // Slow cases take up to 60 seconds in total.
                max_time: per_process(60.0, 0.5, 4.0),
            },
            Self::Full => Sampling {
                warm_up: Duration::from_millis(500),
                min_time: Duration::from_secs(2),
                max_time: Duration::from_secs(20),
            },
        }
    }

    pub fn timeout(self) -> Duration {
        Duration::from_secs(match self {
            Self::Quick => 60,
            Self::Full => 600,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, clap::Args)]
pub struct Sampling {
    /// Warm-up time in seconds
    #[arg(long, default_value = "0.3", value_parser = seconds)]
    pub warm_up: Duration,

    /// Minimum sampling time in seconds; sampling continues until there are 10 samples
    #[arg(long, default_value = "1", value_parser = seconds)]
    pub min_time: Duration,

    /// Maximum sampling time in seconds, even with fewer than 10 samples
    #[arg(long, default_value = "10", value_parser = seconds)]
    pub max_time: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

impl Sampling {
    /// The flags, which the PyTorch scripts accept as well.
    pub(crate) fn arguments(self) -> Vec<String> {
        [
            ("--warm-up", self.warm_up),
            ("--min-time", self.min_time),
            ("--max-time", self.max_time),
        ]
        .into_iter()
        .flat_map(|(flag, time)| [flag.to_owned(), time.as_secs_f64().to_string()])
        .collect()
    }
}

zoo_spec::names! {
    /// The descriptions are printed by `--list`.
    pub enum Suite: "suite" = Attention {
        /// causal attention at length n; with --full also bidirectional
        Attention = "attention",
        /// one decoding step with a cache of n - 1 tokens (time per generated token)
        Decode = "decode",
        /// whole models: a training step, and generation or a forward pass
        Models = "models",
        /// all suites
        All = "all",
    }
}

impl Suite {
    pub(super) fn problems(self, extent: Extent) -> Vec<&'static str> {
        match (self, extent) {
            // Supported by every mechanism.
            (Self::Attention, Extent::Quick) => vec!["layer-causal"],
            (Self::Attention, Extent::Full) => vec!["layer", "layer-causal"],
            (Self::Decode, _) => vec!["decode-step"],
            (Self::Models, _) => vec![],
            (Self::All, _) => [Self::Attention, Self::Decode]
                .into_iter()
                .flat_map(|suite| suite.problems(extent))
                .collect(),
        }
    }

    pub(super) fn models(self) -> &'static [Model] {
        match self {
            Self::Attention | Self::Decode => &[],
            Self::Models | Self::All => &Model::ALL,
        }
    }
}
