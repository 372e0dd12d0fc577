//! `zoo train`: a config becomes a run.

use std::process::ExitCode;

use clap::Args;

use super::arguments::TrainArguments;
use super::print;
use super::signals::Stopping;
use crate::out::print_line;
use crate::show::line::{number, time, values};
use crate::{Ending, Result, TrainOptions, train};

/// Trains a model from a config file
#[derive(Debug, Args)]
pub struct Train {
    #[command(flatten)]
    arguments: TrainArguments,
}

impl Train {
    /// Runs the command, and says how the program ends: a run that was interrupted is saved, and
    /// not over, which scripts are to know.
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
            print_line(format_args!("test: {}", values(test)));
        }
        print_line(folder);
        Ok(match finished.ending {
            Ending::Interrupted => ExitCode::from(stopping.exit_code()),
            Ending::Complete | Ending::Early => ExitCode::SUCCESS,
        })
    }
}
