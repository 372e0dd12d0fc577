//! How much time a run may take, what each case gets of it, and groups of cases by their words.

use std::time::Duration;

use zoo_oracle::Problem;

use crate::model::{Model, Size};

/// How much time a run may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// Two lengths, within two minutes; `additive` at the first alone. Small models.
    #[default]
    Quick,
    /// Every length from short to as long as the machine holds. Models as large as papers'.
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

    /// How each of `processes` children samples.
    pub fn sampling(self, processes: usize) -> Sampling {
        let share = |seconds: f64, least, most| {
            Duration::from_secs_f64((seconds / processes as f64).clamp(least, most))
        };
        match self {
            Self::Quick => Sampling {
                warm_up: Duration::from_millis(200),
                // Cheap cases share 20 seconds, however many there are.
                budget: share(20.0, 0.1, 1.0),
                // Slow ones share most of a minute more.
                patience: share(60.0, 0.5, 4.0),
            },
            Self::Full => Sampling {
                warm_up: Duration::from_millis(500),
                budget: Duration::from_secs(2),
                patience: Duration::from_secs(20),
            },
        }
    }

    /// When a process is given up.
    pub fn timeout(self) -> Duration {
        Duration::from_secs(match self {
            Self::Quick => 60,
            Self::Full => 600,
        })
    }
}

/// How a case is sampled: flags of `zoo-bench`.
#[derive(Debug, Clone, Copy, PartialEq, clap::Args)]
pub struct Sampling {
    /// Seconds before the first sample
    #[arg(long, default_value = "0.3", value_parser = seconds)]
    pub warm_up: Duration,

    /// Seconds to sample for, if that gives ten samples
    #[arg(long, default_value = "1", value_parser = seconds)]
    pub budget: Duration,

    /// Seconds after which sampling ends, however few there are
    #[arg(long, default_value = "10", value_parser = seconds)]
    pub patience: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

impl Sampling {
    /// The flags, which PyTorch's scripts take too.
    pub(crate) fn arguments(self) -> Vec<String> {
        [
            ("--warm-up", self.warm_up),
            ("--budget", self.budget),
            ("--patience", self.patience),
        ]
        .into_iter()
        .flat_map(|(flag, time)| [flag.to_owned(), time.as_secs_f64().to_string()])
        .collect()
    }
}

zoo_spec::words! {
    /// A group of problems that answer one question.
    pub enum Suite: "suite" = Attention {
        /// A whole layer, every query at once: how training and prompts run.
        Attention = "attention",
        /// One query against everything before it: how text is generated.
        Decode = "decode",
        Models = "models",
        All = "all",
    }
}

impl Suite {
    pub fn summary(self) -> &'static str {
        match self {
            Self::Attention => {
                "a causal layer over n positions; with --full also one that sees everything"
            }
            Self::Decode => "one query with a cache of n - 1 tokens: the time per generated token",
            Self::Models => "whole models: a step of training, and generation or a forward pass",
            Self::All => "every suite",
        }
    }

    pub(super) fn problems(self, extent: Extent) -> Vec<&'static str> {
        match (self, extent) {
            // What every mechanism takes.
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
