//! `cargo xtask bench compare A B`: what changed from one run to another.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use zoo_bench_core::compare::{compare, show};
use zoo_bench_core::pool::pool;
use zoo_bench_core::record::Results;

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
        let worse = changes
            .iter()
            .filter(|change| change.verdict.is_regression())
            .count();
        if self.fail_on_regression && worse > 0 {
            bail!("{worse} of {} cases got worse", changes.len());
        }
        Ok(())
    }
}
