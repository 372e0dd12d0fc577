//! `zoo train`: a config becomes a run.

use std::path::PathBuf;

use clap::Args;
use zoo_config::{Config, ConfigError, Override};
use zoo_words::BackendWord;

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

    /// Begins anew in the place of the run that is there
    #[arg(long)]
    pub overwrite: bool,

    /// A line an interval instead of the dashboard
    #[arg(long)]
    pub plain: bool,
}

impl Train {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// Those of [`train`](crate::train).
    pub fn run(self) -> Result<(), TrainError> {
        let config = self.config()?;
        if self.print_config {
            print!("{}", config.to_toml());
            return Ok(());
        }
        let options = TrainOptions {
            resume: self.resume,
            step: self.step,
            overwrite: self.overwrite,
            plain: self.plain,
            ..TrainOptions::default()
        };
        let interrupter = options.interrupter.clone();
        // The first time it is asked, the second time told: the system's own answer is final.
        let handled = ctrlc::set_handler(move || {
            if interrupter.should_stop() {
                std::process::exit(130);
            }
            eprintln!("\nstops after this step and writes a checkpoint (again: stops at once)");
            interrupter.stop(Some("asked to"));
        });
        handled.map_err(|error| TrainError::Refused(error.to_string()))?;
        let finished = train(&config, &options)?;

        let folder = finished.folder.path().display();
        let took = time(finished.seconds);
        match finished.ending {
            Ending::Complete => println!("{} steps in {took}", finished.steps),
            Ending::Early => println!(
                "stopped after {} steps in {took}: validation got no better",
                finished.steps
            ),
            Ending::Interrupted => println!(
                "stopped after step {} in {took}; the same command with --resume goes on",
                finished.steps
            ),
        }
        if let Some(best) = &finished.best {
            let value = number(config.metric(), best.value);
            println!("best {}: {value} after step {}", best.metric, best.step);
        }
        if let Some(test) = &finished.test {
            let values: Vec<String> = test
                .values()
                .into_iter()
                .map(|(metric, value)| format!("{} {}", metric.word(), number(metric, value)))
                .collect();
            println!("test: {}", values.join("  "));
        }
        println!("{folder}");
        Ok(())
    }

    fn config(&self) -> Result<Config, ConfigError> {
        let mut overrides: Vec<Override> = vec![];
        if let Some(word) = self.backend {
            overrides.push(Override::flag(
                "--backend",
                "backend.word",
                &word.to_string(),
            ));
        }
        for set in &self.set {
            overrides.push(Override::set(set)?);
        }
        Config::read(&self.config, &overrides)
    }
}
