//! What is compared: a measuring program for each backend, built with that backend alone, and
//! the PyTorch of `--vs pytorch`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use zoo_bench_core::pytorch::PyTorch;
use zoo_bench_core::run::Program;
use zoo_spec::{Backend, BackendWord};

use crate::backends::{Backends, Environment};
use crate::{libtorch, places, program};

/// Builds what is needed, one backend after another, or takes `prebuilt` for all.
pub(super) fn programs(backends: &Backends, prebuilt: Option<&Path>) -> Result<Vec<Program>> {
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
                let program = program::provide("zoo-bench", &backend, &environment)?;
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

/// PyTorch from the Python that LibTorch came from, installed first if there is none, on the
/// kind of device that `words` are about.
pub(super) fn pytorch(words: &[BackendWord]) -> Result<PyTorch> {
    let found = libtorch::provide()?;
    ensure!(
        found.folder.join("__init__.py").is_file(),
        "--vs pytorch needs PyTorch, and {} is a LibTorch without its Python half\n  do: unset \
         LIBTORCH, or set it to the torch folder of a Python's site-packages",
        found.folder.display()
    );
    let python = libtorch::python().context("--vs pytorch needs Python 3.10 or newer")?;
    let mut environment = found.environment();
    if let Some(packages) = found.folder.parent() {
        environment.push(("PYTHONPATH", packages.into()));
    }
    let gpus = [Backend::TchCuda, Backend::Vulkan, Backend::Cuda];
    let device = match words.iter().any(|word| gpus.contains(&word.backend)) {
        true => "cuda",
        false => "cpu",
    };
    let scripts = places::workspace().join("benches").join("pytorch");
    PyTorch::new(PathBuf::from(python), scripts, environment, device)
        .context("cannot write PyTorch's inputs")
}
