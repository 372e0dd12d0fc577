//! The arguments of `zoo train`. `cargo xtask train` compiles this file as well, to check them
//! before it builds the program.

use std::path::PathBuf;

use clap::Args;
use zoo_config::{Config, ConfigError, Override};
use zoo_spec::BackendId;

#[derive(Debug, Args)]
pub(crate) struct TrainArguments {
    /// Config file
    pub(crate) config: PathBuf,

    /// Override the config's backend: flex, ndarray, wgpu, tch-cpu, ...
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<BackendId>,

    /// Override a config key, such as model.layers=4
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Print the config with all defaults and exit
    #[arg(long, conflicts_with_all = ["resume", "overwrite", "plain"])]
    pub(crate) print_config: bool,

    /// Continue from the last checkpoint
    #[arg(long, conflicts_with = "overwrite")]
    pub(crate) resume: bool,

    /// Continue from the checkpoint of this step
    #[arg(long, requires = "resume", value_name = "N")]
    pub(crate) step: Option<usize>,

    /// Resume even if the data has changed since the checkpoint
    #[arg(long, requires = "resume")]
    pub(crate) accept_changed_data: bool,

    /// Delete the existing run and start over
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// Log plain lines instead of the dashboard (default when piped)
    #[arg(long)]
    pub(crate) plain: bool,
}

impl TrainArguments {
    /// Reads the config with its overrides. Checks that its data files exist, unless it is only
    /// printed.
    pub(crate) fn read_config(&self) -> Result<Config, ConfigError> {
        let overrides = self.set.iter().map(|text| Override::set(text));
        let mut overrides: Vec<Override> = overrides.collect::<Result<_, _>>()?;
        // Last, so that it takes precedence over --set backend.name.
        if let Some(name) = self.backend.map(|backend| backend.to_string()) {
            let flag = format!("--backend {name}");
            overrides.push(Override::flag(&flag, "backend.name", &name));
        }
        let config = Config::read(&self.config, &overrides)?;
        if !self.print_config {
            config.check_files(&self.config, &overrides, self.resume)?;
        }
        Ok(config)
    }
}
