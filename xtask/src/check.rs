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
        match step {
            Step::Fmt => format_check(),
            Step::Dependencies => dependencies(),
            // Without a build: the other steps build the same files.
            Step::Package => cargo_run(
                "publish --dry-run --workspace --quiet --locked --no-verify --allow-dirty",
                environment,
            ),
            Step::Bare => self.lint(Lint::Bare, environment),
            Step::Clippy => self.lint(Lint::Clippy, environment),
            Step::Doc => self.lint(Lint::Doc, environment),
            Step::Test => {
                let test = Test {
                    backends: self.backends.clone(),
                    filter: None,
                    hub: true,
                    outside: true,
                    lints: false,
                    timings: false,
                };
                test.run()
            }
        }
    }

    fn lint(&self, lint: Lint, environment: &Environment) -> Result<()> {
        let (arguments, environment) = lint.command(&self.backends, environment);
        cargo_run(&arguments, &environment)
    }
}

/// Steps that are a cargo command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lint {
    Bare,
    Clippy,
    Doc,
}

impl Lint {
    pub(crate) const ALL: [Self; 3] = [Self::Bare, Self::Clippy, Self::Doc];

    /// The arguments and the environment of cargo.
    pub(crate) fn command(
        self,
        backends: &Backends,
        environment: &Environment,
    ) -> (String, Environment) {
        let features = packages::features(&backends.features());
        // The release profile shares build scripts, such as LibTorch's bindings, with the tests.
        let all = format!("--workspace --release --features {features}");
        let mut environment = environment.clone();
        let arguments = match self {
            Self::Bare => {
                "clippy --release --package zoo-attention --package zoo-models -- --deny warnings"
                    .to_owned()
            }
            Self::Clippy => format!("clippy --all-targets {all} -- --deny warnings"),
            Self::Doc => {
                environment.push(("RUSTDOCFLAGS", "--deny warnings".into()));
                format!("doc --no-deps {all}")
            }
        };
        (arguments, environment)
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
