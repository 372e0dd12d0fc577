//! The answer as tables: one for each problem and pass, its rows by length, and one for all
//! models in a pass.

mod render;

pub use self::render::{LEGEND, remarks, skipped_lines, terminal};
pub(crate) use self::render::{drawn, is_number};
use crate::pool::{Ratio, distinct, group};
use crate::record::{CaseLine, Outcome};
use crate::units::{bytes, count, three_digits, time};

/// One problem in one pass, or all models.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Section {
    /// Problem, pass, number type.
    pub title: String,
    pub header: Vec<&'static str>,
    pub rows: Vec<Vec<Cell>>,
}

#[derive(Debug, Clone, PartialEq, Default, serde::Serialize)]
pub struct Cell {
    pub text: String,
    /// Whether it is the best of its column among the cases of its length.
    pub best: bool,
}

pub(crate) fn section_of(case: &CaseLine) -> String {
    let id = &case.id;
    let what = match case.is_model() {
        true => "models",
        false => &id.problem,
    };
    format!("{what}, {}, {}", id.pass, id.dtype)
}

/// The sections, in the order their problems were measured; with a column against an earlier
/// run, the `baseline`, if there is one.
pub fn sections(cases: &[CaseLine], baseline: Option<&[CaseLine]>) -> Vec<Section> {
    let shown = || cases.iter().filter(|case| !case.is_matmul());
    let names = distinct(shown().map(|case| &case.id.problem));
    let in_order = |case: &&CaseLine| {
        let place = names.iter().position(|name| **name == case.id.problem);
        (place, case.id.n)
    };
    let section = |(title, mut members): (String, Vec<&CaseLine>)| {
        members.sort_by_key(in_order);
        let header = header(&members, baseline.is_some());
        let row = |case: &&CaseLine| {
            let cell = |name: &&str| Cell {
                text: text(name, case, cases, baseline),
                best: is_best(name, case, &members),
            };
            header.iter().map(cell).collect()
        };
        Section {
            title,
            rows: members.iter().map(row).collect(),
            header,
        }
    };
    let sections = group(shown(), |case| section_of(case));
    sections.into_iter().map(section).collect()
}

fn header(members: &[&CaseLine], has_baseline: bool) -> Vec<&'static str> {
    let are_models = members.iter().any(|case| case.is_model());
    let mut header = if are_models { vec!["model"] } else { vec![] };
    header.extend(["n", "backend", "mechanism", "median", "10th", "90th"]);
    if are_models {
        header.push("tokens/s");
    }
    header.extend(["GFLOP/s", "of matmul", "memory", "by", "of least"]);
    if !are_models {
        header.extend(["error", "vs standard"]);
    }
    if members.iter().any(|case| case.id.backend == "pytorch") {
        header.push("vs PyTorch");
    }
    if has_baseline {
        header.push("vs baseline");
    }
    header
}

fn text(column: &str, case: &CaseLine, all: &[CaseLine], baseline: Option<&[CaseLine]>) -> String {
    let id = &case.id;
    match column {
        "model" => return id.problem.clone(),
        "n" => return count(id.n),
        "backend" => return id.backend.clone(),
        "mechanism" => return id.subject.clone(),
        _ => {}
    }
    let samples = match &case.report.outcome {
        Outcome::Measured(samples) => samples,
        outcome => return text_without(column, outcome),
    };
    let peak = samples.peak.as_ref();
    let said = match column {
        "median" => Some(time(samples.median())),
        "10th" => Some(time(samples.quantile(0.1))),
        "90th" => Some(time(samples.quantile(0.9))),
        "tokens/s" => case.tokens_per_second().map(three_digits),
        "GFLOP/s" => case.rate().map(|rate| three_digits(rate / 1e9)),
        "of matmul" => {
            let is_its = |other: &&CaseLine| {
                other.is_matmul() && other.id.backend == id.backend && other.id.dtype == id.dtype
            };
            let most = all.iter().find(is_its).and_then(CaseLine::rate);
            let rates = case.rate().zip(most);
            rates.map(|(rate, most)| format!("{:.0}%", 100.0 * rate / most))
        }
        "memory" => Some(peak.map_or("n/a".to_owned(), |peak| bytes(peak.bytes as f64))),
        "by" => peak.map(|peak| peak.how.clone()),
        "of least" if case.minimum_bytes > 0 => peak.map(|peak| {
            let ratio = peak.bytes as f64 / case.minimum_bytes as f64;
            format!("{}x", three_digits(ratio))
        }),
        "error" => samples.error.map(|error| format!("{error:.1e}")),
        "vs standard" => against_other(case, all, |other| {
            other.id.backend == id.backend && other.id.subject == "standard"
        }),
        // The best it has: its matmul, softmax and matmul are there to compare with.
        "vs PyTorch" => against_other(case, all, |other| {
            other.id.backend == "pytorch" && other.id.subject != "plain"
        }),
        "vs baseline" => against_other(case, baseline.unwrap_or_default(), |then| {
            then.id == case.id
        }),
        _ => None,
    };
    said.unwrap_or_else(dash)
}

fn text_without(column: &str, outcome: &Outcome) -> String {
    match (column, outcome) {
        ("median", outcome) => outcome.word().to_owned(),
        ("error", Outcome::Wrong { error, .. }) => {
            error.map_or("infinite".to_owned(), |error| format!("{error:.1e}"))
        }
        _ => dash(),
    }
}

fn dash() -> String {
    "-".to_owned()
}

/// How many times as long as another on the same problem, in the same pass, a case takes.
fn against_other(
    case: &CaseLine,
    others: &[CaseLine],
    is_it: impl Fn(&CaseLine) -> bool,
) -> Option<String> {
    let same = |other: &&CaseLine| other.id.is_of_same_problem(&case.id) && is_it(other);
    let other = others.iter().find(same)?;
    let Ratio { ratio, low, high } = case.ratio(other)?;
    let rounds = case.round_medians.len();
    if rounds > 1 && low != high && other.round_medians.len() == rounds {
        Some(format!("{ratio:.2} ({low:.2}..{high:.2})"))
    } else {
        Some(format!("{ratio:.2}"))
    }
}

/// Whether a case is the best of a column among those of its problem and length.
fn is_best(column: &str, case: &CaseLine, members: &[&CaseLine]) -> bool {
    let cost = |case: &CaseLine| -> Option<f64> {
        let samples = case.samples()?;
        match column {
            "median" => Some(samples.median()),
            "tokens/s" => Some(-case.tokens_per_second()?),
            "GFLOP/s" => Some(-case.rate()?),
            "memory" => Some(samples.peak.as_ref()?.bytes as f64),
            "error" => samples.error,
            _ => None,
        }
    };
    let is_rival =
        |other: &&&CaseLine| other.id.n == case.id.n && other.id.problem == case.id.problem;
    let rivals = members.iter().filter(is_rival);
    let costs: Vec<f64> = rivals.filter_map(|other| cost(other)).collect();
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    // Alone, it would be the best of one.
    costs.len() > 1 && cost(case) == Some(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::for_tests::{line, of_model, on};
    use crate::pool::pool;

    fn matmul() -> CaseLine {
        let mut line = line("matmul", 1024, &[10.0]);
        line.id.problem = "matmul".to_owned();
        line.report.work = Some(2e9);
        line
    }

    #[test]
    fn rows_say_everything_and_the_best_is_marked() {
        let cases = pool(&[
            matmul(),
            line("standard", 1024, &[20.0, 20.0, 30.0]),
            line("flash", 1024, &[10.0, 10.0, 10.0]),
            on("pytorch", line("sdpa", 1024, &[5.0])),
        ]);
        let sections = sections(&cases, None);
        assert_eq!(sections.len(), 1);
        let text = terminal(&sections, None);
        let row = |word: &str| {
            let row = text.lines().find(|line| line.contains(word));
            let row = row.unwrap_or_else(|| panic!("no {word} in {text}"));
            row.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let standard = row("flex      standard");
        for said in [
            "20.0 ms", "30.0 ms", "51.2", "26%", "1.00 MiB", "resident", "1.00x", "1.0e-7",
        ] {
            assert!(standard.contains(said), "{said} in {standard}");
        }
        assert!(standard.contains("1.00 4.00"), "{standard}");
        assert!(row("flash").contains("0.50 2.00"), "{}", row("flash"));
        assert!(row("sdpa").contains("*5.00 ms"), "{}", row("sdpa"));
    }

    #[test]
    fn models_share_a_table_and_show_tokens() {
        let model = |backend: &str, subject: &str, name: &str, ms: f64| {
            on(backend, of_model(name, line(subject, 64, &[ms])))
        };
        let cases = pool(&[
            model("flex", "flash", "gpt-small", 200.0),
            model("flex", "additive", "han-small", 10.0),
            model("pytorch", "sdpa", "gpt-small", 100.0),
        ]);
        let sections = sections(&cases, None);
        assert_eq!(sections.len(), 1);
        let section = &sections[0];
        assert_eq!(section.title, "models, forward, f32");
        assert_eq!(section.header[0], "model");
        let column = |name: &str| -> Vec<&Cell> {
            let at = section.header.iter().position(|header| *header == name);
            let at = at.unwrap_or_else(|| panic!("no {name}"));
            section.rows.iter().map(|row| &row[at]).collect()
        };
        let texts = |name: &str| -> Vec<&str> {
            let cells = column(name).into_iter();
            cells.map(|cell| cell.text.as_str()).collect()
        };
        assert_eq!(texts("model"), ["gpt-small", "gpt-small", "han-small"]);
        assert_eq!(texts("tokens/s"), ["1280", "2560", "25600"]);
        assert_eq!(texts("vs PyTorch"), ["2.00", "1.00", "-"]);
        // The best of its own model.
        let best: Vec<bool> = column("median").iter().map(|cell| cell.best).collect();
        assert_eq!(best, [false, true, false]);
    }

    #[test]
    fn a_narrow_terminal_gets_narrow_tables() {
        let rounds = |subject: &str, ms: f64| {
            [1.0, 1.1, 0.9].map(|noise| line(subject, 1024, &[ms * noise; 10]))
        };
        let mut lines = rounds("standard", 20.0).to_vec();
        lines.extend(rounds("flash", 10.0));
        lines.extend(rounds("sdpa", 5.0).map(|line| on("pytorch", line)));
        let sections = sections(&pool(&lines), None);
        let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
        let full = terminal(&sections, None);
        let narrow = terminal(&sections, Some(120));
        assert!(widest(&full) > Some(120), "{full}");
        assert!(widest(&narrow) <= Some(120), "{narrow}");
        assert_eq!(terminal(&sections, Some(200)), full);
    }

    #[test]
    fn a_case_without_a_time_is_a_row_and_a_remark() {
        let mut wrong = line("flash", 256, &[]);
        wrong.report.outcome = Outcome::Wrong {
            error: Some(0.25),
            detail: "context[3] is 1, should be 2".to_owned(),
        };
        let mut slow = line("linear", 256, &[]);
        slow.report.outcome = Outcome::TimedOut { seconds: 60.0 };
        let cases = pool(&[line("standard", 256, &[1.0]), wrong, slow]);
        let text = terminal(&sections(&cases, None), None);
        assert!(text.contains("WRONG") && text.contains("2.5e-1"), "{text}");
        assert!(text.contains("TIMED OUT"), "{text}");
        let remarks = remarks(&cases);
        assert_eq!(remarks.len(), 2);
        assert!(remarks[0].contains("context[3] is 1"), "{remarks:?}");
        assert!(remarks[1].contains("not done after 60.0 s"), "{remarks:?}");
    }

    #[test]
    fn a_baseline_is_one_more_column() {
        let then = pool(&[line("standard", 256, &[2.0])]);
        let now = pool(&[line("standard", 256, &[3.0])]);
        let text = crate::report::markdown(&sections(&now, Some(&then))).expect("a table");
        assert!(
            text.contains("| vs baseline |") && text.contains("| 1.50 |"),
            "{text}"
        );
    }
}
