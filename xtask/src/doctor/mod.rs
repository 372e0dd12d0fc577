//! `cargo xtask doctor`: what this machine has, what is missing, and how to get it.
//!
//! Whether a backend can be compiled is looked up; whether it starts is asked of
//! a program that links it. Every build of the tests leaves such a program
//! behind, and `--build` makes one.

mod probe;
mod report;

use anyhow::Result;
use clap::Args;

use crate::backends::Backends;
use crate::{build, packages};

pub(crate) use probe::keep_probe;

#[derive(Args)]
pub(crate) struct Doctor {
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,

    /// First build the program that tries the backends of --backend out
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
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            report.print();
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
