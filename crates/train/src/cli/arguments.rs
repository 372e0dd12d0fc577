//! The arguments of `zoo train`, declared once: `cargo xtask train` compiles this file, too, to
//! check them before it builds the program.

use std::path::PathBuf;

use clap::Args;
use zoo_config::{Config, ConfigError, Override};
use zoo_spec::BackendWord;

#[derive(Debug, Args)]
pub(crate) struct TrainArguments {
    /// The config file
    pub(crate) config: PathBuf,

    /// The backend, instead of the config's: flex, ndarray, wgpu, tch-cpu, ...
    #[arg(long, value_name = "WORD")]
    pub(crate) backend: Option<BackendWord>,

    /// Changes a key of the config: --set model.layers=4
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Prints the config with every default, and does nothing else
    #[arg(long, conflicts_with_all = ["resume", "overwrite", "plain"])]
    pub(crate) print_config: bool,

    /// Goes on with the run that is there, as if it had never stopped
    #[arg(long, conflicts_with = "overwrite")]
    pub(crate) resume: bool,

    /// Goes on from this step, not from the last checkpoint
    #[arg(long, requires = "resume", value_name = "N")]
    pub(crate) step: Option<usize>,

    /// Resume even if the data has changed since the checkpoint
    #[arg(long, requires = "resume")]
    pub(crate) accept_changed_data: bool,

    /// Begins anew in the place of the run that is there
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// A line an interval instead of the dashboard
    #[arg(long)]
    pub(crate) plain: bool,
}

impl TrainArguments {
    /// The config with these changes. Its files are there, unless it is only to be printed.
    pub(crate) fn read_config(&self) -> Result<Config, ConfigError> {
        let overrides = self.set.iter().map(|text| Override::set(text));
        let mut overrides: Vec<Override> = overrides.collect::<Result<_, _>>()?;
        // The flag of its own counts more than a --set of the same key.
        if let Some(word) = self.backend.map(|word| word.to_string()) {
            let flag = format!("--backend {word}");
            overrides.push(Override::flag(&flag, "backend.word", &word));
        }
        let config = Config::read(&self.config, &overrides)?;
        if !self.print_config {
            config.check_files(&self.config, &overrides, self.resume)?;
        }
        Ok(config)
    }
}
