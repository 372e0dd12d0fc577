//! What cargo knows of our packages and of everything they depend on.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::build::cargo_text;

/// The workspace and everything in `Cargo.lock`.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
}

/// A package as its `Cargo.toml` describes it.
#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Where it comes from; none for our own.
    pub(crate) source: Option<String>,
    pub(crate) license: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) manifest_path: PathBuf,
    /// Where it may be published: nowhere if there is an empty list, anywhere if there is none.
    pub(crate) publish: Option<Vec<String>>,
    pub(crate) description: Option<String>,
    #[serde(default)]
    pub(crate) keywords: Vec<String>,
    #[serde(default)]
    pub(crate) categories: Vec<String>,
    pub(crate) readme: Option<PathBuf>,
    pub(crate) documentation: Option<String>,
    #[serde(default)]
    pub(crate) features: BTreeMap<String, Vec<String>>,
    /// What is there for other programs.
    #[serde(default)]
    pub(crate) metadata: serde_json::Value,
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
        let text = cargo_text(&[
            "metadata",
            "--format-version=1",
            "--all-features",
            "--locked",
        ])?;
        serde_json::from_str(&text).context("cargo metadata printed something else")
    }

    /// The packages of the workspace.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &Package> {
        (self.packages.iter()).filter(|package| package.source.is_none())
    }
}
