//! Text in columns that line up, Chinese in them too.

use std::ops::RangeInclusive;

/// Characters that terminals draw two columns wide; Unicode's "East Asian Wide", by blocks.
const WIDE: [RangeInclusive<char>; 9] = [
    '\u{1100}'..='\u{115f}',
    '\u{2e80}'..='\u{303e}',
    '\u{3041}'..='\u{a4cf}',
    '\u{ac00}'..='\u{d7a3}',
    '\u{f900}'..='\u{faff}',
    '\u{fe30}'..='\u{fe6f}',
    '\u{ff00}'..='\u{ff60}',
    '\u{1f300}'..='\u{1faff}',
    '\u{20000}'..='\u{3fffd}',
];

/// How many columns of a terminal a text takes.
fn width(text: &str) -> usize {
    text.chars()
        .map(
            |letter| match WIDE.iter().any(|range| range.contains(&letter)) {
                true => 2,
                // Accents that sit on the letter before.
                false => usize::from(!('\u{300}'..='\u{36f}').contains(&letter)),
            },
        )
        .sum()
}

/// Rows of cells as lines: the first column to the left, numbers to the right.
pub(crate) fn lines(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widest: Vec<usize> = (0..columns)
        .map(|at| {
            let cells = rows.iter().filter_map(|row| row.get(at));
            cells.map(|cell| width(cell)).max().unwrap_or_default()
        })
        .collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let padding = " ".repeat(widest[at] - width(cell));
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
