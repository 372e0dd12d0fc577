//! The programs that link Burn: built with one backend, put aside, started.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::backends::{Backends, Environment};
use crate::{build, packages, places};

/// Builds a program with these backends in it, and keeps it.
pub(crate) fn provide(
    name: &str,
    backends: &Backends,
    environment: &Environment,
) -> Result<PathBuf> {
    let chosen = backends.features();
    let (built, _) = build::cargo_build(&packages::program(name, &chosen), environment)?;
    let program = built
        .iter()
        .find(|built| built.target == name && built.kind == "bin")
        .with_context(|| format!("cargo built no {name}"))?;
    let file = program.executable.file_name().unwrap_or_default();
    let copy = places::target()
        .join(name)
        .join(chosen.join(","))
        .join(file);
    keep(&program.executable, &copy)?;
    Ok(copy)
}

/// Copies a program to where the next build does not replace it. It has its name when it is
/// complete.
pub(crate) fn keep(program: &Path, copy: &Path) -> Result<()> {
    let folder = copy.parent().unwrap_or(Path::new(""));
    let partial = folder.join(format!(".{}", std::process::id()));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::copy(program, &partial))
        .and_then(|_| std::fs::rename(&partial, copy))
        .with_context(|| format!("cannot copy {} to {}", program.display(), copy.display()))
}

/// Ends as `command` does: the terminal, its keys and the exit code are the program's own.
pub(crate) fn hand_over(mut command: Command, environment: &Environment) -> Result<()> {
    build::set(&mut command, environment);
    let program = command.get_program().to_owned();
    let failed = || format!("cannot start {}", program.display());
    #[cfg(unix)]
    {
        // In our place, not below us: nobody stands between it and Ctrl-C.
        use std::os::unix::process::CommandExt;
        Err(command.exec()).with_context(failed)
    }
    #[cfg(not(unix))]
    {
        // Ctrl-C reaches both, and it is for the program to answer.
        ctrlc::set_handler(|| {}).context("cannot watch for Ctrl-C")?;
        let status = command.status().with_context(failed)?;
        std::process::exit(status.code().unwrap_or(1));
    }
}
