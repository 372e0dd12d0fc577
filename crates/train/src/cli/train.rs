//! `zoo train`: a config becomes a run.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use burn::train::Interrupter;
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

/// What shells say of a program that Ctrl-C ended: 128, and 2 for the signal.
const INTERRUPTED: u8 = 130;

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
            print!("{}", config.to_toml());
            return Ok(ExitCode::SUCCESS);
        }
        config.check_files(&self.config, &overrides, self.resume)?;
        let options = TrainOptions {
            resume: self.resume,
            step: self.step,
            overwrite: self.overwrite,
            plain: self.plain,
            ..TrainOptions::default()
        };
        stop_on_signal(&options.interrupter)?;
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
        Ok(match finished.ending {
            Ending::Interrupted => ExitCode::from(INTERRUPTED),
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

/// The first Ctrl-C asks for an end after the step, the second one is the end. Those that come
/// together are one: shells send a signal to a program and to its group.
fn stop_on_signal(interrupter: &Interrupter) -> Result<(), TrainError> {
    const TOGETHER: Duration = Duration::from_millis(500);
    let interrupter = interrupter.clone();
    let mut first: Option<Instant> = None;
    let handled = ctrlc::set_handler(move || match first {
        Some(first) if first.elapsed() < TOGETHER => {}
        // Not `exit`: what it would tidy up is in use.
        Some(_) => std::process::abort(),
        None => {
            first = Some(Instant::now());
            eprintln!("\nstops after this step and writes a checkpoint (again: stops at once)");
            interrupter.stop(Some("asked to"));
        }
    });
    handled.map_err(|error| TrainError::Refused(error.to_string()))
}
