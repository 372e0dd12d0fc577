//! Tables, failures and legend as text.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::{Cell, Section};
use crate::pool::group;
use crate::record::{CaseLine, Outcome, Skipped};
use crate::units::{count, time};

/// Renders tables for a terminal, shortened if they are wider than `width`.
pub fn terminal(sections: &[Section], width: Option<usize>) -> String {
    let mut text = String::new();
    for section in sections {
        let full = render_table(&section.header, &section.rows, 2);
        let fits = width.is_none_or(|width| full.lines().all(|line| line.chars().count() <= width));
        let table = if fits {
            full
        } else {
            let (header, rows) = shorten(section);
            render_table(&header, &rows, 1)
        };
        let _ = writeln!(text, "{}\n{table}\n", section.title);
    }
    text
}

/// Renders a table with `spacing` + 1 characters between columns.
pub(crate) fn render_table(header: &[&str], rows: &[Vec<Cell>], spacing: u16) -> String {
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
        column.set_padding((spacing - 1, 1));
        if is_numeric(name) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// Header and rows with short names, percentiles as a range, and ratios without their range.
fn shorten(section: &Section) -> (Vec<&'static str>, Vec<Vec<Cell>>) {
    let short = |name: &'static str| match name {
        "10th" => "10..90th",
        "tokens/s" => "tok/s",
        "GFLOP/s" => "GF/s",
        "% of matmul peak" => "% peak",
        "x minimum" => "x min",
        "vs standard" => "vs std",
        "vs PyTorch" => "vs PyT",
        "vs baseline" => "vs base",
        other => other,
    };
    let names = section.header.iter().copied().enumerate();
    let columns = || names.clone().filter(|(_, name)| *name != "90th");
    let shorten_row = |row: &Vec<Cell>| {
        let cell = |(i, name): (usize, &str)| {
            let cell: &Cell = &row[i];
            let text = match name {
                "10th" => range(&cell.text, &row[i + 1].text),
                name if name == "by" || name.starts_with("vs ") => {
                    let first = cell.text.split(' ').next();
                    first.unwrap_or_default().to_owned()
                }
                _ => cell.text.clone(),
            };
            Cell { text, ..*cell }
        };
        columns().map(cell).collect()
    };
    let header = columns().map(|(_, name)| short(name)).collect();
    (header, section.rows.iter().map(shorten_row).collect())
}

/// `18.0 ms` and `22.0 ms` as `18.0..22.0 ms`.
fn range(from: &str, to: &str) -> String {
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number}..{to}"),
        _ if from == to => from.to_owned(),
        _ => format!("{from}..{to}"),
    }
}

/// Whether a column is right-aligned.
pub(crate) fn is_numeric(column: &str) -> bool {
    !["case", "model", "backend", "mechanism", "by", "verdict"].contains(&column)
}

pub const LEGEND: &str = "\
median, 10th, 90th: time of one pass and its percentiles; GFLOP/s: matmul FLOPs / median; % of \
matmul peak: relative to the matmul of this backend
memory: Peak memory incl. activations; column \"by\" says how it was measured; x minimum: relative \
to inputs, outputs and gradients, or to the parameters and optimizer state of a model
tokens/s: input tokens of a model (source and target), or generated tokens; a training step counts \
as three forward passes in GFLOP/s
error: maximum error against the f64 oracle, relative to the largest element of the tensor; *: \
best value at this length
vs: time relative to the other (lowest..highest round); below 1 is faster";

/// A line for each case that was not measured.
pub fn failures(cases: &[CaseLine]) -> Vec<String> {
    let failure = |case: &CaseLine| {
        let detail = match &case.report.outcome {
            Outcome::Measured(_) => return None,
            Outcome::Wrong { detail, .. } | Outcome::OutOfMemory { detail } => detail.clone(),
            Outcome::TimedOut { seconds } => format!("exceeded {}", time(*seconds)),
            Outcome::Failed { message } => message.clone(),
        };
        let outcome = case.report.outcome.name();
        Some(format!("{}: {outcome}: {detail}", case.id))
    };
    cases.iter().filter_map(failure).collect()
}

/// A line for each skipped mechanism, problem and pass, with lengths and reason.
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
