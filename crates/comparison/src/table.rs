//! The answer as tables: one for each problem and pass, its rows by length.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use crate::pool::{Pool, Pooled, Ratio, ratio};
use crate::record::{CaseId, Outcome};
use crate::units::{bytes, count, three_digits, time};

/// What the tables show besides the cases of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Against<'a> {
    /// An earlier run.
    pub baseline: Option<&'a [Pooled]>,
}

/// One problem in one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Problem, pass, number type.
    pub title: String,
    /// The names of the columns.
    pub header: Vec<&'static str>,
    /// The cells of each case.
    pub rows: Vec<Vec<Cell>>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// Whether it is the best of its column among the cases of its length.
    pub best: bool,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, best: false }
    }
}

/// The case whose rate others are held against is no section of its own.
pub(crate) fn is_matmul(pooled: &Pooled) -> bool {
    pooled.id.subject == "matmul"
}

/// The sections, in the order their problems were measured.
pub fn sections(cases: &[Pooled], against: Against<'_>) -> Vec<Section> {
    let key = |id: &CaseId| (id.problem.clone(), id.pass, id.dtype.clone());
    let mut keys = Vec::new();
    for case in cases.iter().filter(|case| !is_matmul(case)) {
        if !keys.contains(&key(&case.id)) {
            keys.push(key(&case.id));
        }
    }
    keys.into_iter()
        .map(|wanted| {
            let mut members: Vec<&Pooled> = cases
                .iter()
                .filter(|case| !is_matmul(case) && key(&case.id) == wanted)
                .collect();
            members.sort_by_key(|case| case.id.n);
            section(&members, cases, against)
        })
        .collect()
}

fn section(members: &[&Pooled], all: &[Pooled], against: Against<'_>) -> Section {
    let id = &members[0].id;
    let has_pytorch = members.iter().any(|case| case.id.backend == "pytorch");
    let mut header = vec![
        "n",
        "backend",
        "mechanism",
        "median",
        "10th",
        "90th",
        "GFLOP/s",
        "of matmul",
        "memory",
        "by",
        "of least",
        "error",
        "vs standard",
    ];
    if has_pytorch {
        header.push("vs PyTorch");
    }
    if against.baseline.is_some() {
        header.push("vs baseline");
    }
    let rows = members
        .iter()
        .map(|case| {
            let mut row = cells(case, all);
            let other = |backend: &str, subject: &str| {
                let id = CaseId {
                    backend: backend.to_owned(),
                    subject: subject.to_owned(),
                    ..case.id.clone()
                };
                all.iter().find(|other| other.id == id)
            };
            row.push(against_cell(case, other(&case.id.backend, "standard")));
            if has_pytorch {
                row.push(against_cell(case, other("pytorch", "sdpa")));
            }
            if let Some(baseline) = against.baseline {
                let then = baseline.iter().find(|then| then.id == case.id);
                row.push(against_cell(case, then));
            }
            row
        })
        .collect();
    let mut section = Section {
        title: format!("{}, {}, {}", id.problem, id.pass, id.dtype),
        header,
        rows,
    };
    mark_best(&mut section, members);
    section
}

/// The columns of every section, up to the ratios.
fn cells(case: &Pooled, all: &[Pooled]) -> Vec<Cell> {
    let id = &case.id;
    let mut row = vec![count(id.n), id.backend.clone(), id.subject.clone()];
    match &case.result {
        Pool::Samples(samples) => {
            row.extend([0.5, 0.1, 0.9].map(|share| time(samples.quantile(share))));
            let matmul = all.iter().find(|other| {
                is_matmul(other) && other.id.backend == id.backend && other.id.dtype == id.dtype
            });
            row.push(case.rate().map_or(dash(), |rate| three_digits(rate / 1e9)));
            let share = case.rate().zip(matmul.and_then(Pooled::rate));
            row.push(share.map_or(dash(), |(rate, most)| {
                format!("{:.0}%", 100.0 * rate / most)
            }));
            match &samples.peak {
                Some(peak) => {
                    row.push(bytes(peak.bytes as f64));
                    row.push(peak.how.clone());
                    let ratio = peak.bytes as f64 / case.minimum_bytes as f64;
                    row.push(format!("{}x", three_digits(ratio)));
                }
                None => row.extend(["n/a".to_owned(), dash(), dash()]),
            }
            row.push(samples.error.map_or(dash(), |error| format!("{error:.1e}")));
        }
        Pool::Without(outcome) => {
            row.push(word(outcome).to_owned());
            row.extend(std::iter::repeat_with(dash).take(7));
            row.push(match outcome {
                Outcome::Wrong { error, .. } => {
                    error.map_or("infinite".to_owned(), |error| format!("{error:.1e}"))
                }
                _ => dash(),
            });
        }
    }
    row.into_iter().map(Cell::from).collect()
}

fn dash() -> String {
    "-".to_owned()
}

/// What became of a case that has no time, in a word or three.
pub fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Measured(_) => "measured",
        Outcome::Wrong { .. } => "WRONG",
        Outcome::TimedOut { .. } => "TIMED OUT",
        Outcome::OutOfMemory { .. } => "OUT OF MEMORY",
        Outcome::Failed { .. } => "FAILED",
    }
}

fn against_cell(case: &Pooled, other: Option<&Pooled>) -> Cell {
    let samples = case.samples().zip(other.and_then(Pooled::samples));
    let text = match samples {
        Some((this, other)) => {
            let Ratio { ratio, low, high } = ratio(this, other);
            let spread = this.round_medians.len() > 1 && low != high;
            if spread && other.round_medians.len() == this.round_medians.len() {
                format!("{ratio:.2} ({low:.2}..{high:.2})")
            } else {
                format!("{ratio:.2}")
            }
        }
        None => dash(),
    };
    text.into()
}

/// Marks the best time, rate, memory and error among the cases of each length.
fn mark_best(section: &mut Section, members: &[&Pooled]) {
    let column = |name| section.header.iter().position(|header| *header == name);
    type Cost = fn(&Pooled) -> Option<f64>;
    let columns: [(Option<usize>, Cost); 4] = [
        (column("median"), |case| Some(case.samples()?.median())),
        (column("GFLOP/s"), |case| Some(-case.rate()?)),
        (column("memory"), |case| {
            Some(case.samples()?.peak.as_ref()?.bytes as f64)
        }),
        (column("error"), |case| case.samples()?.error),
    ];
    for (column, cost) in columns {
        let Some(column) = column else { continue };
        for (at, case) in members.iter().enumerate() {
            let rivals = members.iter().filter(|other| other.id.n == case.id.n);
            let costs: Vec<f64> = rivals.filter_map(|other| cost(other)).collect();
            let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
            // Alone, it would be the best of one.
            let best = costs.len() > 1 && cost(case) == Some(least);
            section.rows[at][column].best = best;
        }
    }
}

/// Tables for a terminal, of at most `width` characters if that can be done.
pub fn terminal(sections: &[Section], width: Option<usize>) -> String {
    let mut text = String::new();
    for section in sections {
        let full = drawn(&section.header, &section.rows, 2);
        let fits = width.is_none_or(|width| full.lines().all(|line| line.chars().count() <= width));
        let table = if fits {
            full
        } else {
            let (header, rows) = shortened(section);
            drawn(&header, &rows, 1)
        };
        let _ = writeln!(text, "{}\n{table}\n", section.title);
    }
    text
}

/// Columns lie `apart` characters and one more from each other.
fn drawn(header: &[&str], rows: &[Vec<Cell>], apart: u16) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_BORDERS_ONLY)
        .set_header(header);
    for row in rows {
        table.add_row(row.iter().map(|cell| {
            if cell.best {
                format!("*{}", cell.text)
            } else {
                cell.text.clone()
            }
        }));
    }
    for (column, name) in table.column_iter_mut().zip(header) {
        column.set_padding((apart - 1, 1));
        if is_number(name) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// The same with less: short names, percentiles as a range, and ratios without their
/// spread, which the report has.
fn shortened(section: &Section) -> (Vec<&'static str>, Vec<Vec<Cell>>) {
    let short = |name: &'static str| match name {
        "10th" => "10..90th",
        "GFLOP/s" => "GF/s",
        "of matmul" => "of mm",
        "of least" => "least",
        "vs standard" => "vs std",
        "vs PyTorch" => "vs PyT",
        "vs baseline" => "vs base",
        other => other,
    };
    let is_kept = |name: &str| name != "90th";
    let header = section.header.iter().copied();
    let rows = section.rows.iter().map(|row| {
        let named = header.clone().zip(row).enumerate();
        named
            .filter(|(_, (name, _))| is_kept(name))
            .map(|(at, (name, cell))| {
                let first_word = || cell.text.split(' ').next().unwrap_or_default().to_owned();
                let text = match name {
                    "10th" => range(&cell.text, &row[at + 1].text),
                    "by" => first_word(),
                    name if name.starts_with("vs ") => first_word(),
                    _ => cell.text.clone(),
                };
                Cell { text, ..*cell }
            })
            .collect()
    });
    let rows = rows.collect();
    (
        header.filter(|name| is_kept(name)).map(short).collect(),
        rows,
    )
}

/// `18.0 ms` and `22.0 ms` as `18.0..22.0 ms`.
fn range(from: &str, to: &str) -> String {
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number}..{to}"),
        _ if from == to => from.to_owned(),
        _ => format!("{from}..{to}"),
    }
}

/// Backend, mechanism and how memory was measured are words; all else is numbers.
pub(crate) fn is_number(column: &str) -> bool {
    !["backend", "mechanism", "by"].contains(&column)
}

/// Tables in Markdown.
pub fn markdown(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        let _ = writeln!(text, "### {}\n", section.title);
        let _ = writeln!(text, "| {} |", section.header.join(" | "));
        let rule: Vec<&str> = section
            .header
            .iter()
            .map(|name| if is_number(name) { "--:" } else { "---" })
            .collect();
        let _ = writeln!(text, "|{}|", rule.join("|"));
        for row in &section.rows {
            let cells: Vec<String> = row
                .iter()
                .map(|cell| {
                    if cell.best {
                        format!("**{}**", cell.text)
                    } else {
                        cell.text.clone()
                    }
                })
                .collect();
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        text.push('\n');
    }
    text
}

/// How to read the tables.
pub const LEGEND: &str = "\
median, 10th, 90th: time of one pass and its percentiles; GFLOP/s: counted matmul work over the \
median, and its share of this backend's own matmul rate
memory: inputs, results, gradients and all in between, by resident set, memory pool or driver; of \
least: times what inputs, results and gradients alone take
error: the worst, relative to the largest number of its tensor, against the oracle in f64; *: the \
best of its length
vs: times as long as the other (lowest..highest of a round); below 1 is faster";

/// What the cases without a time have to say.
pub fn remarks(cases: &[Pooled]) -> Vec<String> {
    cases
        .iter()
        .filter_map(|case| {
            let Pool::Without(outcome) = &case.result else {
                return None;
            };
            let detail = match outcome {
                Outcome::Measured(_) => return None,
                Outcome::Wrong { detail, .. } => detail.clone(),
                Outcome::TimedOut { seconds } => format!("not done after {}", time(*seconds)),
                Outcome::OutOfMemory { detail } => detail.clone(),
                Outcome::Failed { message } => message.clone(),
            };
            Some(format!("{}: {}: {detail}", name(&case.id), word(outcome)))
        })
        .collect()
}

/// A case in a line: `flex standard on layer at n = 1,024, train, f32`.
pub fn name(id: &CaseId) -> String {
    format!(
        "{} {} on {} at n = {}, {}, {}",
        id.backend,
        id.subject,
        id.problem,
        count(id.n),
        id.pass,
        id.dtype
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::pool;
    use crate::record::CaseLine;
    use crate::record::tests::line;

    fn on(backend: &str, mut line: CaseLine) -> CaseLine {
        line.id.backend = backend.to_owned();
        line
    }

    fn matmul() -> CaseLine {
        let mut line = line("matmul", 1024, &[10.0]);
        line.id.problem = "matmul".to_owned();
        line.work = 2e9;
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
        let sections = sections(&cases, Against::default());
        assert_eq!(sections.len(), 1);
        let text = terminal(&sections, None);
        let row = |word: &str| {
            text.lines()
                .find(|line| line.contains(word))
                .unwrap_or_else(|| panic!("no {word} in {text}"))
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .join(" ")
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
    fn a_narrow_terminal_gets_narrow_tables() {
        let rounds = |subject: &str, ms: f64| {
            [1.0, 1.1, 0.9].map(|noise| line(subject, 1024, &[ms * noise; 10]))
        };
        let mut lines = rounds("standard", 20.0).to_vec();
        lines.extend(rounds("flash", 10.0));
        lines.extend(rounds("sdpa", 5.0).map(|line| on("pytorch", line)));
        let sections = sections(&pool(&lines), Against::default());
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
        wrong.outcome = Outcome::Wrong {
            error: Some(0.25),
            detail: "context[3] is 1, should be 2".to_owned(),
        };
        let mut slow = line("linear", 256, &[]);
        slow.outcome = Outcome::TimedOut { seconds: 60.0 };
        let cases = pool(&[line("standard", 256, &[1.0]), wrong, slow]);
        let text = terminal(&sections(&cases, Against::default()), None);
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
        let against = Against {
            baseline: Some(&then),
        };
        let text = markdown(&sections(&now, against));
        assert!(
            text.contains("| vs baseline |") && text.contains("| 1.50 |"),
            "{text}"
        );
    }
}
