//! The rounds of a case put together, and what its samples say.

use crate::record::{CaseId, CaseLine, Outcome, Peak};

/// A case over all its rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Pooled {
    /// What was measured.
    pub id: CaseId,
    /// Floating-point operations of its matmuls.
    pub work: f64,
    /// Bytes no way of computing it can do without.
    pub minimum_bytes: u64,
    /// Tokens of a pass, of a model.
    pub tokens: Option<usize>,
    /// Numbers that the model has learned.
    pub parameters: Option<u64>,
    /// The device it ran on, if one was reached.
    pub device: Option<String>,
    /// What computed it there, if it said so.
    pub body: Option<String>,
    /// What became of it.
    pub result: Pool,
}

/// What became of a case over all its rounds.
#[derive(Debug, Clone, PartialEq)]
pub enum Pool {
    /// Every round computed the right thing.
    Samples(Samples),
    /// The first outcome that has no time: one is enough to distrust the case.
    Without(Outcome),
}

/// The measurements of all rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    /// Sorted, in seconds.
    seconds: Vec<f64>,
    /// The median of each round.
    pub round_medians: Vec<f64>,
    /// The most memory of any round.
    pub peak: Option<Peak>,
    /// The worst error of any round.
    pub error: Option<f64>,
    /// What else was looked at in the first round, and found right.
    pub checked: Option<String>,
}

impl Samples {
    /// The time that `share` of the samples are below.
    pub fn quantile(&self, share: f64) -> f64 {
        quantile(&self.seconds, share)
    }

    /// The median, in seconds.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.seconds.len()
    }
}

/// The number that `share` of the sorted numbers are below; NaN of none.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    match sorted.len() {
        0 => f64::NAN,
        len => sorted[((len - 1) as f64 * share).round() as usize],
    }
}

/// The median of numbers in any order; NaN of none.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

impl Pooled {
    /// Its samples, unless it has none.
    pub fn samples(&self) -> Option<&Samples> {
        match &self.result {
            Pool::Samples(samples) => Some(samples),
            Pool::Without(_) => None,
        }
    }

    /// Floating-point operations per second at the median, where they were counted.
    pub fn rate(&self) -> Option<f64> {
        let samples = self.samples().filter(|_| self.work > 0.0)?;
        Some(self.work / samples.median())
    }

    /// Tokens per second at the median, of a model.
    pub fn tokens_per_second(&self) -> Option<f64> {
        Some(self.tokens? as f64 / self.samples()?.median())
    }

    /// Whether it is of a model.
    pub fn is_model(&self) -> bool {
        self.tokens.is_some()
    }
}

/// Puts the rounds of each case together, in the order cases first ended.
pub fn pool(lines: &[CaseLine]) -> Vec<Pooled> {
    let mut pooled: Vec<Pooled> = Vec::new();
    for line in lines {
        match pooled.iter_mut().find(|pooled| pooled.id == line.id) {
            Some(pooled) => pooled.add(line),
            None => {
                let mut first = Pooled {
                    id: line.id.clone(),
                    work: line.work,
                    minimum_bytes: line.minimum_bytes,
                    tokens: line.tokens,
                    parameters: line.parameters,
                    device: None,
                    body: None,
                    result: Pool::Samples(Samples {
                        seconds: Vec::new(),
                        round_medians: Vec::new(),
                        peak: None,
                        error: None,
                        checked: None,
                    }),
                };
                first.add(line);
                pooled.push(first);
            }
        }
    }
    pooled
}

impl Pooled {
    fn add(&mut self, line: &CaseLine) {
        if self.body.is_none() {
            self.body = line.body.clone();
        }
        if self.device.is_none() {
            self.device = line.device.clone();
        }
        let Pool::Samples(samples) = &mut self.result else {
            return;
        };
        match &line.outcome {
            Outcome::Measured(measured) => {
                samples
                    .round_medians
                    .push(median(measured.seconds.iter().copied()));
                samples.seconds.extend(&measured.seconds);
                samples.seconds.sort_by(f64::total_cmp);
                samples.error = larger(samples.error, measured.error);
                if samples.checked.is_none() {
                    samples.checked = measured.checked.clone();
                }
                let most = samples.peak.as_ref().map_or(0, |peak| peak.bytes);
                if let Some(peak) = measured.peak.as_ref().filter(|peak| peak.bytes >= most) {
                    samples.peak = Some(peak.clone());
                }
            }
            other => self.result = Pool::Without(other.clone()),
        }
    }
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

/// One side's time as a ratio of the other's: of the medians, and of the medians
/// round by round, lowest and highest, which says how far to trust it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Of the pooled medians.
    pub ratio: f64,
    /// The lowest of any round.
    pub low: f64,
    /// The highest of any round.
    pub high: f64,
}

/// How many times as long as `other` this one took.
pub fn ratio(this: &Samples, other: &Samples) -> Ratio {
    let ratio = this.median() / other.median();
    let rounds = this.round_medians.iter().zip(&other.round_medians);
    let of_rounds = rounds.map(|(a, b)| a / b);
    Ratio {
        ratio,
        low: of_rounds.clone().fold(ratio, f64::min),
        high: of_rounds.fold(ratio, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::line;

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
        assert_eq!(samples.count(), 5);
        assert_eq!(samples.median(), 0.003);
        assert_eq!(samples.quantile(1.0), 0.005);
        assert_eq!(pooled[0].rate(), Some(256e6 / 0.003));
    }

    #[test]
    fn one_round_without_a_time_takes_the_time_of_all() {
        let mut bad = line("a", 256, &[]);
        bad.outcome = Outcome::TimedOut { seconds: 1.0 };
        let lines = [line("a", 256, &[1.0]), bad.clone(), line("a", 256, &[1.0])];
        assert_eq!(pool(&lines)[0].result, Pool::Without(bad.outcome));
    }

    #[test]
    fn a_ratio_carries_its_spread_over_rounds() {
        let rounds = |times: [f64; 2]| {
            let lines = times.map(|ms| line("a", 256, &[ms, ms, ms]));
            pool(&lines)[0].samples().expect("measured").clone()
        };
        let got = ratio(&rounds([4.0, 2.0]), &rounds([2.0, 2.0]));
        assert_eq!((got.low, got.high), (1.0, 2.0));
    }
}
