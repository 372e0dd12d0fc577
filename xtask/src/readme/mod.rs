//! `cargo xtask readme`: generates the mechanism table and the plot of the README.

mod plot;

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use zoo_spec::Mechanism;

use crate::paths::workspace;
use crate::print;

/// Delimiters of the table.
const BEGIN: &str = "<!-- mechanisms: written by `cargo xtask readme` -->\n";
const END: &str = "<!-- end of mechanisms -->\n";

pub(crate) fn run() -> Result<()> {
    write("README.md", &with_table(&read("README.md")?)?)?;
    let plot = plot::render(&read(plot::TABLE_PATH)?)?;
    write(plot::PLOT_PATH, &plot)
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(workspace().join(path)).with_context(|| format!("cannot read {path}"))
}

/// Writes a file of the workspace if its content changes, and prints whether it did.
pub(crate) fn write(path: &str, text: &str) -> Result<()> {
    if read(path).is_ok_and(|current| current == text) {
        print(&format!("{path} is up to date\n"));
        return Ok(());
    }
    std::fs::write(workspace().join(path), text).with_context(|| format!("cannot write {path}"))?;
    print(&format!("{path} was updated\n"));
    Ok(())
}

/// The README with an updated table.
fn with_table(text: &str) -> Result<String> {
    let (before, rest) = text.split_once(BEGIN).unwrap_or_default();
    let (_, after) = rest.split_once(END).unwrap_or_default();
    ensure!(
        !after.is_empty(),
        "README.md must have a line `{}` and, after it, a line `{}`",
        BEGIN.trim_end(),
        END.trim_end()
    );
    Ok(format!("{before}{BEGIN}{}{END}{after}", table()))
}

fn table() -> String {
    let mut table = "| name, aliases | computes | time | memory | softmax attention | paper |\n\
                     |---|---|---|---|---|---|\n"
        .to_owned();
    for mechanism in Mechanism::ALL {
        let about = mechanism.about();
        let (paper, url) = about.paper;
        let aliases: String = (mechanism.aliases().iter())
            .map(|alias| format!(", `{alias}`"))
            .collect();
        let _ = writeln!(
            table,
            "| `{mechanism}`{aliases} | {} | {} | {} | {} | [{paper}]({url}) |",
            mechanism.summary(),
            about.time,
            about.memory,
            about.exactness
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_is_up_to_date() {
        let text = read("README.md").expect("a file");
        assert!(
            with_table(&text).expect("delimiters") == text,
            "README.md is out of date: run `cargo xtask readme`"
        );
    }

    #[test]
    fn missing_delimiters() {
        let error = with_table("# Nothing here").unwrap_err().to_string();
        assert!(
            error.contains("must have a line `<!-- mechanisms"),
            "{error}"
        );
    }
}
