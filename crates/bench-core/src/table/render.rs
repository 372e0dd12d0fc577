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

/// Header and rows with short names, percentiles as a range, and ratios without their range. The
/// ratios to flash and SDPA are on the [screen](crate::screen::screen).
fn shorten(section: &Section) -> (Vec<&'static str>, Vec<Vec<Cell>>) {
    let short = |name: &'static str| match name {
        "10th" => "10..90th",
        "tokens/s" => "tok/s",
        "GFLOP/s" => "GF/s",
        "% of matmul" => "% matmul",
        "x minimum" => "x min",
        "vs standard" => "vs std",
        "vs PyTorch" => "vs PyT",
        "vs baseline" => "vs base",
        other => other,
    };
    let names = section.header.iter().copied().enumerate();
    let columns = || {
        names
            .clone()
            .filter(|(_, name)| !["90th", "vs flash", "vs SDPA"].contains(name))
    };
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

/// Explains the columns of the tables. `mark` is how they mark the best value.
pub fn legend(sections: &[Section], mark: &str) -> Vec<String> {
    let has = |name: &str| {
        let mut columns = sections.iter().flat_map(|section| &section.header);
        columns.any(|column| column.starts_with(name))
    };
    let mut cells = sections
        .iter()
        .flat_map(|section| section.rows.iter().flatten());
    let best = format!("{mark}: best value at this length");
    let lines = [
        vec![
            (has("n"), "n: sequence length (number of keys)"),
            (
                has("median"),
                "median, 10th, 90th: time of one pass and its percentiles",
            ),
            (cells.any(|cell| cell.best), &best),
        ],
        vec![
            (has("GFLOP/s"), "GFLOP/s: matmul FLOPs / median"),
            (
                has("% of matmul"),
                "% of matmul: relative to a matmul of 1,024³ on this backend; can exceed 100%",
            ),
        ],
        vec![
            (
                has("tokens/s"),
                "tokens/s: input tokens of a model (source and target), or generated tokens",
            ),
            (
                has("tokens/s"),
                "a training step counts as three forward passes in GFLOP/s",
            ),
        ],
        vec![
            (
                has("memory"),
                "memory: peak memory incl. activations; column \"by\" says how it was measured",
            ),
            (
                has("x minimum"),
                "x minimum: relative to inputs, outputs and gradients, or to the parameters and \
                 optimizer state of a model",
            ),
        ],
        vec![(
            has("error"),
            "error: maximum error against the f64 oracle, relative to the largest element of the \
             tensor",
        )],
        vec![
            (
                has("vs "),
                "vs: time relative to the other (lowest..highest round); below 1 is faster",
            ),
            (
                has("vs SDPA"),
                "SDPA: PyTorch's scaled_dot_product_attention",
            ),
            (
                has("vs PyTorch"),
                "PyTorch: the same mechanism or model in PyTorch, without custom kernels",
            ),
            (
                has("vs Burn"),
                "Burn: burn::tensor::module::attention on the same backend",
            ),
        ],
    ];
    let line = |parts: Vec<(bool, &str)>| {
        let parts = parts.into_iter().filter(|(is_present, _)| *is_present);
        parts.map(|(_, text)| text).collect::<Vec<_>>().join("; ")
    };
    let lines = lines.into_iter().map(line);
    lines.filter(|line| !line.is_empty()).collect()
}

/// A line for each reason why cases were not measured.
pub fn failures(cases: &[CaseLine]) -> Vec<String> {
    let failure = |case: &CaseLine| {
        let detail = match &case.report.outcome {
            Outcome::Measured(_) => return None,
            Outcome::Wrong { detail, .. } | Outcome::OutOfMemory { detail } => detail.clone(),
            Outcome::TimedOut { seconds } => format!("exceeded {}", time(*seconds)),
            Outcome::Failed { message } => message.clone(),
        };
        let (id, outcome) = (&case.id, case.report.outcome.name());
        let subject = format!("{} {}", id.backend, id.subject);
        let axes = [
            subject,
            id.problem.clone(),
            id.pass.to_string(),
            count(id.n),
        ];
        Some((format!("{outcome}: {detail}"), axes))
    };
    lines_by_reason(cases.iter().filter_map(failure))
}

/// A line for each reason why cases are skipped.
pub fn skipped_lines(skipped: &[Skipped]) -> Vec<String> {
    let axes = |case: &Skipped| {
        let (subject, problem) = (case.subject.clone(), case.problem.clone());
        [subject, problem, case.pass.to_string(), count(case.n)]
    };
    let lines = lines_by_reason(skipped.iter().map(|case| (case.reason.clone(), axes(case))));
    lines
        .iter()
        .map(|line| format!("skipped: {line}"))
        .collect()
}

/// Subject, problem, pass and length of a case.
type Axes = [String; 4];

/// A line for each reason, with all its cases.
fn lines_by_reason(cases: impl Iterator<Item = (String, Axes)>) -> Vec<String> {
    let line = |(reason, cases): (String, Vec<(String, Axes)>)| {
        let products = products(cases.into_iter().map(|(_, axes)| axes));
        let product = |[subjects, problems, passes, lengths]: &Product| {
            let pass = if passes.len() > 1 { "passes" } else { "pass" };
            let [subjects, problems, passes, lengths] =
                [subjects, problems, passes, lengths].map(|names| list(names));
            format!("{subjects} on {problems}, {passes} {pass}, sequence length {lengths}")
        };
        let products: Vec<String> = products.iter().map(product).collect();
        format!("{}: {reason}", products.join("; "))
    };
    let reasons = group(cases, |(reason, _)| reason.clone());
    reasons.into_iter().map(line).collect()
}

/// All combinations of the names on four axes.
type Product = [Vec<String>; 4];

/// Merges cases that differ on one axis only: lengths first, subjects last.
fn products(cases: impl Iterator<Item = Axes>) -> Vec<Product> {
    let mut products: Vec<Product> = cases.map(|axes| axes.map(|name| vec![name])).collect();
    for axis in (0..4).rev() {
        let others = |product: &Product| {
            let mut others = product.clone();
            others[axis].clear();
            others
        };
        let merge = |(mut merged, members): (Product, Vec<Product>)| {
            merged[axis] = members.into_iter().flat_map(|p| p[axis].clone()).collect();
            merged
        };
        products = group(products, others).into_iter().map(merge).collect();
    }
    products
}

/// `a, b and c`.
pub(crate) fn list(names: &[String]) -> String {
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Breaks a line between words at `width`; further lines are indented.
pub fn wrap(line: &str, width: usize) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for (i, word) in line.split(' ').enumerate() {
        let len = word.chars().count();
        if i > 0 && column + 1 + len > width {
            text.push_str("\n    ");
            column = 4;
        } else if i > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += len;
    }
    text
}
