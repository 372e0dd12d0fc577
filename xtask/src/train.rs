//! `cargo xtask train`: reads a config, then builds and starts the program that trains
//! from it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::Args;
use zoo_config::{Config, Override};
use zoo_spec::BackendWord;

use crate::backends::Backends;
use crate::program;

#[derive(Args)]
pub(crate) struct Train {
    /// The TOML file of the run: configs/transformer-reverse.toml
    config: PathBuf,

    /// Another backend than the config's: flex, ndarray, wgpu, wgpu:1, tch-cpu, tch-cuda ...
    #[arg(long, value_name = "WORD")]
    backend: Option<BackendWord>,

    /// Change a key of the config for this run: model.layers=4; as often as needed
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Print the config with every default and these changes in it, and stop
    #[arg(long, conflicts_with_all = ["resume", "overwrite", "plain"])]
    print_config: bool,

    /// Go on with a run that was stopped
    #[arg(long, conflicts_with = "overwrite")]
    resume: bool,

    /// Go on from this step, not from the last checkpoint
    #[arg(long, requires = "resume", value_name = "N")]
    step: Option<usize>,

    /// Begin anew where there is a run already, which is lost
    #[arg(long)]
    overwrite: bool,

    /// A line now and then instead of the dashboard
    #[arg(long)]
    plain: bool,

    /// Install a missing software Vulkan driver (as root on Debian and its kin)
    #[arg(long)]
    install: bool,
}

impl Train {
    pub(crate) fn run(&self) -> Result<()> {
        // Everything a person can get wrong, before anything slow.
        let overrides = self.overrides()?;
        let config = Config::read(&self.config, &overrides)?;
        if self.print_config {
            print!("{}", config.to_toml());
            return Ok(());
        }
        config.check_files(&self.config, &overrides, self.resume)?;

        let backends = Backends::one(config.backend.word, self.install);
        let environment = backends.prepare()?;
        let mut command = Command::new(program::provide("zoo", &backends, &environment)?);
        command.args(self.arguments());
        program::hand_over(command, &environment)
    }

    fn overrides(&self) -> Result<Vec<Override>> {
        let mut overrides = Vec::new();
        for text in &self.set {
            overrides.push(Override::set(text)?);
        }
        // The flag of its own counts more than a --set of the same key.
        if let Some(word) = self.backend.map(|word| word.to_string()) {
            let flag = format!("--backend {word}");
            overrides.push(Override::flag(&flag, "backend.word", &word));
        }
        Ok(overrides)
    }

    /// The same, for the program.
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["train".into(), self.config.clone().into()];
        if let Some(word) = self.backend {
            arguments.extend(["--backend".into(), word.to_string().into()]);
        }
        for text in &self.set {
            arguments.extend(["--set".into(), text.into()]);
        }
        if let Some(step) = self.step {
            arguments.extend(["--step".into(), step.to_string().into()]);
        }
        for (given, flag) in [
            (self.resume, "--resume"),
            (self.overwrite, "--overwrite"),
            (self.plain, "--plain"),
        ] {
            if given {
                arguments.push(flag.into());
            }
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        train: Train,
    }

    fn parsed(arguments: &[&str]) -> Train {
        let arguments = ["train"].iter().chain(arguments);
        Line::try_parse_from(arguments)
            .unwrap_or_else(|error| panic!("{error}"))
            .train
    }

    #[test]
    fn the_program_is_told_what_we_were_told() {
        let train = parsed(&["a.toml", "--set", "model.layers=4", "--plain", "--install"]);
        let told = train.arguments();
        assert_eq!(
            told,
            ["train", "a.toml", "--set", "model.layers=4", "--plain"]
        );
        let train = parsed(&["--backend", "cpu", "--resume", "--set=run.seed=2", "b.toml"]);
        let told = train.arguments();
        let expected = "train b.toml --backend flex --set run.seed=2 --resume";
        assert_eq!(told, expected.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn the_backend_that_is_built_is_the_one_that_counts() {
        let text = "[backend]\nword = \"ndarray\"\n[data]\nkind = \"copy\"\n\
                    [model]\nkind = \"transformer\"\n";
        for (arguments, word) in [
            (&[][..], "ndarray"),
            (&["--set", "backend.word=wgpu:1"][..], "wgpu:1"),
            (
                &["--backend", "tch-cpu", "--set", "backend.word=wgpu"][..],
                "tch-cpu",
            ),
        ] {
            let train = parsed(&[&["a.toml"], arguments].concat());
            let overrides = train.overrides().expect("they can be read");
            let config = Config::parse("a.toml", text, &overrides).expect("it is right");
            assert_eq!(config.backend.word.to_string(), word);
        }
    }
}
