//! What a run shows: its curves, how they grow, and who overtakes whom.

use crate::fit::{Curve, PowerLaw, crossing, power_law};
use crate::pool::{Pooled, group};
use crate::table::section_of;
use crate::units::count;

/// What is drawn as one line: everything of a case but its length.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The backend's word.
    pub backend: String,
    /// The mechanism.
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
    /// Its lines.
    pub series: Vec<Series>,
}

/// The families of a run, in the order their problems were measured. Models are one where
/// they were measured at several lengths: of one there is nothing to draw.
pub fn families(cases: &[Pooled]) -> Vec<Family> {
    let cases = cases.iter().filter(|case| !case.is_matmul());
    let families = group(cases, |case| {
        let id = &case.id;
        format!("{}, {}, {}", id.problem, id.pass, id.dtype)
    });
    let family = |(title, mut members): (String, Vec<&Pooled>)| {
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

fn series(members: &[&Pooled]) -> Vec<Series> {
    let points = members.iter().filter_map(|case| {
        let samples = case.samples()?;
        Some((&case.id, case.id.n as f64, samples))
    });
    let lines = group(points, |(id, ..)| (&id.backend, &id.subject));
    let line = lines
        .into_iter()
        .map(|((backend, subject), points)| Series {
            backend: backend.clone(),
            subject: subject.clone(),
            times: points
                .iter()
                .map(|(_, n, samples)| (*n, samples.median()))
                .collect(),
            memory: points
                .iter()
                .filter_map(|(_, n, samples)| Some((*n, samples.peak.as_ref()?.bytes as f64)))
                .collect(),
        });
    line.collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::for_tests::{line, of_model};
    use crate::pool::pool;

    #[test]
    fn what_goes_side_by_side_overtakes_nobody() {
        let mut lines = Vec::new();
        for (n, slower) in [(256, 1.1), (512, 0.9)] {
            lines.push(line("flash", n, &[1e-3]));
            lines.push(line("dot", n, &[1e-3 * slower]));
        }
        let findings = findings(&families(&pool(&lines)));
        let overtakes = findings.iter().any(|line| line.contains("overtakes"));
        assert!(!overtakes, "{findings:?}");
    }

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
        let mut lines = Vec::new();
        for n in [256, 512, 1024, 2048] {
            let n_f = n as f64;
            lines.push(line("standard", n, &[1e-6 * n_f * n_f]));
            lines.push(line("linear", n, &[1e-3 * n_f]));
        }
        let findings = findings(&families(&pool(&lines)));
        let has = |text: &str| findings.iter().any(|line| line.contains(text));
        assert!(has("standard: time grows as n^2.00"), "{findings:?}");
        assert!(has("memory grows as n^2.00"), "{findings:?}");
        assert!(
            has("linear overtakes standard at n = 1,000"),
            "{findings:?}"
        );
    }
}
