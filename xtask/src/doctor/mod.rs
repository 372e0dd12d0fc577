//! `cargo xtask doctor`: what each backend needs, and what is missing on this machine.
//!
//! Whether a backend starts is tested by a program that links it, the probe. Every build of the
//! tests keeps one, and `--build` builds one.

mod probe;
mod report;

use anyhow::Result;
use clap::Args;

use crate::backends::Backends;
use crate::{build, packages, print};

pub(crate) use probe::keep_probe;

#[derive(Args)]
pub(crate) struct Doctor {
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,

    /// Build a probe first, to check that the backends of --backend can be opened
    #[arg(long)]
    build: bool,

    #[command(flatten)]
    backends: Backends,
}

impl Doctor {
    pub(crate) fn run(&self) -> Result<()> {
        if self.build {
            self.build_probe()?;
        }
        let report = report::examine();
        if self.json {
            print(&format!("{}\n", serde_json::to_string_pretty(&report)?));
        } else {
            print(&report.to_text());
        }
        Ok(())
    }

    fn build_probe(&self) -> Result<()> {
        let environment = self.backends.prepare()?;
        let features = self.backends.features();
        let arguments = packages::program(probe::PROBE, &features);
        let (built, _) = build::cargo_build(&arguments, &environment)?;
        keep_probe(&built, &features)
    }
}
