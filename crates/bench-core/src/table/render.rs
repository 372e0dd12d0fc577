//! Tables and cases as text, and how to read them.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::{Cell, Section};
use crate::pool::group;
use crate::record::{CaseLine, Outcome, Skipped};
use crate::units::{count, time};

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

/// A table whose columns lie `apart` characters and one more from each other.
pub(crate) fn drawn(header: &[&str], rows: &[Vec<Cell>], apart: u16) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_BORDERS_ONLY)
        .set_header(header);
    for row in rows {
        let mark = |cell: &Cell| if cell.best { "*" } else { "" };
        table.add_row(
            row.iter()
                .map(|cell| format!("{}{}", mark(cell), cell.text)),
        );
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
        "tokens/s" => "tok/s",
        "GFLOP/s" => "GF/s",
        "of matmul" => "of mm",
        "of least" => "least",
        "vs standard" => "vs std",
        "vs PyTorch" => "vs PyT",
        "vs baseline" => "vs base",
        other => other,
    };
    let names = section.header.iter().copied().enumerate();
    let kept = || names.clone().filter(|(_, name)| *name != "90th");
    let shortened = |row: &Vec<Cell>| {
        let cell = |(at, name): (usize, &str)| {
            let cell: &Cell = &row[at];
            let text = match name {
                "10th" => range(&cell.text, &row[at + 1].text),
                name if name == "by" || name.starts_with("vs ") => {
                    let first = cell.text.split(' ').next();
                    first.unwrap_or_default().to_owned()
                }
                _ => cell.text.clone(),
            };
            Cell { text, ..*cell }
        };
        kept().map(cell).collect()
    };
    let header = kept().map(|(_, name)| short(name)).collect();
    (header, section.rows.iter().map(shortened).collect())
}

/// `18.0 ms` and `22.0 ms` as `18.0..22.0 ms`.
fn range(from: &str, to: &str) -> String {
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number}..{to}"),
        _ if from == to => from.to_owned(),
        _ => format!("{from}..{to}"),
    }
}

/// What a case is, how memory was measured and a verdict are words; all else is numbers.
pub(crate) fn is_number(column: &str) -> bool {
    !["case", "model", "backend", "mechanism", "by", "verdict"].contains(&column)
}

pub const LEGEND: &str = "\
median, 10th, 90th: time of one pass and its percentiles; GFLOP/s: counted matmul work over the \
median, and its share of this backend's own matmul rate
memory: inputs, results, gradients and all in between, by resident set, memory pool, \
LibTorch's allocator or driver; of least: times what inputs, results and gradients alone take, or a \
model's parameters and what an optimizer keeps of them
tokens/s: of a model, those that go in, source and target, or that are generated; its GFLOP/s \
count three forward passes for a step of training
error: the worst, relative to the largest number of its tensor, against the oracle in f64; *: the \
best of its length
vs: times as long as the other (lowest..highest of a round); below 1 is faster";

/// What the cases without a time have to say.
pub fn remarks(cases: &[CaseLine]) -> Vec<String> {
    let remark = |case: &CaseLine| {
        let detail = match &case.report.outcome {
            Outcome::Measured(_) => return None,
            Outcome::Wrong { detail, .. } | Outcome::OutOfMemory { detail } => detail.clone(),
            Outcome::TimedOut { seconds } => format!("not done after {}", time(*seconds)),
            Outcome::Failed { message } => message.clone(),
        };
        let word = case.report.outcome.word();
        Some(format!("{}: {word}: {detail}", case.id))
    };
    cases.iter().filter_map(remark).collect()
}

/// A line for each mechanism, problem and pass that was not run, with its lengths and the reason.
pub fn skipped_lines(skipped: &[Skipped]) -> Vec<String> {
    let groups = group(skipped, |case| {
        (&case.subject, &case.problem, case.pass, &case.reason)
    });
    let line = |((subject, problem, pass, reason), cases): (_, Vec<&Skipped>)| {
        let lengths: Vec<String> = cases.iter().map(|case| count(case.n)).collect();
        let lengths = match lengths.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => String::new(),
        };
        format!("skipped: {subject} in {problem} at n = {lengths}, {pass}: {reason}")
    };
    groups.into_iter().map(line).collect()
}
