//! `zoo train`: training from a config file.

use std::process::ExitCode;

use clap::Args;

use super::arguments::TrainArguments;
use super::print;
use super::signals::StopSignal;
use super::sweep;
use crate::training::dry_run;
use crate::{Result, StopReason, TrainOptions, train};

/// Train a model from a config file
#[derive(Debug, Args)]
pub struct Train {
    #[command(flatten)]
    arguments: TrainArguments,
}

impl Train {
    /// Runs the command and returns its exit code, which tells scripts whether the run was
    /// interrupted.
    pub fn run(self) -> Result<ExitCode> {
        let arguments = self.arguments;
        let options = TrainOptions {
            resume: arguments.resume,
            step: arguments.step,
            accept_changed_data: arguments.accept_changed_data,
            overwrite: arguments.overwrite,
            plain: arguments.plain,
            ..TrainOptions::default()
        };
        if !arguments.sweep.is_empty() {
            return sweep::run(&arguments, &options);
        }
        let config = arguments.read_config()?;
        if arguments.print_config {
            print(&mut std::io::stdout(), &config.to_toml())?;
            return Ok(ExitCode::SUCCESS);
        }
        if arguments.dry_run {
            let mut printed = Ok(());
            let out = &mut std::io::stdout();
            dry_run(&config, &options, &mut |line| {
                if printed.is_ok() {
                    printed = print(out, &format!("{line}\n"));
                }
            })?;
            return printed.map(|()| ExitCode::SUCCESS);
        }
        let stop_signal = StopSignal::listen(&options.interrupter)?;
        let output = train(&config, &options)?;
        Ok(match output.stop_reason {
            StopReason::Interrupted => ExitCode::from(stop_signal.exit_code()),
            StopReason::Completed | StopReason::EarlyStopping => ExitCode::SUCCESS,
        })
    }
}
