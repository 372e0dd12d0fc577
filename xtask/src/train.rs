//! `cargo xtask train` validates a config, then builds and starts `zoo train`; `cargo xtask zoo`
//! builds `zoo` and starts it with any arguments.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;
use clap::Args;
use zoo_spec::BackendId;

use self::arguments::TrainArguments;
use crate::backends::Backends;
use crate::{print, program};

// The flags of `zoo train`, most of which only that program reads.
#[allow(dead_code)]
#[path = "../../crates/train/src/cli/arguments.rs"]
mod arguments;

#[derive(Args)]
pub(crate) struct Train {
    #[command(flatten)]
    arguments: TrainArguments,

    /// Install a software Vulkan driver if there is none (Debian, as root)
    #[arg(long)]
    install: bool,
}

impl Train {
    pub(crate) fn run(&self) -> Result<()> {
        // Validate everything before anything slow.
        let config = self.arguments.read_config()?;
        if self.arguments.print_config {
            print(&config.to_toml());
            return Ok(());
        }
        // All arguments are passed on, except the flag of this command.
        let arguments = std::env::args_os().skip(1);
        let arguments: Vec<OsString> = arguments.filter(|flag| flag != "--install").collect();
        start(config.backend.name, self.install, &arguments)
    }
}

#[derive(Args)]
pub(crate) struct Zoo {
    /// Backend to build with: ndarray, wgpu, tch-cpu, tch-cuda, ...
    #[arg(long, value_name = "NAME", default_value_t)]
    backend: BackendId,

    /// Install a software Vulkan driver if there is none (Debian, as root)
    #[arg(long)]
    install: bool,

    /// Arguments of zoo: translate runs/transformer-dates, or --help
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl Zoo {
    pub(crate) fn run(&self) -> Result<()> {
        start(self.backend, self.install, &self.arguments)
    }
}

/// Builds `zoo` with a backend and runs it.
fn start(id: BackendId, install: bool, arguments: &[OsString]) -> Result<()> {
    let backends = Backends::one(id, install);
    let environment = backends.prepare()?;
    let mut command = Command::new(program::provide("zoo", &backends, &environment)?);
    command.args(arguments);
    program::exec(command, &environment)
}
