//! A project of somebody else's, in no workspace of ours: `outside/`, put elsewhere and built
//! there.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::backends::Environment;
use crate::build::{self, Built};
use crate::places;

/// Where the project says our crates are, and where another one would.
const CRATES: &str = "../crates/";

/// Builds the project's tests, with a target directory of its own: what features it turns on
/// is its own affair.
pub(crate) fn build() -> Result<Vec<Built>> {
    let workspace = places::workspace();
    let folder = places::target().join("outside");
    let project = folder.join("project");
    copy(&workspace, &project)
        .with_context(|| format!("cannot write the project to {}", project.display()))?;
    let manifest = project.join("Cargo.toml").display().to_string();
    let target = folder.join("target").display().to_string();
    let arguments = [
        "test",
        "--no-run",
        "--quiet",
        "--manifest-path",
        &manifest,
        "--target-dir",
        &target,
    ];
    Ok(build::cargo_build(&arguments, &Environment::new())?.0)
}

/// The project as it would be elsewhere, with the versions that the workspace has.
fn copy(workspace: &Path, project: &Path) -> Result<()> {
    let from = workspace.join("outside");
    for folder in ["src", "tests"] {
        // Files that are gone must not stay.
        let _ = fs::remove_dir_all(project.join(folder));
        fs::create_dir_all(project.join(folder))?;
        for entry in fs::read_dir(from.join(folder))? {
            let entry = entry?;
            fs::copy(entry.path(), project.join(folder).join(entry.file_name()))?;
        }
    }
    let manifest = fs::read_to_string(from.join("Cargo.toml"))?;
    let crates = workspace.join("crates").display().to_string() + "/";
    fs::write(
        project.join("Cargo.toml"),
        manifest.replace(CRATES, &crates),
    )?;
    fs::copy(workspace.join("Cargo.lock"), project.join("Cargo.lock"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_names_our_crates_by_where_they_are() {
        let project = std::env::temp_dir().join(format!("zoo-outside-{}", std::process::id()));
        let workspace = places::workspace();
        copy(&workspace, &project).expect("it can be written");
        let manifest = fs::read_to_string(project.join("Cargo.toml")).expect("it is there");
        assert!(!manifest.contains(CRATES), "{manifest}");
        let attention = workspace.join("crates/attention").display().to_string();
        assert!(manifest.contains(&attention), "{manifest}");
        assert!(project.join("tests/swap.rs").is_file());
        fs::remove_dir_all(&project).expect("the test's own folder");
    }
}
