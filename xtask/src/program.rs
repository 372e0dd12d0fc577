//! Building and starting the programs that link Burn.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::backends::{Backends, Environment};
use crate::build::{self, Built};
use crate::{packages, paths};

/// Builds a program with these backends and returns the path of a copy.
pub(crate) fn provide(
    name: &str,
    backends: &Backends,
    environment: &Environment,
) -> Result<PathBuf> {
    let features = backends.features();
    let built = build::cargo_build(&packages::program(name, &features), environment)?;
    keep(name, &built, &features)
}

/// Copies a program to a path that the next build does not overwrite, atomically.
pub(crate) fn keep(name: &str, built: &[Built], features: &[&str]) -> Result<PathBuf> {
    let is_program = |built: &&Built| !built.test && built.kind == "bin" && built.target == name;
    let program = built.iter().find(is_program);
    let program = program.with_context(|| format!("cargo did not build {name}"))?;
    let program = &program.executable;
    let folder = copies(name).join(features.join(","));
    let copy = folder.join(program.file_name().unwrap_or_default());
    let partial = folder.join(format!(".{}", std::process::id()));
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::copy(program, &partial))
        .and_then(|_| std::fs::rename(&partial, &copy))
        .with_context(|| format!("cannot copy {} to {}", program.display(), copy.display()))?;
    Ok(copy)
}

/// Folder of the copies of a program, one folder for each list of features.
pub(crate) fn copies(name: &str) -> PathBuf {
    paths::target().join(name)
}

/// Replaces this process by `command`, which inherits the terminal and determines the exit code.
pub(crate) fn exec(mut command: Command, environment: &Environment) -> Result<()> {
    build::set_environment(&mut command, environment);
    let program = command.get_program().to_owned();
    let failed = || format!("cannot start {}", program.display());
    #[cfg(unix)]
    {
        // Not a child process, so that Ctrl-C reaches only the program.
        use std::os::unix::process::CommandExt;
        Err(command.exec()).with_context(failed)
    }
    #[cfg(not(unix))]
    {
        // Ctrl-C reaches both processes; the program handles it.
        ctrlc::set_handler(|| {}).context("cannot install the Ctrl-C handler")?;
        let status = command.status().with_context(failed)?;
        std::process::exit(status.code().unwrap_or(1));
    }
}
