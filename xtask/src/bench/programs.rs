//! The compared programs: one for each backend, built with that backend only, and PyTorch for
//! `--vs pytorch`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use zoo_bench_core::pytorch::PyTorch;
use zoo_bench_core::run::Program;
use zoo_spec::{Backend, BackendId};

use crate::backends::{Backends, Environment};
use crate::{libtorch, paths, program};

/// Builds a program for each backend, or uses `prebuilt` for all.
pub(super) fn programs(backends: &Backends, prebuilt: Option<&Path>) -> Result<Vec<Program>> {
    let provide = |&id: &BackendId| {
        let backend = backends.only(id);
        let (executable, environment) = match prebuilt {
            Some(file) => {
                ensure!(
                    file.is_file(),
                    "--program {}: no such file\n  help: build it with \
                     cargo build --release --package zoo-bench --features {}",
                    file.display(),
                    backend.features().join(",")
                );
                (file.to_owned(), Environment::default())
            }
            None => {
                let environment = backend.prepare()?;
                let program = program::provide("zoo-bench", &backend, &environment)?;
                (program, environment)
            }
        };
        Ok(Program {
            backend: id.to_string(),
            executable,
            environment,
        })
    };
    backends.ids().iter().map(provide).collect()
}

/// PyTorch of the Python that provides LibTorch, installed if there is none, on the kind of device
/// of `ids`.
pub(super) fn pytorch(ids: &[BackendId]) -> Result<PyTorch> {
    let found = libtorch::provide()?;
    ensure!(
        found.folder.join("__init__.py").is_file(),
        "--vs pytorch needs PyTorch, but {} is LibTorch without Python\n  help: unset \
         LIBTORCH, or set it to the torch folder in Python's site-packages",
        found.folder.display()
    );
    let python = libtorch::python().context("--vs pytorch needs Python 3.10 or newer")?;
    let mut environment = found.environment();
    if let Some(packages) = found.folder.parent() {
        environment.push(("PYTHONPATH", packages.into()));
    }
    let gpus = [Backend::TchCuda, Backend::Vulkan, Backend::Cuda];
    let is_gpu = ids.iter().any(|id| gpus.contains(&id.backend));
    let device = if is_gpu { "cuda" } else { "cpu" };
    let scripts = paths::workspace().join("benches").join("pytorch");
    PyTorch::new(PathBuf::from(python), scripts, environment, device)
        .context("cannot write PyTorch's inputs")
}
