//! `zoo average`: checkpoint averaging.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::{Command, print};
use crate::{AVERAGE, Result, RunFolder, TrainError, average};

/// Average the weights of several checkpoints
///
/// Use the result in other commands with --checkpoint average. The number of checkpoints that a run
/// keeps is training.keep_checkpoints in its config.
#[derive(Debug, Args)]
pub struct Average {
    /// Average the checkpoints of the run in this folder
    #[arg(value_name = "RUN")]
    run: PathBuf,

    /// Average the last K checkpoints [default: 5, or all if there are fewer]
    #[arg(long, value_name = "K", conflicts_with = "steps")]
    last: Option<usize>,

    /// Average the checkpoints at these steps, comma-separated
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    steps: Vec<usize>,
}

/// Vaswani et al. average 5 checkpoints for their base model.
const DEFAULT_LAST: usize = 5;

impl Command for Average {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let folder = RunFolder::open(&self.run)?;
        let steps = self.select_steps(&folder)?;
        average(&folder, &steps)?;
        let unit = if steps.len() == 1 { "step" } else { "steps" };
        let list: Vec<String> = steps.iter().map(ToString::to_string).collect();
        let path = folder.file(AVERAGE);
        let line = format!("{}: mean of {unit} {}\n", path.display(), list.join(", "));
        print(out, &line)
    }
}

impl Average {
    fn select_steps(&self, folder: &RunFolder) -> Result<Vec<usize>> {
        if !self.steps.is_empty() {
            let mut steps = self.steps.clone();
            steps.sort_unstable();
            steps.dedup();
            return Ok(steps);
        }
        let all = folder.checkpoints().steps()?;
        if all.is_empty() {
            return Err(TrainError::Refused(format!(
                "no checkpoints in {}\n  help: train until the first checkpoint is written",
                folder.path().display()
            )));
        }
        match self.last {
            Some(last) if last == 0 || last > all.len() => Err(TrainError::Refused(format!(
                "--last must be from 1 to {}, the number of checkpoints of {}, got {last}\n  help: \
                 training.keep_checkpoints sets how many checkpoints a run keeps",
                all.len(),
                folder.path().display()
            ))),
            last => {
                let count = last.unwrap_or(DEFAULT_LAST).min(all.len());
                Ok(all[all.len() - count..].to_vec())
            }
        }
    }
}
