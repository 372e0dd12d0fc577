//! Tables and text that fit the terminal.

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

/// Wraps lines at spaces. Continuation lines start at the second column of a line with two columns,
/// else they are indented by two.
pub(super) fn wrap(text: &str, width: usize) -> String {
    text.lines().map(|line| wrap_line(line, width)).collect()
}

fn wrap_line(line: &str, width: usize) -> String {
    let len = |text: &str| text.chars().count();
    let text = line.trim_start();
    let indent = match text.split_once("  ") {
        Some((_, second)) => len(line) - len(second.trim_start()),
        None => len(line) - len(text) + 2,
    };
    let mut rest = line.to_owned();
    let mut wrapped = String::new();
    while len(&rest) > width {
        let spaces = rest.char_indices().take(width + 1);
        let Some((at, _)) = spaces.filter(|(at, c)| *at > indent && *c == ' ').last() else {
            break;
        };
        wrapped += rest[..at].trim_end();
        wrapped.push('\n');
        rest = " ".repeat(indent) + rest[at..].trim_start();
    }
    wrapped + &rest + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continuation_lines_are_indented() {
        let text = "attention: a long line\n\n  time     O(n·w) and so on\n  https://long.example";
        let expected = "attention: a long\n  line\n\n  time     O(n·w)\n           and so\n           \
                        on\n  https://long.example\n";
        assert_eq!(wrap(text, 18), expected);
        assert_eq!(wrap("ab cd", 5), "ab cd\n");
    }

    #[test]
    fn tables_fit_the_width() {
        let row = ["flash".to_owned(), "exact softmax attention".to_owned()];
        let table = table([("name", Some(9)), ("computes", None)], &[row], 24);
        assert!(table.lines().all(|line| line.chars().count() <= 24));
        assert!(table.contains("softmax") && !table.contains("exact softmax attention"));
    }
}
