//! Text tables with columns aligned by Unicode width.

use unicode_width::UnicodeWidthStr;

/// Formats a header and rows. The first column is left-aligned, the others are right-aligned.
pub(crate) fn table<'a>(
    names: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut all: Vec<Vec<String>> = vec![names.into_iter().map(str::to_owned).collect()];
    all.extend(rows);
    let widest = |i: usize| all.iter().map(|row| row[i].width()).max().unwrap_or(0);
    let widest: Vec<usize> = (0..all[0].len()).map(widest).collect();
    let mut lines = String::new();
    for row in &all {
        let mut line = String::new();
        for (i, (cell, widest)) in row.iter().zip(&widest).enumerate() {
            let padding = " ".repeat(widest - cell.width());
            line += &match i {
                0 => format!("{cell}{padding}"),
                _ => format!("  {padding}{cell}"),
            };
        }
        lines += line.trim_end();
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["好久", "12"], ["abc", "3"], ["e\u{301}", "4"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let lines = "       n\n好久  12\nabc    3\ne\u{301}      4\n";
        assert_eq!(table(["", "n"], rows), lines);
    }
}
