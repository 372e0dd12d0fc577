//! `zoo average`: the mean of several checkpoints.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::{Command, print};
use crate::{AVERAGE, Result, RunFolder, TrainError, average};

/// Averages the weights of several checkpoints into one file
///
/// The other commands take it by --checkpoint average. How many checkpoints a run keeps is
/// training.keep in its config.
#[derive(Debug, Args)]
pub struct Average {
    /// The folder of the run
    #[arg(value_name = "RUN")]
    run: PathBuf,

    /// How many checkpoints, counted from the last; 5, or all there are, if not given
    #[arg(long, value_name = "K", conflicts_with = "steps")]
    last: Option<usize>,

    /// The steps of the checkpoints, with commas between
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    steps: Vec<usize>,
}

/// What Vaswani et al. average for their base model.
const USUAL: usize = 5;

impl Command for Average {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let folder = RunFolder::existing(&self.run)?;
        let steps = self.chosen(&folder)?;
        average(&folder, &steps)?;
        let words: Vec<String> = steps.iter().map(ToString::to_string).collect();
        let what = match words.as_slice() {
            [first @ .., last] if !first.is_empty() => {
                format!("steps {} and {last}", first.join(", "))
            }
            one => format!("step {} alone", one.concat()),
        };
        let path = folder.file(AVERAGE);
        print(out, &format!("{}: the mean of {what}\n", path.display()))
    }
}

impl Average {
    fn chosen(&self, folder: &RunFolder) -> Result<Vec<usize>> {
        if !self.steps.is_empty() {
            let mut steps = self.steps.clone();
            steps.sort_unstable();
            steps.dedup();
            return Ok(steps);
        }
        let all = folder.checkpoints().steps()?;
        if all.is_empty() {
            return Err(TrainError::Refused(format!(
                "{} has no checkpoint to average",
                folder.path().display()
            )));
        }
        match self.last {
            Some(last) if last == 0 || last > all.len() => Err(TrainError::Refused(format!(
                "--last must be from 1 to {}, the checkpoints that {} has, got {last}; \
                 training.keep says how many a run keeps",
                all.len(),
                folder.path().display()
            ))),
            last => {
                let count = last.unwrap_or(USUAL).min(all.len());
                Ok(all[all.len() - count..].to_vec())
            }
        }
    }
}
