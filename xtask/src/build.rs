//! Running cargo and other programs.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::backends::Environment;
use crate::paths;

/// An executable built by cargo.
#[derive(Debug, Clone)]
pub(crate) struct Built {
    /// Name of the cargo target.
    pub(crate) target: String,
    /// Kind of the target: `lib`, `bin`, `test`, ...
    pub(crate) kind: String,
    /// Whether it is a test executable.
    pub(crate) test: bool,
    /// Folder of its package.
    pub(crate) package: PathBuf,
    pub(crate) executable: PathBuf,
}

impl Built {
    /// The executable of a compiler-artifact message, if any.
    fn from_message(message: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let target = &message["target"];
        let mut package = PathBuf::from(text(&message["manifest_path"]));
        package.pop();
        Some(Self {
            executable: message["executable"].as_str()?.into(),
            target: text(&target["name"]),
            kind: text(&target["kind"][0]),
            test: message["profile"]["test"] == true,
            package,
        })
    }
}

/// Runs `cargo` with `arguments`, separated by spaces, and returns the executables and the elapsed
/// time. Progress goes to the terminal.
pub(crate) fn cargo_build(
    arguments: &str,
    environment: &Environment,
) -> Result<(Vec<Built>, Duration)> {
    let start = Instant::now();
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
    Ok((built, start.elapsed()))
}

/// Runs `cargo` and returns its output.
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

/// The first line of a program's standard output.
pub(crate) fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    stdout_of(program, arguments)?
        .lines()
        .next()
        .map(str::to_owned)
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

/// Sets the environment of a child process.
pub(crate) fn set_environment(command: &mut Command, environment: &Environment) {
    // `cargo run` sets variables of this package, and build scripts watch them: passed on, they
    // would rebuild LibTorch's bindings whenever cargo was last called in another way or clone.
    for (name, _) in std::env::vars_os() {
        let is_of_xtask = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if is_of_xtask {
            command.env_remove(name);
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
