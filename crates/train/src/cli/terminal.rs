//! Tables that fit the terminal.

use std::io::IsTerminal;

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};

/// Columns of the terminal, at most 100; 80 if standard output is not a terminal.
pub(super) fn width() -> usize {
    if !std::io::stdout().is_terminal() {
        return 80;
    }
    match ratatui::crossterm::terminal::size() {
        // Some terminals report a size of 0.
        Ok((columns @ 1.., _)) => usize::from(columns).clamp(40, 100),
        Ok((0, _)) | Err(_) => 80,
    }
}

/// A table with cells wrapped to the width. Each column has a title and a maximum width, except for
/// one that takes the rest.
pub(super) fn table<const N: usize>(
    columns: [(&str, Option<usize>); N],
    rows: &[[String; N]],
    width: usize,
) -> String {
    let fit = |columns: usize| Width::Fixed(columns.try_into().unwrap_or(u16::MAX));
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width.try_into().unwrap_or(u16::MAX))
        .set_header(columns.map(|(title, _)| title))
        .add_rows(rows);
    for (i, (column, (title, max))) in table.column_iter_mut().zip(columns).enumerate() {
        // In a narrow terminal all columns are wrapped alike.
        if let Some(max) = max.filter(|_| width >= 80) {
            let lines = rows
                .iter()
                .flat_map(|row| row[i].lines())
                .chain(title.lines());
            let content = lines.map(|line| line.chars().count()).max().unwrap_or(0);
            // With a space on either side.
            column.set_constraint(ColumnConstraint::Absolute(fit(content.min(max) + 2)));
        }
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_fit_the_width() {
        let row = ["flash".to_owned(), "exact softmax attention".to_owned()];
        let table = table([("name", Some(9)), ("computes", None)], &[row], 24);
        assert!(table.lines().all(|line| line.chars().count() <= 24));
        assert!(table.contains("softmax") && !table.contains("exact softmax attention"));
    }
}
