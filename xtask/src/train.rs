//! `cargo xtask train` reads a config, then builds and starts the program that trains from it;
//! `cargo xtask zoo` builds the same program and starts it with whatever it is given.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;
use clap::Args;
use zoo_spec::BackendWord;

use self::arguments::TrainArguments;
use crate::backends::Backends;
use crate::program;

// The flags of `zoo train`. Most of them are for the program alone to read.
#[allow(dead_code)]
#[path = "../../crates/train/src/cli/arguments.rs"]
mod arguments;

#[derive(Args)]
pub(crate) struct Train {
    #[command(flatten)]
    arguments: TrainArguments,

    /// Install a missing software Vulkan driver (as root on Debian and its kin)
    #[arg(long)]
    install: bool,
}

impl Train {
    pub(crate) fn run(&self) -> Result<()> {
        // Everything a person can get wrong, before anything slow.
        let config = self.arguments.read_config()?;
        if self.arguments.print_config {
            print!("{}", config.to_toml());
            return Ok(());
        }
        // The program is told what we were told, but for the flag of our own.
        let words = std::env::args_os().skip(1);
        let words: Vec<OsString> = words.filter(|word| word != "--install").collect();
        start(config.backend.word, self.install, &words)
    }
}

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
        start(self.backend, self.install, &self.arguments)
    }
}

/// Builds `zoo` with a backend in it, and ends as it does.
fn start(word: BackendWord, install: bool, arguments: &[OsString]) -> Result<()> {
    let backends = Backends::one(word, install);
    let environment = backends.prepare()?;
    let mut command = Command::new(program::provide("zoo", &backends, &environment)?);
    command.args(arguments);
    program::hand_over(command, &environment)
}
