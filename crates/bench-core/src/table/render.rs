//! Tables as text: for a terminal, and in Markdown.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::{Cell, Section};

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
        "tokens/s" => "tok/s",
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

/// What a case is, how memory was measured and a verdict are words; all else is numbers.
pub(crate) fn is_number(column: &str) -> bool {
    !["case", "model", "backend", "mechanism", "by", "verdict"].contains(&column)
}
