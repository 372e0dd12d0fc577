//! The Python that LibTorch came from, for `--vs pytorch`.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use zoo_bench_core::pytorch::PyTorch;
use zoo_spec::{Backend, BackendWord};

use crate::{libtorch, places};

/// PyTorch, installed first if there is none, on the kind of device that
/// `words` are about.
pub(super) fn provide(words: &[BackendWord]) -> Result<PyTorch> {
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
    let on_gpu = |word: &BackendWord| {
        matches!(
            word.backend,
            Backend::TchCuda | Backend::Vulkan | Backend::Cuda
        )
    };
    let device = if words.iter().any(on_gpu) {
        "cuda"
    } else {
        "cpu"
    };
    let scripts = places::workspace().join("benches").join("pytorch");
    PyTorch::new(PathBuf::from(python), scripts, environment, device)
        .context("cannot write PyTorch's inputs")
}
