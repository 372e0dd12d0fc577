//! `zoo new`: a commented config template.

use std::io::Write;

use clap::Args;
use zoo_config::{TEMPLATES, template};

use super::arguments::with_names;
use super::{Command, print};
use crate::{Result, TrainError};

/// Print a config template with every key documented: zoo new transformer > my.toml
#[derive(Debug, Args)]
pub struct New {
    /// Print the template of this model: transformer, seq2seq, han, gpt or classifier
    #[arg(value_parser = with_names::<String, _>(TEMPLATES), hide_possible_values = true)]
    kind: Option<String>,
}

impl Command for New {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let Some(kind) = self.kind else {
            return Err(TrainError::Refused(format!(
                "missing model kind, expected one of {}\n  help: zoo new {} > my.toml",
                TEMPLATES.join(", "),
                TEMPLATES[0]
            )));
        };
        print(out, &template(&kind)?)
    }
}
