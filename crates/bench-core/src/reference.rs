//! Cases that others are compared with, and differences beyond the noise.

use zoo_spec::names;

use crate::library::Library;
use crate::pytorch::{SDPA, subject_of};
use crate::record::{CaseId, CaseLine};

names! {
    /// In the order of the columns of the [screen](crate::screen::screen).
    pub enum Reference: "reference" {
        Flash = "flash",
        Standard = "standard",
        /// PyTorch's `scaled_dot_product_attention` on the same problem.
        Sdpa = "SDPA",
        /// The same mechanism or model in PyTorch.
        PyTorch = "PyTorch",
        /// Burn's own attention on the same problem and backend.
        Burn = "Burn",
        /// The same case of an earlier run.
        Baseline = "baseline",
    }
}

impl Reference {
    /// The reference of a case among `cases`, or among those of the earlier run.
    pub(crate) fn of<'a>(self, case: &CaseLine, cases: &'a [CaseLine]) -> Option<&'a CaseLine> {
        let is_pytorch = |other: &CaseId| other.library() == Some(Library::PyTorch);
        let is_reference = |other: &CaseId| match self {
            Self::Flash | Self::Standard => {
                other.backend == case.id.backend && other.subject == self.name()
            }
            Self::Sdpa => is_pytorch(other) && other.subject == SDPA && !case.is_model(),
            Self::PyTorch if case.is_model() => is_pytorch(other),
            Self::PyTorch => is_pytorch(other) && other.subject == subject_of(&case.id.subject),
            Self::Burn => {
                other.backend == case.id.backend && other.library() == Some(Library::Burn)
            }
            Self::Baseline => *other == case.id,
        };
        let is_same = |other: &CaseId| other.is_same_problem(&case.id) && is_reference(other);
        cases.iter().find(|other| is_same(&other.id))
    }
}

/// Two runs of a program on a quiet machine differ by up to this much because of memory layout.
const MIN_CHANGE: f64 = 0.05;

impl CaseLine {
    /// Largest relative deviation from the median, of the percentiles and of the rounds' medians.
    pub(crate) fn spread(&self) -> Option<f64> {
        let samples = self.samples()?;
        let median = samples.median();
        let deviation = |x: f64| (x / median).max(median / x) - 1.0;
        let rounds = self.round_medians.iter().copied();
        let percentiles = [samples.quantile(0.1), samples.quantile(0.9)];
        Some(rounds.chain(percentiles).map(deviation).fold(0.0, f64::max))
    }

    /// The relative difference of two times that their spreads explain.
    pub(crate) fn noise(&self, other: &Self) -> Option<f64> {
        Some(self.spread()?.hypot(other.spread()?).max(MIN_CHANGE))
    }

    /// Time relative to `other`, if the difference is beyond the noise.
    pub(crate) fn significant_ratio(&self, other: &Self) -> Option<f64> {
        let (ratio, noise) = (self.ratio(other)?.ratio, self.noise(other)?);
        (ratio.max(1.0 / ratio) > 1.0 + noise).then_some(ratio)
    }
}
