//! Two runs, case by case: what changed beyond the noise.

use std::fmt::Write;

use zoo_spec::words;

use crate::pool::{Pooled, distinct};
use crate::record::CaseId;
use crate::table::{Cell, drawn};

/// What became of one case from one run to the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The case, its times or outcomes, their ratio, and how far that may be from 1 and mean
    /// nothing: the cells of a row.
    cells: [String; 5],
    /// What that comes to.
    pub verdict: Verdict,
}

words! {
    /// What a change comes to.
    pub enum Verdict: "verdict" {
        /// Within the noise.
        Same = "no change",
        /// Faster beyond the noise.
        Faster = "faster",
        /// Slower beyond the noise.
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
fn spread(case: &Pooled) -> Option<f64> {
    let samples = case.samples()?;
    let median = samples.median();
    let far = |x: f64| (x / median).max(median / x) - 1.0;
    let rounds = case.round_medians.iter().copied();
    let percentiles = [samples.quantile(0.1), samples.quantile(0.9)];
    Some(rounds.chain(percentiles).map(far).fold(0.0, f64::max))
}

/// Compares two runs, case by case, in the order of the second; what is only in
/// the first comes last.
pub fn compare(before: &[Pooled], after: &[Pooled]) -> Vec<Change> {
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
            or_dash(then.map(|case| case.outcome.summary())),
            or_dash(now.map(|case| case.outcome.summary())),
            or_dash(ratio.map(|ratio| format!("{:.2}", ratio.ratio))),
            or_dash(noise.map(|noise| format!("{:.0}%", noise * 100.0))),
        ];
        Change { cells, verdict }
    };
    ids.into_iter().map(change).collect()
}

/// The noise of a case that is in both runs, if both have times, and what its change comes to.
fn judged(then: &Pooled, now: &Pooled) -> (Option<f64>, Verdict) {
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

    fn verdict(before: &[f64], after: &[f64]) -> Verdict {
        let before = pool(&[line("a", 256, before)]);
        let after = pool(&[line("a", 256, after)]);
        compare(&before, &after)[0].verdict
    }

    #[test]
    fn the_noise_comes_from_the_samples() {
        let quiet = [10.0, 10.1, 10.0, 9.9, 10.0];
        let noisy = [10.0, 13.0, 10.0, 8.0, 10.0];
        let quiet_but_slower = [11.5, 11.6, 11.5, 11.4, 11.5];
        assert_eq!(verdict(&quiet, &quiet), Verdict::Same);
        assert_eq!(verdict(&quiet, &quiet_but_slower), Verdict::Slower);
        assert_eq!(verdict(&quiet_but_slower, &quiet), Verdict::Faster);
        assert_eq!(verdict(&noisy, &quiet_but_slower), Verdict::Same);
    }

    #[test]
    fn a_case_that_lost_its_time_is_a_regression() {
        let mut wrong = line("a", 256, &[]);
        wrong.outcome = Outcome::Failed {
            message: "it fell".to_owned(),
        };
        let (fine, broken) = (pool(&[line("a", 256, &[1.0])]), pool(&[wrong]));
        let changes = compare(&fine, &broken);
        assert!(changes[0].verdict.is_regression());
        assert!(show(&changes).contains("1 worse"));
        assert_eq!(compare(&broken, &fine)[0].verdict, Verdict::Mended);
    }

    #[test]
    fn cases_of_one_run_only_are_said_to_be() {
        let (a, b) = (
            pool(&[line("a", 256, &[1.0])]),
            pool(&[line("b", 256, &[1.0])]),
        );
        let changes = compare(&a, &b);
        let verdicts: Vec<_> = changes.iter().map(|change| change.verdict).collect();
        assert_eq!(verdicts, [Verdict::New, Verdict::Gone]);
        assert!(show(&changes).contains("2 in one of the runs only"));
    }

    #[test]
    fn the_same_run_twice_is_no_change() {
        let run = pool(&[line("a", 256, &[1.0, 1.1])]);
        assert!(show(&compare(&run, &run)).contains(": no change"));
    }
}
