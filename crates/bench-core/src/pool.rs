//! The rounds of a case put together, and what its samples say.

use crate::record::{CaseLine, Measured, Outcome, Report};

impl CaseLine {
    pub fn samples(&self) -> Option<&Measured> {
        self.report.outcome.measured()
    }

    /// Floating-point operations per second at the median, where they were counted.
    pub fn rate(&self) -> Option<f64> {
        let work = self.report.work.filter(|work| *work > 0.0)?;
        Some(work / self.samples()?.median())
    }

    /// Tokens per second at the median, of a model.
    pub fn tokens_per_second(&self) -> Option<f64> {
        Some(self.tokens? as f64 / self.samples()?.median())
    }

    pub fn is_model(&self) -> bool {
        self.tokens.is_some()
    }

    /// Whether it is the matmul whose rate others are held against.
    pub fn is_matmul(&self) -> bool {
        self.id.subject == "matmul"
    }

    /// How many times as long as `other` it took, where both have a time.
    pub fn ratio(&self, other: &Self) -> Option<Ratio> {
        let ratio = self.samples()?.median() / other.samples()?.median();
        let rounds = self.round_medians.iter().zip(&other.round_medians);
        let of_rounds = rounds.map(|(a, b)| a / b);
        Some(Ratio {
            ratio,
            low: of_rounds.clone().fold(ratio, f64::min),
            high: of_rounds.fold(ratio, f64::max),
        })
    }
}

/// One side's time as a ratio of the other's: of the medians, and of the medians
/// round by round, lowest and highest, which says how far to trust it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
}

/// Puts the rounds of each case together, in the order cases first ended.
///
/// A case then has the samples of all rounds, the most memory and the worst error of any; or the
/// first outcome that has no time: one is enough to distrust the case.
pub fn pool(lines: &[CaseLine]) -> Vec<CaseLine> {
    let cases = group(lines, |line| line.id.clone());
    cases.iter().map(|(_, rounds)| pooled(rounds)).collect()
}

fn pooled(rounds: &[&CaseLine]) -> CaseLine {
    let reports = || rounds.iter().map(|round| &round.report);
    let measured: Vec<&Measured> = rounds.iter().filter_map(|round| round.samples()).collect();
    let mut outcomes = reports().map(|report| &report.outcome);
    let without = outcomes.find(|outcome| outcome.measured().is_none());
    let outcome = without.cloned().unwrap_or_else(|| {
        let peaks = measured.iter().filter_map(|round| round.peak.clone());
        let errors = measured.iter().filter_map(|round| round.error);
        Outcome::Measured(Measured {
            seconds: measured.iter().flat_map(|m| m.seconds.clone()).collect(),
            peak: peaks.max_by_key(|peak| peak.bytes),
            error: errors.reduce(f64::max),
            checked: measured.iter().find_map(|round| round.checked.clone()),
        })
    });
    CaseLine {
        report: Report {
            device: reports().find_map(|report| report.device.clone()),
            body: reports().find_map(|report| report.body.clone()),
            outcome,
            ..rounds[0].report.clone()
        },
        round_medians: measured.iter().map(|round| round.median()).collect(),
        ..rounds[0].clone()
    }
}

/// Puts what has the same key together, in the order that keys first come.
pub fn group<K: PartialEq, T>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// Each of them once, in the order they first come.
pub fn distinct<T: PartialEq + Copy>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let groups = group(items, |item| *item).into_iter();
    groups.map(|(item, _)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::for_tests::line;

    #[test]
    fn rounds_are_put_together() {
        let lines = [
            line("a", 256, &[1.0, 5.0, 3.0]),
            line("b", 256, &[9.0]),
            line("a", 256, &[2.0, 4.0]),
        ];
        let pooled = pool(&lines);
        assert_eq!(pooled.len(), 2);
        let samples = pooled[0].samples().expect("measured");
        assert_eq!(samples.seconds.len(), 5);
        assert_eq!(samples.median(), 0.003);
        assert_eq!(samples.quantile(1.0), 0.005);
        assert_eq!(pooled[0].rate(), Some(256e6 / 0.003));
    }

    #[test]
    fn one_round_without_a_time_takes_the_time_of_all() {
        let mut bad = line("a", 256, &[]);
        bad.report.outcome = Outcome::TimedOut { seconds: 1.0 };
        let lines = [line("a", 256, &[1.0]), bad.clone(), line("a", 256, &[1.0])];
        assert_eq!(pool(&lines)[0].report, bad.report);
    }

    #[test]
    fn a_ratio_carries_its_spread_over_rounds() {
        let rounds = |times: [f64; 2]| {
            let lines = times.map(|ms| line("a", 256, &[ms, ms, ms]));
            pool(&lines)[0].clone()
        };
        let got = rounds([4.0, 2.0]).ratio(&rounds([2.0, 2.0]));
        let got = got.expect("both were measured");
        assert_eq!((got.low, got.high), (1.0, 2.0));
    }
}
