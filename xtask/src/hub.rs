//! `cargo xtask hub`: builds `zoo-hub`, which brings data sets of the hub, and starts it.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::backends::Environment;
use crate::{build, packages, program};

/// What is asked for most; the program itself, which takes minutes to compile, has the rest.
const USUAL: &str = "\
NAME --to FOLDER                 train, valid and test with every field, as JSON lines
  --text FIELD --label FIELD     texts and their classes
  --source FIELD --target FIELD  texts and their translations
  --text FIELD                   running text
  --subset NAME                  one of its subsets
  --split valid=dev              which split is which
  --overwrite                    replace files that are there
  --help                         after NAME: all of it, once it is built";

#[derive(Args)]
#[command(after_help = USUAL)]
pub(crate) struct Hub {
    /// What zoo-hub is given: stanfordnlp/imdb --to data/imdb
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
