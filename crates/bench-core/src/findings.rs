//! Scaling of time and memory with sequence length, and crossover lengths between mechanisms.

use crate::burn;
use crate::library::Library;
use crate::pool::{distinct, group};
use crate::pytorch::SDPA;
use crate::record::{CaseLine, Measured};
use crate::table::section_title;
use crate::units::count;

/// Points `(n, cost)`, sorted by `n`.
type Curve = Vec<(f64, f64)>;

#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub backend: String,
    pub subject: String,
    pub times: Curve,
    pub memory: Curve,
}

impl Series {
    /// The library that was measured; `None` is ours.
    pub(crate) fn library(&self) -> Option<Library> {
        Library::of(&self.backend, &self.subject)
    }
}

/// The lines of one pair of plots (time and memory).
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Problem, pass and dtype.
    pub title: String,
    /// Title of the table [section](crate::table::sections) with the same cases.
    pub section: String,
    pub series: Vec<Series>,
}

/// The plots of a run, in measuring order. A plot needs several lengths.
pub fn families(cases: &[CaseLine]) -> Vec<Family> {
    let cases = cases.iter().filter(|case| !case.is_matmul());
    let families = group(cases, |case| {
        let id = &case.id;
        format!("{}, {}, {}", id.problem, id.pass, id.dtype)
    });
    let family = |(title, mut members): (String, Vec<&CaseLine>)| {
        members.sort_by_key(|case| case.id.n);
        let series = series(&members);
        let is_plotted = series.iter().any(|line| line.times.len() > 1);
        is_plotted.then(|| Family {
            title,
            section: section_title(members[0]),
            series,
        })
    };
    families.into_iter().filter_map(family).collect()
}

fn series(members: &[&CaseLine]) -> Vec<Series> {
    let measured = members.iter().filter(|case| case.samples().is_some());
    let groups = group(measured, |case| (&case.id.backend, &case.id.subject));
    let mut series = Vec::new();
    for ((backend, subject), cases) in groups {
        let curve = |cost: fn(&Measured) -> Option<f64>| -> Curve {
            let point = |case: &&&CaseLine| Some((case.id.n as f64, cost(case.samples()?)?));
            cases.iter().filter_map(point).collect()
        };
        series.push(Series {
            backend: backend.clone(),
            subject: subject.clone(),
            times: curve(|samples| Some(samples.median())),
            memory: curve(|samples| Some(samples.peak.as_ref()?.bytes as f64)),
        });
    }
    series
}

/// Mechanisms that the others are compared with.
const REFERENCES: [&str; 4] = ["flash", "standard", SDPA, burn::SUBJECT];

/// Sentences on how time and memory scale, and where a mechanism overtakes `flash`, `standard` or
/// the attention of another library, or is overtaken.
pub fn findings(families: &[Family]) -> Vec<String> {
    let mut findings = Vec::new();
    for family in families {
        let backends = distinct(family.series.iter().map(|series| &series.backend));
        let name = |series: &Series| match &backends[..] {
            [_] => series.subject.clone(),
            _ => format!("{} {}", series.backend, series.subject),
        };
        let is_reference = |series: &Series| REFERENCES.contains(&series.subject.as_str());
        for series in &family.series {
            let growth = |(cost, curve): (&str, &Curve)| {
                let PowerLaw { exponent, from, to } = power_law(curve)?;
                let (from, to) = (count(from as usize), count(to as usize));
                Some(format!(
                    "{cost} grows as n^{exponent:.2} (n = {from} to {to})"
                ))
            };
            let curves = [("time", &series.times), ("memory", &series.memory)];
            let growth: Vec<String> = curves.into_iter().filter_map(growth).collect();
            if !growth.is_empty() {
                let (title, backend, subject) = (&family.title, &series.backend, &series.subject);
                findings.push(format!(
                    "{title}: {backend} {subject}: {}",
                    growth.join(", ")
                ));
            }
        }
        for (i, first) in family.series.iter().enumerate() {
            for second in &family.series[i + 1..] {
                if !is_reference(first) && !is_reference(second) {
                    continue;
                }
                let Some(crossing) = crossing(&first.times, &second.times) else {
                    continue;
                };
                let (winner, loser) = if crossing.first_overtakes {
                    (first, second)
                } else {
                    (second, first)
                };
                // An interpolated length has two significant digits.
                let unit = 10f64.powf((crossing.n.log10().floor() - 1.0).max(0.0));
                let n = count(((crossing.n / unit).round() * unit) as usize);
                let (title, winner, loser) = (&family.title, name(winner), name(loser));
                findings.push(format!("{title}: {winner} overtakes {loser} at n = {n}"));
            }
        }
    }
    findings
}

/// A fitted power law: `cost ≈ factor · n^exponent`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerLaw {
    pub exponent: f64,
    pub from: f64,
    pub to: f64,
}

/// Fits a power law to the longer half of a curve, at least three lengths: at short lengths,
/// fixed costs dominate. Returns `None` for fewer than three points.
pub fn power_law(curve: &[(f64, f64)]) -> Option<PowerLaw> {
    let usable: Vec<_> = curve
        .iter()
        .filter(|(n, cost)| *n > 0.0 && *cost > 0.0)
        .collect();
    if usable.len() < 3 {
        return None;
    }
    let half = &usable[usable.len() - usable.len().div_ceil(2).max(3)..];
    let logs: Vec<(f64, f64)> = half.iter().map(|(n, cost)| (n.ln(), cost.ln())).collect();
    let count = logs.len() as f64;
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (x, y) in logs {
        covariance += (x - mean_x) * (y - mean_y);
        variance += (x - mean_x) * (x - mean_x);
    }
    (variance > 0.0).then(|| PowerLaw {
        exponent: covariance / variance,
        from: half[0].0,
        to: half[half.len() - 1].0,
    })
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossing {
    /// Interpolated length.
    pub n: f64,
    /// Whether the first curve is the lower one beyond `n`.
    pub first_overtakes: bool,
}

/// The last crossing of two curves, by log-log interpolation between their common lengths. Curves
/// with fewer than three of them, or that do not differ by more than the noise on both sides, have
/// none.
pub fn crossing(first: &[(f64, f64)], second: &[(f64, f64)]) -> Option<Crossing> {
    const MIN_LENGTHS: usize = 3;
    const MIN_RATIO: f64 = 1.15;
    let difference = |(n, a): &(f64, f64)| {
        let (_, b) = second.iter().find(|(other, _)| other == n)?;
        Some((n.ln(), a.ln() - b.ln()))
    };
    let common: Vec<(f64, f64)> = first.iter().filter_map(difference).collect();
    let exceeds_noise = |sign: f64| common.iter().any(|(_, d)| sign * d > MIN_RATIO.ln());
    if common.len() < MIN_LENGTHS || !exceeds_noise(1.0) || !exceeds_noise(-1.0) {
        return None;
    }
    let mut pairs = common.windows(2).rev();
    let pair = pairs.find(|pair| pair[0].1 * pair[1].1 < 0.0)?;
    let [(x0, d0), (x1, d1)] = [pair[0], pair[1]];
    Some(Crossing {
        n: (x0 + (x1 - x0) * d0 / (d0 - d1)).exp(),
        first_overtakes: d1 < 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::pool;
    use crate::test_utils::{as_model, line, on_backend};

    #[test]
    fn one_length_is_not_plotted() {
        let model = |name: &str, n: usize| as_model(name, line("flash", n, &[n as f64]));
        let lines = [
            model("gpt-small", 64),
            model("gpt-small", 128),
            model("han-small", 64),
            line("flash", 64, &[1.0]),
        ];
        let families = families(&pool(&lines));
        assert_eq!(families.len(), 1);
        assert_eq!(families[0].title, "gpt-small, forward, f32");
        assert_eq!(families[0].section, "models, forward, f32");
    }

    #[test]
    fn findings_report_growth_and_crossing() {
        let lines = |subject: &str, cost: fn(f64) -> f64| {
            [256, 512, 1024, 2048].map(|n| line(subject, n, &[cost(n as f64)]))
        };
        let findings_with = |second: [CaseLine; 4]| {
            let lines = [lines("standard", |n| 1e-6 * n * n), second].concat();
            findings(&families(&pool(&lines))).join("\n")
        };
        let crossing = findings_with(lines("linear", |n| 1e-3 * n));
        for text in [
            "standard: time grows as n^2.00",
            "memory grows as n^2.00",
            "linear overtakes standard at n = 1,000",
        ] {
            assert!(crossing.contains(text), "{crossing}");
        }
        // A crossing within the noise is not reported: 10% slower, then 10% faster.
        let noisy = findings_with(lines("dot", |n| {
            1e-6 * n * n * if n < 1e3 { 1.1 } else { 0.9 }
        }));
        assert!(!noisy.contains("overtakes"), "{noisy}");
    }

    #[test]
    fn crossings_are_with_references_and_name_the_backends() {
        let lines = |backend: &str, subject: &str, cost: fn(f64) -> f64| {
            let line = |n: usize| on_backend(backend, line(subject, n, &[cost(n as f64)]));
            [256, 512, 1024, 2048].map(line)
        };
        let found = |lines: &[[CaseLine; 4]]| {
            let findings = findings(&families(&pool(&lines.concat())));
            let crossings = findings.into_iter();
            crossings
                .filter(|text| text.contains("overtakes"))
                .collect::<Vec<_>>()
        };
        let crossings = found(&[
            lines("flex", "dot", |n| 1e-6 * n * n),
            lines("flex", "flash", |n| 1e-6 * n * n),
            lines("flex", "linear", |n| 1e-3 * n),
            lines("pytorch", "plain", |n| 1e-6 * n * n),
            lines("pytorch", "linear", |n| 1e-3 * n),
        ]);
        let expected = [
            "layer, forward, f32: flex linear overtakes flex flash at n = 1,000",
            "layer, forward, f32: pytorch linear overtakes flex flash at n = 1,000",
        ];
        assert_eq!(crossings, expected);
    }

    fn curve(cost: impl Fn(f64) -> f64) -> Curve {
        let lengths = (7..=14).map(|power| f64::from(1 << power));
        lengths.map(|n| (n, cost(n))).collect()
    }

    #[test]
    fn power_law_ignores_fixed_cost() {
        let fitted = power_law(&curve(|n| 3.0 * n * n + 1e4)).expect("eight lengths");
        assert!((fitted.exponent - 2.0).abs() < 0.01, "{fitted:?}");
        assert_eq!((fitted.from, fitted.to), (2048.0, 16_384.0));
        assert_eq!(power_law(&[(1.0, 1.0), (2.0, 2.0)]), None);
    }

    /// 1e-9·n² meets 1e-6·n at n = 1000.
    #[test]
    fn crossing_is_where_costs_are_equal() {
        let (square, line) = (curve(|n| 1e-9 * n * n), curve(|n| 1e-6 * n));
        let found = crossing(&line, &square).expect("they cross");
        assert!((found.n - 1000.0).abs() < 1.0, "{found:?}");
        assert!(found.first_overtakes);
        let found = crossing(&square, &line).expect("they cross");
        assert!(!found.first_overtakes);
        assert_eq!(crossing(&line, &curve(|n| 2e-6 * n)), None);
        let ends = |curve: &Curve| [curve[0], curve[curve.len() - 1]];
        assert_eq!(crossing(&ends(&line), &ends(&square)), None);
    }
}
