//! Comparison of two runs, case by case: changes beyond the noise.

use std::fmt::Write;

use zoo_spec::names;

use crate::pool::distinct;
use crate::record::{CaseId, CaseLine};
use crate::table::{Cell, render_table};

#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Cells of the row: case, times or outcomes before and after, their ratio, and the noise.
    cells: [String; 5],
    pub verdict: Verdict,
}

names! {
    pub enum Verdict: "verdict" {
        Same = "no change",
        Faster = "faster",
        Slower = "SLOWER",
        /// Measured before, not measured now.
        Broken = "BROKEN",
        /// Not measured before, measured now.
        Fixed = "fixed",
        /// Only in the first run.
        Removed = "removed",
        /// Only in the second run.
        New = "new",
    }
}

impl Verdict {
    pub fn is_regression(self) -> bool {
        matches!(self, Self::Slower | Self::Broken)
    }
}

/// Compares two runs in the order of the second; cases only in the first come last.
pub fn compare(before: &[CaseLine], after: &[CaseLine]) -> Vec<Change> {
    let ids = distinct(after.iter().chain(before).map(|case| &case.id));
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let change = |id: &CaseId| {
        let runs = [before, after].map(|run| run.iter().find(|case| case.id == *id));
        let [then, now] = runs.map(|case| case.map(|case| case.report.outcome.summary()));
        let [measured_then, measured_now] =
            runs.map(|case| case.is_some_and(|case| case.samples().is_some()));
        let both = runs[1].zip(runs[0]);
        let noise = both.and_then(|(now, then)| now.noise(then));
        let ratio = both.and_then(|(now, then)| now.ratio(then));
        let ratio = ratio.map(|ratio| ratio.ratio);
        let change = both.and_then(|(now, then)| now.significant_ratio(then));
        let verdict = match (change, measured_then, measured_now) {
            _ if then.is_none() => Verdict::New,
            _ if now.is_none() => Verdict::Removed,
            (Some(ratio), ..) if ratio > 1.0 => Verdict::Slower,
            (Some(_), ..) => Verdict::Faster,
            (None, true, false) => Verdict::Broken,
            (None, false, true) => Verdict::Fixed,
            (None, ..) => Verdict::Same,
        };
        let cells = [
            id.to_string(),
            or_dash(then),
            or_dash(now),
            or_dash(ratio.map(|ratio| format!("{ratio:.2}"))),
            or_dash(noise.map(|noise| format!("{:.0}%", noise * 100.0))),
        ];
        Change { cells, verdict }
    };
    ids.into_iter().map(change).collect()
}

pub fn render(changes: &[Change]) -> String {
    let row = |change: &Change| -> Vec<Cell> {
        let cells = change.cells.iter().cloned();
        let cells = cells.chain([change.verdict.to_string()]);
        cells.map(|text| Cell { text, best: false }).collect()
    };
    let rows: Vec<Vec<Cell>> = changes.iter().map(row).collect();
    let header = ["case", "before", "after", "ratio", "noise", "verdict"];
    let mut text = render_table(&header, &rows, 2) + "\n";
    let num = |verdict: fn(Verdict) -> bool| changes.iter().filter(|c| verdict(c.verdict)).count();
    let worse = num(Verdict::is_regression);
    let better = num(|verdict| matches!(verdict, Verdict::Faster | Verdict::Fixed));
    let other = num(|verdict| matches!(verdict, Verdict::Removed | Verdict::New));
    let same = changes.len() - worse - better - other;
    let _ = write!(text, "{same} unchanged, {better} better, {worse} worse");
    if other > 0 {
        let _ = write!(text, ", {other} only in one run");
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
    use crate::pool::pool;
    use crate::record::Outcome;
    use crate::test_utils::{failed_line, line};

    #[test]
    fn verdicts_depend_on_the_noise_of_the_samples() {
        let run = |subject, milliseconds: &[f64]| pool(&[line(subject, 256, milliseconds)]);
        let quiet = run("a", &[10.0, 10.1, 10.0, 9.9, 10.0]);
        let noisy = run("a", &[10.0, 13.0, 10.0, 8.0, 10.0]);
        let slower = run("a", &[11.5, 11.6, 11.5, 11.4, 11.5]);
        let other = run("b", &[1.0]);
        let message = "panicked".to_owned();
        let broken = pool(&[failed_line("a", 256, Outcome::Failed { message })]);
        let only_one = &[Verdict::New, Verdict::Removed][..];
        for (before, after, verdicts, summary) in [
            (&quiet, &quiet, &[Verdict::Same][..], ": no change"),
            (&quiet, &slower, &[Verdict::Slower], "1 worse"),
            (&slower, &quiet, &[Verdict::Faster], "1 better"),
            (&noisy, &slower, &[Verdict::Same], ": no change"),
            (&quiet, &broken, &[Verdict::Broken], "1 worse"),
            (&broken, &quiet, &[Verdict::Fixed], "1 better"),
            (&quiet, &other, only_one, "2 only in one"),
        ] {
            let changes = compare(before, after);
            let found: Vec<_> = changes.iter().map(|change| change.verdict).collect();
            assert_eq!(found, verdicts);
            let text = render(&changes);
            assert!(text.contains(summary), "{text}");
        }
    }
}
