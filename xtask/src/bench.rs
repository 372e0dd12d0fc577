//! `cargo xtask bench`: builds the measuring program for one backend after
//! another and runs it.

use std::num::NonZeroUsize;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use zoo_words::BackendWord;

use crate::backends::Backends;
use crate::build;

#[derive(Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    backends: Backends,

    /// The number type: f32, f16 or bf16
    #[arg(long, default_value = "f32")]
    dtype: zoo_words::Dtype,

    /// Lengths to measure at, with commas
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    seq: Vec<NonZeroUsize>,
}

/// The measuring program, and the package it is in.
const PROGRAM: &str = "zoo-bench";

impl Bench {
    pub(crate) fn run(&self) -> Result<()> {
        for &word in self.backends.words() {
            self.measure(word)?;
        }
        Ok(())
    }

    fn measure(&self, word: BackendWord) -> Result<()> {
        let backend = self.backends.only(word);
        let environment = backend.prepare()?;
        let features = backend.features().join(",");
        let arguments = [
            "build",
            "--release",
            "--package",
            PROGRAM,
            "--features",
            &features,
        ];
        let (built, _) = build::cargo_build(&arguments, &environment)?;
        let program = built
            .iter()
            .find(|built| built.target == PROGRAM)
            .context("cargo built no zoo-bench")?;
        let mut command = Command::new(&program.executable);
        command
            .args(["--backend", &word.to_string()])
            .args(["--dtype", self.dtype.word()]);
        build::set(&mut command, &environment);
        if !self.seq.is_empty() {
            let lengths: Vec<String> = self.seq.iter().map(NonZeroUsize::to_string).collect();
            command.args(["--seq", &lengths.join(",")]);
        }
        let status = command.status().context("zoo-bench could not be started")?;
        if !status.success() {
            bail!("measuring {word} failed; what it said is above");
        }
        Ok(())
    }
}
