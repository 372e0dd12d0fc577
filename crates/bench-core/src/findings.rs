//! What a run shows: its curves, how cost grows with length, and who overtakes whom.

use crate::pool::group;
use crate::record::CaseLine;
use crate::table::section_of;
use crate::units::count;

/// Costs by length: `(n, cost)`, by rising `n`.
pub type Curve = Vec<(f64, f64)>;

/// What is drawn as one line: everything of a case but its length.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub backend: String,
    pub subject: String,
    /// Seconds by length.
    pub times: Curve,
    /// Bytes by length.
    pub memory: Curve,
}

/// Everything that belongs in one pair of plots.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Problem, pass, number type.
    pub title: String,
    /// The title of the [`section`](crate::table::sections) with its numbers.
    pub section: String,
    pub series: Vec<Series>,
}

/// The families of a run, in the order their problems were measured. Models are one where
/// they were measured at several lengths: of one there is nothing to draw.
pub fn families(cases: &[CaseLine]) -> Vec<Family> {
    let cases = cases.iter().filter(|case| !case.is_matmul());
    let families = group(cases, |case| {
        let id = &case.id;
        format!("{}, {}, {}", id.problem, id.pass, id.dtype)
    });
    let family = |(title, mut members): (String, Vec<&CaseLine>)| {
        members.sort_by_key(|case| case.id.n);
        let series = series(&members);
        let is_drawn = !members[0].is_model() || series.iter().any(|line| line.times.len() > 1);
        is_drawn.then(|| Family {
            title,
            section: section_of(members[0]),
            series,
        })
    };
    families.into_iter().filter_map(family).collect()
}

fn series(members: &[&CaseLine]) -> Vec<Series> {
    let points = members
        .iter()
        .filter_map(|case| Some((&case.id, case.samples()?)));
    let mut lines: Vec<Series> = Vec::new();
    for ((backend, subject), points) in group(points, |(id, _)| (&id.backend, &id.subject)) {
        let mut line = Series {
            backend: backend.clone(),
            subject: subject.clone(),
            times: Curve::new(),
            memory: Curve::new(),
        };
        for (id, samples) in points {
            line.times.push((id.n as f64, samples.median()));
            let peak = samples.peak.iter();
            line.memory
                .extend(peak.map(|peak| (id.n as f64, peak.bytes as f64)));
        }
        lines.push(line);
    }
    lines
}

/// How time and memory grow, and which mechanism overtakes which, in sentences.
pub fn findings(families: &[Family]) -> Vec<String> {
    let mut said = Vec::new();
    for family in families {
        for series in &family.series {
            let grows = |(what, curve): (&str, &Curve)| {
                let PowerLaw { exponent, from, to } = power_law(curve)?;
                let (from, to) = (count(from as usize), count(to as usize));
                Some(format!(
                    "{what} grows as n^{exponent:.2} (n = {from} to {to})"
                ))
            };
            let curves = [("time", &series.times), ("memory", &series.memory)];
            let grows: Vec<String> = curves.into_iter().filter_map(grows).collect();
            if !grows.is_empty() {
                let (title, backend, subject) = (&family.title, &series.backend, &series.subject);
                said.push(format!(
                    "{title}: {backend} {subject}: {}",
                    grows.join(", ")
                ));
            }
        }
        for (at, first) in family.series.iter().enumerate() {
            for second in &family.series[at + 1..] {
                let Some(crossing) = crossing(&first.times, &second.times) else {
                    continue;
                };
                // Two that go side by side cross at every noise.
                if !differ(&first.times, &second.times) {
                    continue;
                }
                let (winner, loser) = if crossing.first_overtakes {
                    (first, second)
                } else {
                    (second, first)
                };
                said.push(format!(
                    "{}: {} overtakes {} at n = {}",
                    family.title,
                    who(winner, loser),
                    who(loser, winner),
                    count(two_digits(crossing.n))
                ));
            }
        }
    }
    said
}

/// Whether two curves that cross are clearly apart before and after.
fn differ(first: &Curve, second: &Curve) -> bool {
    const CLEARLY: f64 = 1.15;
    let ratios: Vec<f64> = first
        .iter()
        .filter_map(|(n, a)| second.iter().find(|(m, _)| m == n).map(|(_, b)| a / b))
        .collect();
    let most = ratios.iter().copied().fold(f64::MIN, f64::max);
    let least = ratios.iter().copied().fold(f64::MAX, f64::min);
    most > CLEARLY && least < 1.0 / CLEARLY
}

/// A line's name, with its backend where the other's is different.
fn who(this: &Series, other: &Series) -> String {
    if this.backend == other.backend {
        this.subject.clone()
    } else {
        format!("{} {}", this.backend, this.subject)
    }
}

/// A length to two digits: it lies between two that were measured.
fn two_digits(n: f64) -> usize {
    let unit = 10f64.powf((n.log10().floor() - 1.0).max(0.0));
    ((n / unit).round() * unit) as usize
}

/// A power law through some points: `cost ≈ factor · n^exponent`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerLaw {
    pub exponent: f64,
    /// The shortest length it was fitted from.
    pub from: f64,
    pub to: f64,
}

/// Fits a power law to the longer half of a curve, three lengths or more: at
/// short lengths fixed costs hide how the rest grows. `None` of fewer than three.
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

/// A length at which one curve goes below another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossing {
    /// Where, between two lengths that were measured.
    pub n: f64,
    /// Whether the first curve is the lower one from there on.
    pub first_overtakes: bool,
}

/// The last length at which two curves cross, by straight lines on log axes
/// between the lengths both have.
pub fn crossing(first: &[(f64, f64)], second: &[(f64, f64)]) -> Option<Crossing> {
    let common: Vec<(f64, f64)> = first
        .iter()
        .filter_map(|(n, a)| {
            let (_, b) = second.iter().find(|(other, _)| other == n)?;
            Some((n.ln(), a.ln() - b.ln()))
        })
        .collect();
    common
        .windows(2)
        .rev()
        .find(|pair| pair[0].1 * pair[1].1 < 0.0)
        .map(|pair| {
            let [(x0, d0), (x1, d1)] = [pair[0], pair[1]];
            Crossing {
                n: (x0 + (x1 - x0) * d0 / (d0 - d1)).exp(),
                first_overtakes: d1 < 0.0,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::for_tests::{line, of_model};
    use crate::pool::pool;

    #[test]
    fn a_model_at_one_length_is_no_curve() {
        let model = |name: &str, n: usize| of_model(name, line("flash", n, &[n as f64]));
        let lines = [
            model("gpt-small", 64),
            model("gpt-small", 128),
            model("han-small", 64),
        ];
        let families = families(&pool(&lines));
        let titles: Vec<_> = families.iter().map(|f| (&*f.title, &*f.section)).collect();
        assert_eq!(
            titles,
            [("gpt-small, forward, f32", "models, forward, f32")]
        );
    }

    #[test]
    fn findings_name_growth_and_the_crossing() {
        let of = |subject: &str, cost: fn(f64) -> f64| {
            [256, 512, 1024, 2048].map(|n| line(subject, n, &[cost(n as f64)]))
        };
        let said = |second: [CaseLine; 4]| {
            let lines = [of("standard", |n| 1e-6 * n * n), second].concat();
            findings(&families(&pool(&lines))).join("\n")
        };
        let crossing = said(of("linear", |n| 1e-3 * n));
        for text in [
            "standard: time grows as n^2.00",
            "memory grows as n^2.00",
            "linear overtakes standard at n = 1,000",
        ] {
            assert!(crossing.contains(text), "{crossing}");
        }
        // What goes side by side overtakes nobody: a tenth slower, then a tenth faster.
        let beside = said(of("dot", |n| {
            1e-6 * n * n * if n < 1e3 { 1.1 } else { 0.9 }
        }));
        assert!(!beside.contains("overtakes"), "{beside}");
    }

    fn curve(cost: impl Fn(f64) -> f64) -> Curve {
        (7..=14)
            .map(|power| f64::from(1 << power))
            .map(|n| (n, cost(n)))
            .collect()
    }

    #[test]
    fn a_power_is_found_again_under_a_fixed_cost() {
        let fitted = power_law(&curve(|n| 3.0 * n * n + 1e4)).expect("eight lengths");
        assert!((fitted.exponent - 2.0).abs() < 0.01, "{fitted:?}");
        assert_eq!((fitted.from, fitted.to), (2048.0, 16_384.0));
        assert_eq!(power_law(&[(1.0, 1.0), (2.0, 2.0)]), None);
    }

    /// 1e-9·n² meets 1e-6·n at n = 1000.
    #[test]
    fn the_crossing_lies_where_the_costs_are_equal() {
        let (square, line) = (curve(|n| 1e-9 * n * n), curve(|n| 1e-6 * n));
        let found = crossing(&line, &square).expect("they cross");
        assert!((found.n - 1000.0).abs() < 1.0, "{found:?}");
        assert!(found.first_overtakes);
        assert!(
            !crossing(&square, &line)
                .expect("they cross")
                .first_overtakes
        );
        assert_eq!(crossing(&line, &curve(|n| 2e-6 * n)), None);
    }
}
