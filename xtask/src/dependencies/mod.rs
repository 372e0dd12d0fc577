//! What we depend on: nothing that no code names ([`unused`]), and nothing whose licence asks
//! for more than we agreed to ([`licences`]). Both are read from `cargo metadata`.

mod licences;
mod unused;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::backends::Environment;
use crate::build::cargo_output;

/// What cargo says of the workspace and of everything in `Cargo.lock`.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
}

#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Where it comes from; none for our own.
    pub(crate) source: Option<String>,
    pub(crate) license: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) manifest_path: PathBuf,
}

/// A dependency as a `Cargo.toml` names it.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) rename: Option<String>,
    /// `dev` or `build`, and nothing for what everybody needs.
    pub(crate) kind: Option<String>,
}

impl Metadata {
    /// Asks cargo, with all features: without them it leaves out what only some backends bring.
    /// Crates of other systems are fetched, once, since their licences are in them.
    pub(crate) fn read() -> Result<Self> {
        let arguments = [
            "metadata",
            "--format-version=1",
            "--all-features",
            "--locked",
        ];
        let output = cargo_output(&arguments, &Environment::new())?;
        if !output.status.success() {
            bail!(
                "cargo {} failed\n{}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim_end()
            );
        }
        serde_json::from_slice(&output.stdout).context("cargo metadata printed something else")
    }

    /// The packages of the workspace.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &Package> {
        (self.packages.iter()).filter(|package| package.source.is_none())
    }
}

/// Both checks; the licences are shown as a table.
pub(crate) fn check() -> Result<()> {
    let metadata = Metadata::read()?;
    let unused = unused::check(&metadata)?;
    let licences = licences::check(&metadata);
    println!("{}", licences.table());
    let left_over = licences.left_over();
    let wrong = [unused, licences.wrong, left_over].concat();
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}
