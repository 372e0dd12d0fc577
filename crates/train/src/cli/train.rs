//! `zoo train`: training from a config file.

use std::process::ExitCode;

use clap::Args;

use super::arguments::TrainArguments;
use super::print;
use super::signals::StopSignal;
use crate::out::print_line;
use crate::report::format::{duration, metric_value, metric_values};
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
    ///
    /// # Errors
    ///
    /// Those of [`train`].
    pub fn run(self) -> Result<ExitCode> {
        let arguments = self.arguments;
        let config = arguments.read_config()?;
        if arguments.print_config {
            print(&mut std::io::stdout(), &config.to_toml())?;
            return Ok(ExitCode::SUCCESS);
        }
        let options = TrainOptions {
            resume: arguments.resume,
            step: arguments.step,
            accept_changed_data: arguments.accept_changed_data,
            overwrite: arguments.overwrite,
            plain: arguments.plain,
            ..TrainOptions::default()
        };
        let stop_signal = StopSignal::listen(&options.interrupter)?;
        let output = train(&config, &options)?;

        let folder = output.folder.path().display();
        let elapsed = duration(output.seconds);
        match output.stop_reason {
            StopReason::Completed => {
                print_line(format_args!("{} steps in {elapsed}", output.steps))
            }
            StopReason::EarlyStopping => print_line(format_args!(
                "early stopping after {} steps in {elapsed}: validation did not improve",
                output.steps
            )),
            StopReason::Interrupted => print_line(format_args!(
                "interrupted after step {} in {elapsed}; continue with --resume",
                output.steps
            )),
        }
        if let Some(best) = &output.best {
            let value = metric_value(config.metric(), best.value);
            print_line(format_args!(
                "best {}: {value} at step {}",
                best.metric, best.step
            ));
        }
        if let Some(test) = &output.test {
            print_line(format_args!("test: {}", metric_values(test)));
        }
        print_line(folder);
        Ok(match output.stop_reason {
            StopReason::Interrupted => ExitCode::from(stop_signal.exit_code()),
            StopReason::Completed | StopReason::EarlyStopping => ExitCode::SUCCESS,
        })
    }
}
