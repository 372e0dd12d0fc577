//! What the workspace depends on: `deny.toml` says which licences and sources are allowed
//! (cargo-deny), and every dependency is named by some code (cargo-machete).

use anyhow::{Result, ensure};

use crate::backends::Environment;
use crate::build::{cargo_output, cargo_run};

/// Runs both programs, which print what is wrong.
pub(crate) fn check() -> Result<()> {
    let environment = Environment::new();
    for program in ["deny", "machete"] {
        let version = cargo_output(&[program, "--version"], &environment)?;
        ensure!(
            version.status.success(),
            "cargo-{program} is not installed\n  do: cargo install --locked cargo-deny cargo-machete"
        );
    }
    cargo_run(
        &["deny", "--locked", "check", "licenses", "bans", "sources"],
        &environment,
    )?;
    cargo_run(&["machete", "--skip-target-dir"], &environment)
}
