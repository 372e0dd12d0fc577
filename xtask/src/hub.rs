//! `cargo xtask hub`: runs `xtask/hub/hub.py`, which downloads datasets of the Hugging Face Hub.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::backends::Environment;
use crate::{libtorch, paths, program};

#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Hub {
    /// Arguments of hub.py: stanfordnlp/imdb --to data/imdb, or --help
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
            "downloading datasets needs Python 3.10 or newer, and there is none on the PATH\n  \
             help: install it; on Debian: apt-get install python3 python3-venv",
        )?;
        let mut command = Command::new(python);
        command.arg(paths::workspace().join("xtask/hub/hub.py"));
        // A --cache of the user comes later and overrides this one.
        command.arg("--cache").arg(paths::cache()?.join("hub"));
        command.args(&self.arguments);
        program::exec(command, &Environment::new())
    }
}
