//! Runs cargo, and finds what it built.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

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

/// One line of `--message-format=json`, of which we read those about artifacts.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Message {
    CompilerArtifact {
        target: Target,
        profile: Profile,
        executable: Option<PathBuf>,
        manifest_path: PathBuf,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Runs `cargo` with `arguments` and returns the programs it built and the time it took.
/// Its progress goes to the terminal.
pub(crate) fn cargo_build<S: AsRef<str>>(
    arguments: &[S],
    environment: &Environment,
) -> Result<(Vec<Built>, Duration)> {
    let start = Instant::now();
    let output = cargo(arguments, environment)
        .arg("--message-format=json-render-diagnostics")
        .stdout(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .context("cargo could not be started")?;
    if !output.status.success() {
        let arguments: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
        bail!("the build failed: cargo {}", arguments.join(" "));
    }
    let mut built = Vec::new();
    let output = String::from_utf8_lossy(&output.stdout);
    // Proc macros may print too; cargo's own lines are the JSON objects.
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let message: Message =
            serde_json::from_str(line).with_context(|| format!("cargo printed {line:?}"))?;
        if let Message::CompilerArtifact {
            target,
            profile,
            executable: Some(executable),
            manifest_path,
        } = message
        {
            built.push(Built {
                target: target.name,
                kind: target.kind.into_iter().next().unwrap_or_default(),
                test: profile.test,
                package: manifest_path
                    .parent()
                    .map(PathBuf::from)
                    .unwrap_or_default(),
                executable,
            });
        }
    }
    Ok((built, start.elapsed()))
}

/// Runs `cargo` with `arguments` to its end and returns what it printed.
pub(crate) fn cargo_output<S: AsRef<str>>(
    arguments: &[S],
    environment: &Environment,
) -> Result<Output> {
    cargo(arguments, environment)
        .output()
        .context("cargo could not be started")
}

/// Runs `cargo` with `arguments` to its end, its output on the terminal.
pub(crate) fn cargo_run(arguments: &[&str], environment: &Environment) -> Result<()> {
    let status = cargo(arguments, environment)
        .status()
        .context("cargo could not be started")?;
    if !status.success() {
        bail!("cargo {} failed", arguments.join(" "));
    }
    Ok(())
}

fn cargo<S: AsRef<str>>(arguments: &[S], environment: &Environment) -> Command {
    // The cargo that runs us, not another one on the path.
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(arguments.iter().map(AsRef::as_ref))
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
