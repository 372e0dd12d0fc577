//! Two runs, case by case: what changed beyond the noise.

use std::fmt::Write;

use zoo_spec::words;

use crate::pool::distinct;
use crate::record::{CaseId, CaseLine};
use crate::table::{Cell, drawn};

/// What became of one case from one run to the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The case, its times or outcomes, their ratio, and how far that may be from 1 and mean
    /// nothing: the cells of a row.
    cells: [String; 5],
    pub verdict: Verdict,
}

words! {
    pub enum Verdict: "verdict" {
        /// Within the noise.
        Same = "no change",
        Faster = "faster",
        Slower = "SLOWER",
        /// It had a time and has none any more.
        Broken = "BROKEN",
        /// It has a time and had none.
        Mended = "mended",
        /// Only in the first run.
        Gone = "gone",
        /// Only in the second run.
        New = "new",
    }
}

impl Verdict {
    /// Whether somebody should look at it.
    pub fn is_regression(self) -> bool {
        matches!(self, Self::Slower | Self::Broken)
    }
}

/// The least change that is ever called one: below it, the same program measured
/// twice on a quiet machine differs by where its memory happened to lie.
const LEAST: f64 = 0.05;

/// How far from its median a case's samples and the medians of its rounds lie.
fn spread(case: &CaseLine) -> Option<f64> {
    let samples = case.samples()?;
    let median = samples.median();
    let far = |x: f64| (x / median).max(median / x) - 1.0;
    let rounds = case.round_medians.iter().copied();
    let percentiles = [samples.quantile(0.1), samples.quantile(0.9)];
    Some(rounds.chain(percentiles).map(far).fold(0.0, f64::max))
}

/// Compares two runs, case by case, in the order of the second; what is only in
/// the first comes last.
pub fn compare(before: &[CaseLine], after: &[CaseLine]) -> Vec<Change> {
    let ids = distinct(after.iter().chain(before).map(|case| &case.id));
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let change = |id: &CaseId| {
        let [then, now] = [before, after].map(|run| run.iter().find(|case| case.id == *id));
        let (noise, verdict) = match (then, now) {
            (Some(then), Some(now)) => judged(then, now),
            (None, _) => (None, Verdict::New),
            (_, None) => (None, Verdict::Gone),
        };
        let ratio = now.zip(then).and_then(|(now, then)| now.ratio(then));
        let cells = [
            id.to_string(),
            or_dash(then.map(|case| case.report.outcome.summary())),
            or_dash(now.map(|case| case.report.outcome.summary())),
            or_dash(ratio.map(|ratio| format!("{:.2}", ratio.ratio))),
            or_dash(noise.map(|noise| format!("{:.0}%", noise * 100.0))),
        ];
        Change { cells, verdict }
    };
    ids.into_iter().map(change).collect()
}

/// The noise of a case that is in both runs, if both have times, and what its change comes to.
fn judged(then: &CaseLine, now: &CaseLine) -> (Option<f64>, Verdict) {
    let noise = spread(then)
        .zip(spread(now))
        .map(|(then, now)| then.hypot(now).max(LEAST));
    let ratio = now.ratio(then).map(|ratio| ratio.ratio);
    let verdict = match ratio.zip(noise) {
        Some((ratio, noise)) if ratio > 1.0 + noise => Verdict::Slower,
        Some((ratio, noise)) if ratio < 1.0 / (1.0 + noise) => Verdict::Faster,
        Some(_) => Verdict::Same,
        None => match (then.samples(), now.samples()) {
            (Some(_), None) => Verdict::Broken,
            (None, Some(_)) => Verdict::Mended,
            _ => Verdict::Same,
        },
    };
    (noise, verdict)
}

/// The changes as a table, and a line that sums them up.
pub fn show(changes: &[Change]) -> String {
    let row = |change: &Change| -> Vec<Cell> {
        let cells = change.cells.iter().cloned();
        let cells = cells.chain([change.verdict.to_string()]);
        cells.map(|text| Cell { text, best: false }).collect()
    };
    let rows: Vec<Vec<Cell>> = changes.iter().map(row).collect();
    let header = ["case", "before", "after", "ratio", "noise", "verdict"];
    let mut text = drawn(&header, &rows, 2) + "\n";
    let of = |verdict: fn(Verdict) -> bool| changes.iter().filter(|c| verdict(c.verdict)).count();
    let worse = of(Verdict::is_regression);
    let better = of(|verdict| matches!(verdict, Verdict::Faster | Verdict::Mended));
    let other = of(|verdict| matches!(verdict, Verdict::Gone | Verdict::New));
    let same = changes.len() - worse - better - other;
    let _ = write!(
        text,
        "{same} without change, {better} better, {worse} worse"
    );
    if other > 0 {
        let _ = write!(text, ", {other} in one of the runs only");
    }
    if worse + better + other == 0 {
        text.push_str(": no change");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::for_tests::line;
    use crate::pool::pool;
    use crate::record::Outcome;

    #[test]
    fn the_noise_comes_from_the_samples() {
        let run = |subject, milliseconds: &[f64]| pool(&[line(subject, 256, milliseconds)]);
        let quiet = run("a", &[10.0, 10.1, 10.0, 9.9, 10.0]);
        let noisy = run("a", &[10.0, 13.0, 10.0, 8.0, 10.0]);
        let slower = run("a", &[11.5, 11.6, 11.5, 11.4, 11.5]);
        let other = run("b", &[1.0]);
        let mut broken = quiet.clone();
        let message = "it fell".to_owned();
        broken[0].report.outcome = Outcome::Failed { message };
        for (before, after, verdicts, summary) in [
            (&quiet, &quiet, &[Verdict::Same][..], ": no change"),
            (&quiet, &slower, &[Verdict::Slower], "1 worse"),
            (&slower, &quiet, &[Verdict::Faster], "1 better"),
            (&noisy, &slower, &[Verdict::Same], ": no change"),
            (&quiet, &broken, &[Verdict::Broken], "1 worse"),
            (&broken, &quiet, &[Verdict::Mended], "1 better"),
            (&quiet, &other, &[Verdict::New, Verdict::Gone], "2 in one"),
        ] {
            let changes = compare(before, after);
            let found: Vec<_> = changes.iter().map(|change| change.verdict).collect();
            assert_eq!(found, verdicts);
            let shown = show(&changes);
            assert!(shown.contains(summary), "{shown}");
        }
    }
}
