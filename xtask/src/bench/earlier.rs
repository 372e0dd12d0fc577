//! `cargo xtask bench report RUN` and `bench compare A B`: earlier runs, from what they left.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use zoo_bench_core::compare::{compare, show};
use zoo_bench_core::pool::pool;
use zoo_bench_core::record::Results;

use super::answer::Show;

#[derive(Args)]
pub(super) struct Again {
    /// The run: its folder, or the results file in it
    run: PathBuf,

    #[command(flatten)]
    show: Show,
}

impl Again {
    pub(super) fn run(&self) -> Result<()> {
        let results = Results::read(&self.run)?;
        let folder = match self.run.is_dir() {
            true => self.run.as_path(),
            false => self.run.parent().unwrap_or(Path::new(".")),
        };
        let baseline = self.show.baseline()?;
        self.show.results(folder, &results, baseline.as_deref())
    }
}

#[derive(Args)]
pub(super) struct Compare {
    /// The run before: its folder, or the results file in it
    before: PathBuf,

    /// The run after
    after: PathBuf,

    /// Exit with an error if a case is slower beyond the noise, or broken
    #[arg(long)]
    fail_on_regression: bool,
}

impl Compare {
    pub(super) fn run(&self) -> Result<()> {
        let [before, after] = [Results::read(&self.before)?, Results::read(&self.after)?];
        if before.run.machine != after.run.machine {
            eprintln!(
                "note: the runs are from different machines: {} and {}",
                before.run.machine.cpu, after.run.machine.cpu
            );
        }
        let changes = compare(&pool(&before.cases), &pool(&after.cases));
        print!("{}", show(&changes));
        let is_worse = changes
            .iter()
            .filter(|change| change.verdict.is_regression());
        let worse = is_worse.count();
        if self.fail_on_regression && worse > 0 {
            bail!("{worse} of {} cases got worse", changes.len());
        }
        Ok(())
    }
}
