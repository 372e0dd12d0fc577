//! How much time a run may take, and what each case gets of it.

use std::time::Duration;

use zoo_oracle::Problem;

use crate::model::Size;

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
    /// How large models are.
    pub fn size(self) -> Size {
        match self {
            Self::Quick => Size::Small,
            Self::Full => Size::Base,
        }
    }

    /// The lengths of a problem.
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
        match self {
            Self::Quick => Sampling {
                warm_up: Duration::from_millis(200),
                // Cheap cases share 20 seconds, however many there are.
                budget: Duration::from_secs_f64((20.0 / processes as f64).clamp(0.1, 1.0)),
                // Slow ones share most of a minute more.
                patience: Duration::from_secs_f64((60.0 / processes as f64).clamp(0.5, 4.0)),
                timeout: Duration::from_secs(60),
            },
            Self::Full => Sampling {
                warm_up: Duration::from_millis(500),
                budget: Duration::from_secs(2),
                patience: Duration::from_secs(20),
                timeout: Duration::from_secs(600),
            },
        }
    }
}

/// How a case is sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// How long it runs before the first sample.
    pub warm_up: Duration,
    /// How long it is sampled if that gives ten samples or more.
    pub budget: Duration,
    /// How long it is sampled at most, however few samples that gives.
    pub patience: Duration,
    /// When the whole process is given up.
    pub timeout: Duration,
}
