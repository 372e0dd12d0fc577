//! Running cargo and other programs.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::backends::Environment;
use crate::paths;

#[derive(Debug, Clone)]
pub(crate) struct Built {
    /// Name of the cargo target.
    pub(crate) target: String,
    /// Kind of the target: `lib`, `bin`, `test`, ...
    pub(crate) kind: String,
    pub(crate) test: bool,
    pub(crate) package: PathBuf,
    pub(crate) executable: PathBuf,
}

impl Built {
    /// The executable of a compiler-artifact message, if any.
    fn from_message(message: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let manifest = PathBuf::from(message["manifest_path"].as_str()?);
        Some(Self {
            executable: message["executable"].as_str()?.into(),
            target: text(&message["target"]["name"])?,
            kind: text(&message["target"]["kind"][0])?,
            test: message["profile"]["test"] == true,
            package: manifest.parent()?.to_owned(),
        })
    }
}

/// Runs `cargo` and returns the executables. Progress goes to the terminal.
pub(crate) fn cargo_build(arguments: &str, environment: &Environment) -> Result<Vec<Built>> {
    let output = cargo(arguments, environment)
        .arg("--message-format=json-render-diagnostics")
        .stdout(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .context("cannot start cargo")?;
    ensure!(
        output.status.success(),
        "the build failed: cargo {arguments}"
    );
    let mut built = Vec::new();
    let output = String::from_utf8_lossy(&output.stdout);
    // Proc macros may print too; cargo's own lines are the JSON objects.
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let message = serde_json::from_str(line)
            .with_context(|| format!("unexpected output of cargo: {line:?}"))?;
        built.extend(Built::from_message(&message));
    }
    Ok(built)
}

pub(crate) fn cargo_output(arguments: &str, environment: &Environment) -> Result<Output> {
    cargo(arguments, environment)
        .output()
        .context("cannot start cargo")
}

/// Runs `cargo` with its output on the terminal.
pub(crate) fn cargo_run(arguments: &str, environment: &Environment) -> Result<()> {
    run(&mut cargo(arguments, environment)).with_context(|| format!("cargo {arguments} failed"))
}

/// Runs a program in the workspace with its output on the terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_owned();
    let status = command
        .current_dir(paths::workspace())
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(status.success(), "{} failed: {status}", program.display());
    Ok(())
}

/// The standard output of a program run in the workspace, if it exists and succeeds.
pub(crate) fn stdout_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(paths::workspace())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

pub(crate) fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let stdout = stdout_of(program, arguments)?;
    stdout.lines().next().map(str::to_owned)
}

fn cargo(arguments: &str, environment: &Environment) -> Command {
    // The cargo that started this program, not another one on the PATH.
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(arguments.split_whitespace())
        .current_dir(paths::workspace())
        .env("CARGO_TARGET_DIR", paths::target());
    set_environment(&mut command, environment);
    command
}

pub(crate) fn set_environment(command: &mut Command, environment: &Environment) {
    // `cargo run` sets variables of this package, and build scripts watch them: passed on, they
    // would rebuild LibTorch's bindings whenever cargo was last called in another way or clone.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    // torch-sys would prefer these to the LIBTORCH that was found and checked.
    for name in [
        "LIBTORCH_USE_PYTORCH",
        "LIBTORCH_INCLUDE",
        "LIBTORCH_LIB",
        "LIBTORCH_STATIC",
    ] {
        command.env_remove(name);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
}
