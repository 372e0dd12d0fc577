//! `cargo xtask check`: all checks that a change must pass, fastest first.

use std::process::Command;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::backends::{Backends, Environment};
use crate::build::{cargo_output, cargo_run, run, stdout_of};
use crate::test::Test;
use crate::{packages, print};

#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    backends: Backends,

    /// Skip these steps
    #[arg(long, value_name = "STEP,...", value_delimiter = ',')]
    skip: Vec<Step>,
}

/// In execution order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// rustfmt on every file of the repository
    Fmt,
    /// Licences, sources and unused dependencies (cargo-deny and cargo-machete)
    Dependencies,
    /// `cargo publish --dry-run` of the published crates
    Package,
    /// Clippy on the libraries without any backend feature
    Bare,
    Clippy,
    Doc,
    Test,
}

impl Check {
    pub(crate) fn run(self) -> Result<()> {
        let environment = self.backends.prepare()?;
        for step in Step::value_variants() {
            if !self.skip.contains(step) {
                print(&format!("{step:?}\n").to_lowercase());
                self.step(*step, &environment)?;
            }
        }
        Ok(())
    }

    fn step(&self, step: Step, environment: &Environment) -> Result<()> {
        let cargo = |arguments: &str| cargo_run(arguments, environment);
        let features = packages::features(&self.backends.features());
        // The release profile shares build scripts, such as LibTorch's bindings, with the tests.
        let all = format!("--workspace --release --features {features}");
        match step {
            Step::Fmt => format_check(),
            Step::Dependencies => dependencies(),
            // Without a build: the other steps build the same files.
            Step::Package => {
                cargo("publish --dry-run --workspace --quiet --locked --no-verify --allow-dirty")
            }
            Step::Bare => cargo(
                "clippy --release --package zoo-attention --package zoo-models -- --deny warnings",
            ),
            Step::Clippy => cargo(&format!("clippy --all-targets {all} -- --deny warnings")),
            Step::Doc => {
                let mut environment = environment.clone();
                environment.push(("RUSTDOCFLAGS", "--deny warnings".into()));
                cargo_run(&format!("doc --no-deps {all}"), &environment)
            }
            Step::Test => {
                let test = Test {
                    backends: self.backends.clone(),
                    filter: None,
                    hub: true,
                    outside: true,
                    timings: false,
                };
                test.run()
            }
        }
    }
}

/// Runs rustfmt on every tracked file: `cargo fmt` misses modules declared by macros and projects
/// outside the workspace.
fn format_check() -> Result<()> {
    let files = stdout_of("git", &["ls-files", "*.rs"]).unwrap_or_default();
    ensure!(
        !files.is_empty(),
        "git lists no Rust files\n  help: run this in a git repository"
    );
    run(Command::new("rustfmt")
        .args(["--edition", "2024", "--check"])
        .args(files.lines()))
}

/// Licences and sources of dependencies (`deny.toml`, cargo-deny), and unused ones (cargo-machete).
fn dependencies() -> Result<()> {
    let environment = Environment::new();
    for tool in ["deny", "machete"] {
        let version = cargo_output(&format!("{tool} --version"), &environment)?;
        ensure!(
            version.status.success(),
            "cargo-{tool} is not installed\n  help: cargo install --locked cargo-deny cargo-machete"
        );
    }
    cargo_run(
        "deny --locked check --hide-inclusion-graph licenses bans sources",
        &environment,
    )?;
    cargo_run("machete --skip-target-dir", &environment)
}
