//! `cargo xtask zoo`: builds the program `zoo` and starts it with whatever it is given.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;
use clap::Args;
use zoo_spec::BackendWord;

use crate::backends::Backends;
use crate::program;

#[derive(Args)]
pub(crate) struct Zoo {
    /// The backend to compile in: ndarray, wgpu, tch-cpu, tch-cuda ...
    #[arg(long, value_name = "WORD", default_value_t)]
    backend: BackendWord,

    /// Install a missing software Vulkan driver (as root on Debian and its kin)
    #[arg(long)]
    install: bool,

    /// What zoo is given: translate runs/transformer-dates, or --help
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl Zoo {
    pub(crate) fn run(&self) -> Result<()> {
        let backends = Backends::one(self.backend, self.install);
        let environment = backends.prepare()?;
        let mut command = Command::new(program::provide("zoo", &backends, &environment)?);
        command.args(&self.arguments);
        program::hand_over(command, &environment)
    }
}
