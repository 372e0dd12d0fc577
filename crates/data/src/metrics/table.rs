//! Text in columns that line up, Chinese in them too.

use unicode_width::UnicodeWidthStr;

/// Rows of cells as lines: the first column to the left, numbers to the right.
pub(crate) fn lines(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widest: Vec<usize> = (0..columns)
        .map(|at| {
            let cells = rows.iter().filter_map(|row| row.get(at));
            cells.map(|cell| cell.width()).max().unwrap_or_default()
        })
        .collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let padding = " ".repeat(widest[at] - cell.width());
            if at == 0 {
                line += &format!("{cell}{padding}");
            } else {
                line += &format!("  {padding}{cell}");
            }
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["", "n"], ["好久", "12"], ["abc", "3"], ["e\u{301}", "4"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(
            lines(&rows),
            ["       n", "好久  12", "abc    3", "e\u{301}      4"]
        );
    }
}
