//! `zoo completions`: completion scripts for shells.

use std::io::Write;

use clap::Args;
use clap_complete::{Shell, generate};

use super::print;
use crate::Result;

/// Print a shell completion script: source <(zoo completions bash)
#[derive(Debug, Args)]
pub struct Completions {
    /// Print the script for this shell
    shell: Shell,
}

impl Completions {
    /// Prints the script of a program.
    pub fn run(self, mut program: clap::Command, out: &mut dyn Write) -> Result<()> {
        let mut script = vec![];
        generate(self.shell, &mut program, "zoo", &mut script);
        print(out, &String::from_utf8_lossy(&script))
    }
}
