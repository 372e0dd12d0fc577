//! The README's picture, drawn from a table of measured times that a person reads too.

use anyhow::{Context, Result, ensure};
use zoo_bench_core::plot::{Axis, svg};
use zoo_viz::plot::Line;

/// Where the table is, and where the picture goes.
pub(super) const TABLE_PATH: &str = "docs/benchmarks.md";
pub(super) const PICTURE_PATH: &str = "docs/causal-forward.svg";

/// What stands around the table.
const BEGIN: &str = "<!-- drawn by `cargo xtask readme` -->\n";
const END: &str = "<!-- end of what is drawn -->\n";

const TITLE: &str = "causal attention forward, flex on 2 CPU cores";

/// The picture of the table on a page.
pub(super) fn drawn(page: &str) -> Result<String> {
    let (_, rest) = page.split_once(BEGIN).unwrap_or_default();
    let (table, _) = rest.split_once(END).unwrap_or_default();
    let mut rows = table.lines().map(cells);
    let lengths: Option<Vec<f64>> = rows.next().and_then(|head| {
        let lengths = head.iter().skip(1);
        lengths
            .map(|cell| {
                cell.trim_start_matches("n = ")
                    .replace(',', "")
                    .parse()
                    .ok()
            })
            .collect()
    });
    let lengths = lengths.filter(|lengths| !lengths.is_empty());
    let lengths = lengths.with_context(|| {
        format!(
            "{TABLE_PATH} must have a table of times, its head with lengths, between the lines \
             `{}` and `{}`",
            BEGIN.trim_end(),
            END.trim_end()
        )
    })?;
    let mut lines = Vec::new();
    for row in rows.skip(1) {
        let (name, times) = row.split_first().unwrap_or((&"", &[]));
        ensure!(
            times.len() == lengths.len(),
            "{TABLE_PATH}: {name} has {} times at {} lengths",
            times.len(),
            lengths.len()
        );
        let times: Result<Vec<f64>> = times.iter().map(|cell| seconds(cell)).collect();
        let at = lines.len();
        lines.push(Line {
            name: name.replace('`', ""),
            colour: at,
            // There are seven colours.
            stroke: at / 7,
            points: lengths.iter().copied().zip(times?).collect(),
            ..Line::default()
        });
    }
    Ok(svg(TITLE, Axis::Time, &lines))
}

/// The cells of a row.
fn cells(row: &str) -> Vec<&str> {
    let row = row.trim().trim_matches('|');
    row.split('|').map(str::trim).collect()
}

/// A time such as `7.38 s`; memory may follow behind a comma.
fn seconds(cell: &str) -> Result<f64> {
    let time = cell.split(',').next().unwrap_or_default();
    let read = time.split_once(' ').and_then(|(number, unit)| {
        let unit = match unit {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            _ => return None,
        };
        Some(number.parse::<f64>().ok()? * unit)
    });
    read.with_context(|| {
        format!("{TABLE_PATH}: {cell:?} does not begin with a time in us, ms or s")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::workspace;

    fn page(rows: &str) -> String {
        format!(
            "Text.\n{BEGIN}| causal | n = 512 | 1,024 | 2,048 |\n|---|---|---|---|\n{rows}{END}Text.\n"
        )
    }

    #[test]
    fn the_picture_is_that_of_the_table() {
        let read = |path: &str| std::fs::read_to_string(workspace().join(path)).expect(path);
        assert!(
            drawn(&read(TABLE_PATH)).expect("a table") == read(PICTURE_PATH),
            "{PICTURE_PATH} is behind {TABLE_PATH}: run `cargo xtask readme`"
        );
    }

    #[test]
    fn times_become_points() {
        let rows = "| `flash` | 100 us | 0.4 ms | 1.6 ms, 80 MiB |\n\
                    | `slow` | 1 s | 2 s | 4 s |\n";
        let picture = drawn(&page(rows)).expect("a table");
        // A point for each time, and one for each line of the legend.
        assert_eq!(picture.matches("<circle").count(), 8);
        assert!(picture.contains("flash, grows as n^2.00"), "{picture}");
        assert!(picture.contains("slow, grows as n^1.00"), "{picture}");
    }

    #[test]
    fn what_is_no_table_of_times_is_told() {
        for (page, told) in [
            ("Text.".to_owned(), "must have a table of times"),
            (page("| `flash` | 5 ms |\n"), "`flash` has 1 times at 3"),
            (
                page("| `flash` | 5 ms | 7 ms | fast |\n"),
                "\"fast\" does not",
            ),
            (
                page("| `flash` | 5 ms | 7 ms | 3 h |\n"),
                "\"3 h\" does not",
            ),
        ] {
            let error = drawn(&page).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
