//! A measuring program for each backend, built with that backend alone.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use zoo_comparison::run::Program;
use zoo_words::BackendWord;

use crate::backends::{Backends, Environment};
use crate::{build, places};

/// The measuring program, and the package it is in.
const PROGRAM: &str = "zoo-bench";

/// Builds what is needed, one backend after another, or takes `prebuilt` for all.
pub(super) fn provide(backends: &Backends, prebuilt: Option<&Path>) -> Result<Vec<Program>> {
    let provide = |&word: &BackendWord| {
        let backend = backends.only(word);
        match prebuilt {
            Some(file) => {
                ensure!(
                    file.is_file(),
                    "--program {} is no file\n  do: name a zoo-bench; \
                     cargo build --release --package zoo-bench --features {} builds one",
                    file.display(),
                    backend.features().join(",")
                );
                // What its libraries need is the business of whoever built it.
                Ok((word, file.to_owned(), Environment::default()))
            }
            None => {
                let environment = backend.prepare()?;
                Ok((word, build(&backend, &environment)?, environment))
            }
        }
    };
    backends
        .words()
        .iter()
        .map(provide)
        .map(|provided| {
            let (word, executable, environment) = provided?;
            Ok(Program {
                backend: word.to_string(),
                executable,
                environment: named(environment),
            })
        })
        .collect()
}

pub(super) fn named(environment: Environment) -> Vec<(String, OsString)> {
    let owned = |(name, value): (&str, OsString)| (name.to_owned(), value);
    environment.into_iter().map(owned).collect()
}

fn build(backend: &Backends, environment: &Environment) -> Result<PathBuf> {
    let features = backend.features().join(",");
    let arguments = [
        "build",
        "--release",
        "--package",
        PROGRAM,
        "--features",
        &features,
    ];
    let (built, _) = build::cargo_build(&arguments, environment)?;
    let program = built
        .iter()
        .find(|built| built.target == PROGRAM)
        .context("cargo built no zoo-bench")?;
    // The next backend's program would be put in the same place.
    let folder = places::target().join(PROGRAM).join(features);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let name = program.executable.file_name().unwrap_or_default();
    let copy = folder.join(name);
    let partial = folder.join(format!(".{}", std::process::id()));
    std::fs::copy(&program.executable, &partial)
        .and_then(|_| std::fs::rename(&partial, &copy))
        .with_context(|| format!("cannot copy zoo-bench to {}", copy.display()))?;
    Ok(copy)
}
