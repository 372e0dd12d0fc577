//! Commands that start another program: `cargo xtask train` validates a config, then builds and
//! starts `zoo train`; `cargo xtask zoo` builds `zoo` and starts it with any arguments; `cargo xtask
//! hub` starts `xtask/hub/hub.py`, which downloads datasets of the Hugging Face Hub.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use zoo_spec::BackendId;

use self::arguments::TrainArguments;
use crate::backends::{Backends, Environment};
use crate::{libtorch, paths, print, program};

// The flags of `zoo train`, most of which only that program reads.
#[allow(dead_code)]
#[path = "../../crates/train/src/cli/arguments.rs"]
mod arguments;
#[allow(dead_code)]
#[path = "../../crates/train/src/cli/variants.rs"]
mod variants;

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
        let ids = if self.arguments.sweep.is_empty() {
            let config = self.arguments.read_config()?;
            if self.arguments.print_config {
                print(&config.to_toml());
                return Ok(());
            }
            vec![config.backend.name]
        } else {
            let sweeps = self.arguments.sweeps()?;
            let variants = sweeps.iter().flat_map(|sweep| &sweep.variants);
            variants.map(|it| it.config.backend.name).collect()
        };
        // All arguments are passed on, except the flag of this command.
        let arguments = std::env::args_os().skip(1);
        let arguments: Vec<OsString> = arguments.filter(|flag| flag != "--install").collect();
        start(ids, self.install, &arguments)
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
        start(vec![self.backend], self.install, &self.arguments)
    }
}

fn start(ids: Vec<BackendId>, install: bool, arguments: &[OsString]) -> Result<()> {
    let backends = Backends::new(ids, install);
    let environment = backends.prepare()?;
    let mut command = Command::new(program::provide("zoo", &backends, &environment)?);
    command.args(arguments);
    program::exec(command, &environment)
}

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
