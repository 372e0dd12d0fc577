//! A measuring program for each backend, built with that backend alone.

use std::path::Path;

use anyhow::{Result, ensure};
use zoo_bench_core::run::Program;
use zoo_spec::BackendWord;

use crate::backends::{Backends, Environment};
use crate::program;

/// The measuring program, and the package it is in.
const PROGRAM: &str = "zoo-bench";

/// Builds what is needed, one backend after another, or takes `prebuilt` for all.
pub(super) fn provide(backends: &Backends, prebuilt: Option<&Path>) -> Result<Vec<Program>> {
    let provide = |&word: &BackendWord| {
        let backend = backends.only(word);
        let (executable, environment) = match prebuilt {
            Some(file) => {
                ensure!(
                    file.is_file(),
                    "--program {} is no file\n  do: name a zoo-bench; \
                     cargo build --release --package zoo-bench --features {} builds one",
                    file.display(),
                    backend.features().join(",")
                );
                // What its libraries need is the business of whoever built it.
                (file.to_owned(), Environment::default())
            }
            None => {
                let environment = backend.prepare()?;
                let program = program::provide(PROGRAM, &backend, &environment)?;
                (program, environment)
            }
        };
        Ok(Program {
            backend: word.to_string(),
            executable,
            environment,
        })
    };
    backends.words().iter().map(provide).collect()
}
