//! A project of somebody else's, `outside/`, which is in no workspace of ours.

use std::fs;

use anyhow::{Context, Result};

use crate::backends::Environment;
use crate::build::{self, Built};
use crate::places;

/// Builds the project's tests, with the versions that the workspace has and a target directory
/// of its own: the features it turns on are its own.
pub(crate) fn build() -> Result<Vec<Built>> {
    let workspace = places::workspace();
    let project = workspace.join("outside");
    fs::copy(workspace.join("Cargo.lock"), project.join("Cargo.lock"))
        .with_context(|| format!("cannot write to {}", project.display()))?;
    let manifest = project.join("Cargo.toml").display().to_string();
    let target = places::target().join("outside").display().to_string();
    let arguments = ["test", "--no-run", "--quiet", "--manifest-path", &manifest];
    let arguments = [&arguments[..], &["--target-dir", &target]].concat();
    Ok(build::cargo_build(&arguments, &Environment::new())?.0)
}
