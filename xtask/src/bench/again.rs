//! `cargo xtask bench report RUN`: what an earlier run came to, from what it left.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use zoo_bench_core::record::Results;

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
        let folder = match self.run.is_dir() {
            true => self.run.as_path(),
            false => self.run.parent().unwrap_or(Path::new(".")),
        };
        let baseline = answer::baseline(self.baseline.as_deref())?;
        let page = answer::show(self.format, folder, &results, baseline.as_deref())?;
        eprintln!("report:  {}", page.display());
        Ok(())
    }
}
