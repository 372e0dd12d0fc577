//! `cargo xtask hub`: builds `zoo-hub`, which brings data sets of the hub, and starts it.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::backends::Environment;
use crate::{build, packages, program};

#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Hub {
    /// What zoo-hub is given: stanfordnlp/imdb --to data/imdb; --help shows what it can
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<OsString>,
}

impl Hub {
    pub(crate) fn run(&self) -> Result<()> {
        let environment = Environment::new();
        let arguments = ["build", "--quiet", "--package", packages::HUB];
        let (built, _) = build::cargo_build(&arguments, &environment)?;
        let program = built
            .iter()
            .find(|built| built.target == packages::HUB && built.kind == "bin")
            .context("cargo built no zoo-hub")?;
        let mut command = Command::new(&program.executable);
        command.args(&self.arguments);
        program::hand_over(command, &environment)
    }
}
