//! `cargo xtask check`: what a change must pass, quickest first.

use std::process::Command;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::backends::{Backends, Environment};
use crate::build::{cargo_output, cargo_run, run, said};
use crate::packages;
use crate::test::Test;

#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    backends: Backends,

    /// Leave these steps out
    #[arg(long, value_name = "STEP,...", value_delimiter = ',')]
    skip: Vec<Step>,
}

/// In the order they are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// rustfmt, on every file of the repository
    Fmt,
    /// Licences, sources and unused dependencies, by cargo-deny and cargo-machete
    Dependencies,
    /// `cargo publish --dry-run` of what others get
    Package,
    /// The libraries with no backend at all, as somebody gets them who picks one of his own
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
                println!("{}", format!("{step:?}").to_lowercase());
                self.step(*step, &environment)?;
            }
        }
        Ok(())
    }

    fn step(&self, step: Step, environment: &Environment) -> Result<()> {
        let cargo = |arguments: &str| cargo_run(arguments, environment);
        let features = packages::features(&self.backends.features());
        // The release profile, so that build scripts, LibTorch's bindings among
        // them, are shared with the tests.
        let all = format!("--workspace --release --features {features}");
        match step {
            Step::Fmt => format_check(),
            Step::Dependencies => dependencies(),
            // Without a build: they are built from the same files as everything else.
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

/// Checks the format of every tracked file: `cargo fmt` does not find modules that a macro
/// declares, nor projects outside the workspace.
fn format_check() -> Result<()> {
    let files = said("git", &["ls-files", "*.rs"]).unwrap_or_default();
    ensure!(
        !files.is_empty(),
        "git lists no Rust files\n  do: run this in a git checkout"
    );
    run(Command::new("rustfmt")
        .args(["--edition", "2024", "--check"])
        .args(files.lines()))
}

/// What the workspace depends on: `deny.toml` lists the licences and sources that are allowed
/// (cargo-deny), and every dependency is used by some code (cargo-machete).
fn dependencies() -> Result<()> {
    let environment = Environment::new();
    for program in ["deny", "machete"] {
        let version = cargo_output(&format!("{program} --version"), &environment)?;
        ensure!(
            version.status.success(),
            "cargo-{program} is not installed\n  do: cargo install --locked cargo-deny cargo-machete"
        );
    }
    cargo_run(
        "deny --locked check --hide-inclusion-graph licenses bans sources",
        &environment,
    )?;
    cargo_run("machete --skip-target-dir", &environment)
}
