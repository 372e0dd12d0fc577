//! `zoo mechanisms`: the attention mechanisms, and the description of one.

use std::io::Write;

use clap::Args;
use zoo_config::{describe, wrap};
use zoo_spec::{Mechanism, Printable};

use super::terminal::{table, width};
use super::{Command, print};
use crate::{Result, TrainError};

/// List the attention mechanisms, or describe one: formula, keys, defaults and uses
#[derive(Debug, Args)]
pub struct Mechanisms {
    /// Describe this mechanism
    name: Option<String>,
}

impl Command for Mechanisms {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        match &self.name {
            Some(name) => print(out, &wrap(&describe(mechanism(name)?), width())),
            None => print(out, &overview(width())),
        }
    }
}

fn mechanism(name: &str) -> Result<Mechanism> {
    name.parse().map_err(|error: zoo_spec::UnknownName| {
        let nearest = error.nearest();
        let nearest = nearest.map_or(String::new(), |name| format!(": did you mean {name}?"));
        let name = Printable(name);
        TrainError::Refused(format!(
            "unknown mechanism \"{name}\"{nearest}\n  help: `zoo mechanisms` lists all mechanisms"
        ))
    })
}

fn overview(width: usize) -> String {
    let row = |mechanism: Mechanism| {
        let about = mechanism.about();
        let names = [&[mechanism.name()], mechanism.aliases()].concat();
        [
            names.join(",\n"),
            mechanism.summary().replace('`', ""),
            // Without the exceptions, which the description has.
            about.time.split(';').next().unwrap_or_default().to_owned(),
            about.memory.to_owned(),
            about.exactness.to_string(),
        ]
    };
    let columns = [
        ("name, aliases", Some(15)),
        ("computes", None),
        ("time", Some(11)),
        ("memory", Some(6)),
        ("vs. softmax attention", Some(11)),
    ];
    let table = table(columns, &Mechanism::ALL.map(row), width);
    let help = "`zoo mechanisms NAME` shows the formula, keys and uses of one.";
    format!("{table}{}", wrap(help, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overview_and_descriptions_fit_the_width() {
        for width in [80, 100] {
            let text = overview(width);
            for mechanism in Mechanism::ALL {
                let name = format!(" {mechanism}");
                assert!(text.contains(&name), "{name}\n{text}");
                let text = wrap(&describe(mechanism), width);
                assert!(
                    text.lines().all(|line| line.chars().count() <= width),
                    "{text}"
                );
            }
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
        }
    }
}
