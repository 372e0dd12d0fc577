//! Runs cargo and other programs, and finds what cargo built.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::backends::Environment;
use crate::places;

/// A program cargo built.
#[derive(Debug, Clone)]
pub(crate) struct Built {
    /// The name of its target in `Cargo.toml`.
    pub(crate) target: String,
    /// What the target is: `lib`, `bin`, `test`, ...
    pub(crate) kind: String,
    /// Whether it is a test program.
    pub(crate) test: bool,
    /// The folder of its package.
    pub(crate) package: PathBuf,
    /// The program.
    pub(crate) executable: PathBuf,
}

impl Built {
    /// The program of an artifact message; other messages are about none.
    fn of(message: &Value) -> Option<Self> {
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

/// Runs `cargo` with `arguments`, separated by spaces, and returns the programs it built and the
/// time it took. Its progress goes to the terminal.
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
        .context("cargo could not be started")?;
    ensure!(
        output.status.success(),
        "the build failed: cargo {arguments}"
    );
    let mut built = Vec::new();
    let output = String::from_utf8_lossy(&output.stdout);
    // Proc macros may print too; cargo's own lines are the JSON objects.
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let message =
            serde_json::from_str(line).with_context(|| format!("cargo printed {line:?}"))?;
        built.extend(Built::of(&message));
    }
    Ok((built, start.elapsed()))
}

/// Runs `cargo` to its end and returns what it printed.
pub(crate) fn cargo_output(arguments: &str, environment: &Environment) -> Result<Output> {
    cargo(arguments, environment)
        .output()
        .context("cargo could not be started")
}

/// Runs `cargo` to its end, its output on the terminal.
pub(crate) fn cargo_run(arguments: &str, environment: &Environment) -> Result<()> {
    run(&mut cargo(arguments, environment)).with_context(|| format!("cargo {arguments} failed"))
}

/// Runs a program to its end in the workspace, its output on the terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_owned();
    let status = command
        .current_dir(places::workspace())
        .status()
        .with_context(|| format!("{} could not be started", program.display()))?;
    ensure!(
        status.success(),
        "{} ended with {status}",
        program.display()
    );
    Ok(())
}

/// What a program prints in the workspace, if it is there and succeeds.
pub(crate) fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(places::workspace())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// The first line of what a program prints.
pub(crate) fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    said(program, arguments)?.lines().next().map(str::to_owned)
}

fn cargo(arguments: &str, environment: &Environment) -> Command {
    // The cargo that runs us, not another one on the path.
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(arguments.split_whitespace())
        .current_dir(places::workspace())
        .env("CARGO_TARGET_DIR", places::target());
    set(&mut command, environment);
    command
}

/// Gives `command` the environment of a child of ours.
pub(crate) fn set(command: &mut Command, environment: &Environment) {
    // `cargo run` tells us about our own package, and some build scripts watch
    // those very variables: passed on, they would rebuild half of LibTorch's
    // bindings whenever cargo was last called from a shell, or in another clone.
    for (name, _) in std::env::vars_os() {
        let about_us = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if about_us {
            command.env_remove(name);
        }
    }
    // torch-sys would take these over the LIBTORCH we found and checked.
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
