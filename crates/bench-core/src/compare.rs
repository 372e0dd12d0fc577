//! Two runs, case by case: what changed beyond the noise.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use crate::pool::{Pool, Pooled, Samples};
use crate::table::{name, word};
use crate::units::time;

/// What became of one case from one run to the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The case, in a line.
    pub name: String,
    /// How it was, and how it is.
    pub before: String,
    /// How it is.
    pub after: String,
    /// The second median over the first, where both have one.
    pub ratio: Option<f64>,
    /// How far the ratio may be from 1 and mean nothing.
    pub noise: Option<f64>,
    /// What that comes to.
    pub verdict: Verdict,
}

/// What a change comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Within the noise.
    Same,
    /// Faster beyond the noise.
    Faster,
    /// Slower beyond the noise.
    Slower,
    /// It had a time and has none any more.
    Broken,
    /// It has a time and had none.
    Mended,
    /// Only in the first run.
    Gone,
    /// Only in the second run.
    New,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Same => "no change",
            Self::Faster => "faster",
            Self::Slower => "SLOWER",
            Self::Broken => "BROKEN",
            Self::Mended => "mended",
            Self::Gone => "gone",
            Self::New => "new",
        }
    }

    /// Whether somebody should look at it.
    pub fn is_regression(self) -> bool {
        matches!(self, Self::Slower | Self::Broken)
    }
}

/// The least change that is ever called one: below it, the same program measured
/// twice on a quiet machine differs by where its memory happened to lie.
const LEAST: f64 = 0.05;

/// How far from its median a case's samples and the medians of its rounds lie.
fn spread(samples: &Samples) -> f64 {
    let median = samples.median();
    let far = |x: f64| (x / median).max(median / x) - 1.0;
    let rounds = samples.round_medians.iter().copied();
    let percentiles = [samples.quantile(0.1), samples.quantile(0.9)];
    rounds.chain(percentiles).map(far).fold(0.0, f64::max)
}

/// Compares two runs, case by case, in the order of the second; what is only in
/// the first comes last.
pub fn compare(before: &[Pooled], after: &[Pooled]) -> Vec<Change> {
    let mut changes: Vec<Change> = after
        .iter()
        .map(|now| {
            let then = before.iter().find(|then| then.id == now.id);
            change(then, now)
        })
        .collect();
    let gone = before
        .iter()
        .filter(|then| after.iter().all(|now| now.id != then.id));
    changes.extend(gone.map(|then| Change {
        name: name(&then.id),
        before: describe(then),
        after: "-".to_owned(),
        ratio: None,
        noise: None,
        verdict: Verdict::Gone,
    }));
    changes
}

fn change(then: Option<&Pooled>, now: &Pooled) -> Change {
    let samples = then.and_then(Pooled::samples).zip(now.samples());
    let (ratio, noise) = samples
        .map(|(then, now)| {
            let noise = spread(then).hypot(spread(now)).max(LEAST);
            (now.median() / then.median(), noise)
        })
        .unzip();
    let verdict = match (then, ratio, noise) {
        (_, Some(ratio), Some(noise)) if ratio > 1.0 + noise => Verdict::Slower,
        (_, Some(ratio), Some(noise)) if ratio < 1.0 / (1.0 + noise) => Verdict::Faster,
        (_, Some(_), _) => Verdict::Same,
        (None, ..) => Verdict::New,
        (Some(then), ..) => match (then.samples(), now.samples()) {
            (Some(_), None) => Verdict::Broken,
            (None, Some(_)) => Verdict::Mended,
            _ => Verdict::Same,
        },
    };
    Change {
        name: name(&now.id),
        before: then.map_or("-".to_owned(), describe),
        after: describe(now),
        ratio,
        noise,
        verdict,
    }
}

fn describe(case: &Pooled) -> String {
    match &case.result {
        Pool::Samples(samples) => time(samples.median()),
        Pool::Without(outcome) => word(outcome).to_owned(),
    }
}

/// The changes as a table, and a line that sums them up.
pub fn show(changes: &[Change]) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_BORDERS_ONLY)
        .set_header(["case", "before", "after", "ratio", "noise", "verdict"]);
    for change in changes {
        table.add_row([
            change.name.clone(),
            change.before.clone(),
            change.after.clone(),
            change
                .ratio
                .map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            change
                .noise
                .map_or("-".to_owned(), |noise| format!("{:.0}%", noise * 100.0)),
            change.verdict.word().to_owned(),
        ]);
    }
    for column in table.column_iter_mut().skip(1).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let of = |verdict: fn(Verdict) -> bool| changes.iter().filter(|c| verdict(c.verdict)).count();
    let worse = of(Verdict::is_regression);
    let better = of(|verdict| matches!(verdict, Verdict::Faster | Verdict::Mended));
    let other = of(|verdict| matches!(verdict, Verdict::Gone | Verdict::New));
    let same = changes.len() - worse - better - other;
    let mut text = format!("{table}\n");
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
    use crate::pool::pool;
    use crate::record::Outcome;
    use crate::record::tests::line;

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
