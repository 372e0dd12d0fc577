//! `zoo train`: a config becomes a run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use zoo_config::{Config, ConfigError, Override};
use zoo_spec::BackendWord;

use super::print;
use super::signals::Stopping;
use crate::out::print_line;
use crate::show::line::{number, time};
use crate::{Ending, TrainError, TrainOptions, train};

/// Trains a model from a config file
#[derive(Debug, Args)]
pub struct Train {
    /// The config file
    pub config: PathBuf,

    /// The backend, instead of the one the config names: flex, ndarray, wgpu, tch-cpu, ...
    #[arg(long, value_name = "WORD")]
    pub backend: Option<BackendWord>,

    /// Changes a key of the config: --set model.layers=4
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Prints the config with every default, and does nothing else
    #[arg(long)]
    pub print_config: bool,

    /// Goes on with the run that is there, as if it had never stopped
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,

    /// Goes on from this step, not from the last checkpoint
    #[arg(long, requires = "resume")]
    pub step: Option<usize>,

    /// Resume even if the data has changed since the checkpoint
    #[arg(long, requires = "resume")]
    pub accept_changed_data: bool,

    /// Begins anew in the place of the run that is there
    #[arg(long)]
    pub overwrite: bool,

    /// A line an interval instead of the dashboard
    #[arg(long)]
    pub plain: bool,
}

impl Train {
    /// Runs the command, and says how the program ends: a run that was interrupted is saved, and
    /// not over, which scripts are to know.
    ///
    /// # Errors
    ///
    /// Those of [`train`].
    pub fn run(self) -> Result<ExitCode, TrainError> {
        let overrides = self.overrides()?;
        let config = Config::read(&self.config, &overrides)?;
        if self.print_config {
            print(&mut std::io::stdout(), &config.to_toml())?;
            return Ok(ExitCode::SUCCESS);
        }
        config.check_files(&self.config, &overrides, self.resume)?;
        let options = TrainOptions {
            resume: self.resume,
            step: self.step,
            accept_changed_data: self.accept_changed_data,
            overwrite: self.overwrite,
            plain: self.plain,
            ..TrainOptions::default()
        };
        let stopping = Stopping::on_signals(&options.interrupter)?;
        let finished = train(&config, &options)?;

        let folder = finished.folder.path().display();
        let took = time(finished.seconds);
        match finished.ending {
            Ending::Complete => print_line(format_args!("{} steps in {took}", finished.steps)),
            Ending::Early => print_line(format_args!(
                "stopped after {} steps in {took}: validation got no better",
                finished.steps
            )),
            Ending::Interrupted => print_line(format_args!(
                "stopped after step {} in {took}; the same command with --resume goes on",
                finished.steps
            )),
        }
        if let Some(best) = &finished.best {
            let value = number(config.metric(), best.value);
            print_line(format_args!(
                "best {}: {value} after step {}",
                best.metric, best.step
            ));
        }
        if let Some(test) = &finished.test {
            let values: Vec<String> = test
                .values()
                .into_iter()
                .map(|(metric, value)| format!("{} {}", metric.word(), number(metric, value)))
                .collect();
            print_line(format_args!("test: {}", values.join("  ")));
        }
        print_line(folder);
        Ok(match finished.ending {
            Ending::Interrupted => ExitCode::from(stopping.exit_code()),
            Ending::Complete | Ending::Early => ExitCode::SUCCESS,
        })
    }

    fn overrides(&self) -> Result<Vec<Override>, ConfigError> {
        let mut overrides: Vec<Override> = vec![];
        for set in &self.set {
            overrides.push(Override::set(set)?);
        }
        // The flag of its own counts more than a --set of the same key.
        if let Some(word) = self.backend.map(|word| word.to_string()) {
            let flag = format!("--backend {word}");
            overrides.push(Override::flag(&flag, "backend.word", &word));
        }
        Ok(overrides)
    }
}
