//! `cargo xtask train` reads a config, then builds and starts the program that trains from it;
//! `cargo xtask zoo` builds the same program and starts it with whatever it is given.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::Args;
use zoo_config::{Config, Override};
use zoo_spec::BackendWord;

use crate::backends::Backends;
use crate::program;

#[derive(Args)]
pub(crate) struct Train {
    /// The TOML file of the run: configs/transformer-reverse.toml
    config: PathBuf,

    /// Another backend than the config's: flex, ndarray, wgpu, wgpu:1, tch-cpu, tch-cuda ...
    #[arg(long, value_name = "WORD")]
    backend: Option<BackendWord>,

    /// Change a key of the config for this run: model.layers=4; as often as needed
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Print the config with every default and these changes in it, and stop
    #[arg(long, conflicts_with_all = ["resume", "overwrite", "plain"])]
    print_config: bool,

    /// Go on with a run that was stopped
    #[arg(long, conflicts_with = "overwrite")]
    resume: bool,

    /// Go on from this step, not from the last checkpoint
    #[arg(long, requires = "resume", value_name = "N")]
    step: Option<usize>,

    /// Begin anew where there is a run already, which is lost
    #[arg(long)]
    overwrite: bool,

    /// A line now and then instead of the dashboard
    #[arg(long)]
    plain: bool,

    /// Install a missing software Vulkan driver (as root on Debian and its kin)
    #[arg(long)]
    install: bool,
}

impl Train {
    pub(crate) fn run(&self) -> Result<()> {
        // Everything a person can get wrong, before anything slow.
        let overrides = self.overrides()?;
        let config = Config::read(&self.config, &overrides)?;
        if self.print_config {
            print!("{}", config.to_toml());
            return Ok(());
        }
        config.check_files(&self.config, &overrides, self.resume)?;

        start(config.backend.word, self.install, &self.arguments())
    }

    fn overrides(&self) -> Result<Vec<Override>> {
        let mut overrides = Vec::new();
        for text in &self.set {
            overrides.push(Override::set(text)?);
        }
        // The flag of its own counts more than a --set of the same key.
        if let Some(word) = self.backend.map(|word| word.to_string()) {
            let flag = format!("--backend {word}");
            overrides.push(Override::flag(&flag, "backend.word", &word));
        }
        Ok(overrides)
    }

    /// The same, for the program.
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["train".into(), self.config.clone().into()];
        if let Some(word) = self.backend {
            arguments.extend(["--backend".into(), word.to_string().into()]);
        }
        for text in &self.set {
            arguments.extend(["--set".into(), text.into()]);
        }
        if let Some(step) = self.step {
            arguments.extend(["--step".into(), step.to_string().into()]);
        }
        for (given, flag) in [
            (self.resume, "--resume"),
            (self.overwrite, "--overwrite"),
            (self.plain, "--plain"),
        ] {
            if given {
                arguments.push(flag.into());
            }
        }
        arguments
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
