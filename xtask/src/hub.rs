//! `cargo xtask hub`: starts `xtask/hub/hub.py`, which writes data sets of the hub as files.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::backends::Environment;
use crate::{libtorch, places, program};

#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Hub {
    /// What hub.py is given: stanfordnlp/imdb --to data/imdb, or --help
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<OsString>,
}

impl Hub {
    pub(crate) fn run(&self) -> Result<()> {
        let python = libtorch::python().context(
            "the hub's data sets are loaded by Python, and there is no Python 3.10 or newer on the \
             PATH\n  do: install one; on Debian: apt-get install python3 python3-venv",
        )?;
        let mut command = Command::new(python);
        command.arg(places::workspace().join("xtask/hub/hub.py"));
        // The last one counts, so that the user's own is taken.
        command.arg("--cache").arg(places::cache()?.join("hub"));
        command.args(&self.arguments);
        program::hand_over(command, &Environment::new())
    }
}
