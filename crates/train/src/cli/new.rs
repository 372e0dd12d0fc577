//! `zoo new`: a config to begin with.

use std::io::Write;

use clap::Args;
use zoo_config::{TEMPLATES, template};

use super::{Command, print};
use crate::{Result, TrainError};

/// Prints a config with every key and a comment: zoo new transformer > my.toml
#[derive(Debug, Args)]
pub struct New {
    /// The kind of model: transformer, seq2seq, han, gpt or classifier
    kind: Option<String>,
}

impl Command for New {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let Some(kind) = self.kind else {
            return Err(TrainError::Refused(format!(
                "which kind of model? There are {}; for example: zoo new {} > my.toml",
                TEMPLATES.join(", "),
                TEMPLATES[0]
            )));
        };
        print(out, &template(&kind)?)
    }
}
