//! `cargo xtask bench report RUN`: what an earlier run came to, from what it left.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use zoo_bench_core::pool::pool;
use zoo_bench_core::record::Results;
use zoo_bench_core::report;
use zoo_bench_core::table::Against;

use super::{Format, answer};

#[derive(Args)]
pub(super) struct Again {
    /// The run: its folder, or the results file in it
    run: PathBuf,

    /// An earlier run to set the times against
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// How the answer is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Again {
    pub(super) fn run(&self) -> Result<()> {
        let results = Results::read(&self.run)?;
        let baseline = match &self.baseline {
            Some(path) => Some(pool(&Results::read(path)?.cases)),
            None => None,
        };
        let against = Against {
            baseline: baseline.as_deref(),
        };
        let folder = match self.run.is_dir() {
            true => self.run.as_path(),
            false => self.run.parent().unwrap_or(Path::new(".")),
        };
        let page = report::write(
            folder,
            &results.run,
            &results.cases,
            &results.skipped,
            against,
        )
        .with_context(|| format!("cannot write the report into {}", folder.display()))?;
        answer::show(
            self.format,
            &pool(&results.cases),
            &results.skipped,
            against,
        )?;
        eprintln!("report:  {}", page.display());
        Ok(())
    }
}
