//! `cargo xtask readme`: writes the parts of the README that follow from the code, and draws
//! its picture.

mod picture;

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use zoo_spec::Mechanism;

use crate::places::workspace;

/// What stands around the table.
const BEGIN: &str = "<!-- mechanisms: written by `cargo xtask readme` -->\n";
const END: &str = "<!-- end of mechanisms -->\n";

/// Writes both.
pub(crate) fn run() -> Result<()> {
    write("README.md", &with_table(&read("README.md")?)?)?;
    let picture = picture::drawn(&read(picture::TABLE_PATH)?)?;
    write(picture::PICTURE_PATH, &picture)
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(workspace().join(path))
        .with_context(|| format!("{path} cannot be read"))
}

/// Writes a file of the workspace if that changes it, and says whether it did.
pub(crate) fn write(path: &str, text: &str) -> Result<()> {
    if read(path).is_ok_and(|there| there == text) {
        println!("{path} is up to date");
        return Ok(());
    }
    std::fs::write(workspace().join(path), text)
        .with_context(|| format!("{path} cannot be written"))?;
    println!("{path} was written anew");
    Ok(())
}

/// The README with the table as the code has it.
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
        let (paper, address) = about.paper;
        let names: String = (mechanism.aliases().iter())
            .map(|name| format!(", `{name}`"))
            .collect();
        let _ = writeln!(
            table,
            "| `{mechanism}`{names} | {} | {} | {} | {} | [{paper}]({address}) |",
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
    fn the_readme_has_the_table_that_the_code_has() {
        let text = read("README.md").expect("it is there");
        assert!(
            with_table(&text).expect("it has the place for it") == text,
            "README.md is behind the code: run `cargo xtask readme`"
        );
    }

    #[test]
    fn a_readme_without_a_place_is_told_what_to_have() {
        let error = with_table("# Nothing here").unwrap_err().to_string();
        assert!(
            error.contains("must have a line `<!-- mechanisms"),
            "{error}"
        );
    }
}
