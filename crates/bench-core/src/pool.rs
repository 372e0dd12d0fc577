//! Pooled rounds of a case, and statistics of its samples.

use crate::record::{CaseLine, Measured, Outcome, Report};

impl CaseLine {
    pub fn samples(&self) -> Option<&Measured> {
        self.report.outcome.measured()
    }

    /// FLOP/s at the median time, if the FLOPs were counted.
    pub fn flops_per_second(&self) -> Option<f64> {
        let work = self.report.work.filter(|work| *work > 0.0)?;
        Some(work / self.samples()?.median())
    }

    pub fn tokens_per_second(&self) -> Option<f64> {
        Some(self.tokens? as f64 / self.samples()?.median())
    }

    pub fn is_model(&self) -> bool {
        self.tokens.is_some()
    }

    pub fn is_matmul(&self) -> bool {
        self.id.subject == "matmul"
    }

    /// Time relative to `other`, if both were measured.
    pub fn ratio(&self, other: &Self) -> Option<Ratio> {
        let ratio = self.samples()?.median() / other.samples()?.median();
        let rounds = self.round_medians.iter().zip(&other.round_medians);
        let ratios = rounds.map(|(a, b)| a / b);
        Some(Ratio {
            ratio,
            low: ratios.clone().fold(ratio, f64::min),
            high: ratios.fold(ratio, f64::max),
        })
    }
}

/// Ratio of two median times, with its range over the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
}

/// Merges the rounds of each case: all samples, and the maximum of memory and error. If a round
/// failed, the case has the outcome of that round.
pub fn pool(lines: &[CaseLine]) -> Vec<CaseLine> {
    let cases = group(lines, |line| line.id.clone());
    cases.iter().map(|(_, rounds)| merge(rounds)).collect()
}

fn merge(rounds: &[&CaseLine]) -> CaseLine {
    let reports = || rounds.iter().map(|round| &round.report);
    let measured: Vec<&Measured> = rounds.iter().filter_map(|round| round.samples()).collect();
    let mut outcomes = reports().map(|report| &report.outcome);
    let failure = outcomes.find(|outcome| outcome.measured().is_none());
    let outcome = failure.cloned().unwrap_or_else(|| {
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
            kernel: reports().find_map(|report| report.kernel.clone()),
            outcome,
            ..rounds[0].report.clone()
        },
        round_medians: measured.iter().map(|round| round.median()).collect(),
        ..rounds[0].clone()
    }
}

/// Groups items by key, in the order of first occurrence.
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

/// Removes duplicates, keeping the order of first occurrence.
pub fn distinct<T: PartialEq + Copy>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let groups = group(items, |item| *item).into_iter();
    groups.map(|(item, _)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_utils::{failed_line, line};

    #[test]
    fn rounds_are_merged() {
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
        assert_eq!(pooled[0].flops_per_second(), Some(256e6 / 0.003));
    }

    #[test]
    fn one_failed_round_fails_the_case() {
        let bad = failed_line("a", 256, Outcome::TimedOut { seconds: 1.0 });
        let lines = [line("a", 256, &[1.0]), bad.clone(), line("a", 256, &[1.0])];
        assert_eq!(pool(&lines)[0].report, bad.report);
    }

    #[test]
    fn ratio_has_the_range_over_rounds() {
        let rounds = |times: [f64; 2]| pool(&times.map(|ms| line("a", 256, &[ms, ms, ms])));
        let ratio = rounds([4.0, 2.0])[0].ratio(&rounds([2.0, 2.0])[0]);
        let ratio = ratio.expect("both were measured");
        assert_eq!((ratio.low, ratio.high), (1.0, 2.0));
    }
}
