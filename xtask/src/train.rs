//! `cargo xtask train`: reads a config, then builds and starts the program that trains
//! from it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;
use zoo_config::{Config, Data, Files, Override};
use zoo_words::BackendWord;

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
        let config = Config::read(&self.config, &self.overrides()?)?;
        if self.print_config {
            print!("{}", config.to_toml());
            return Ok(());
        }
        check_files(&config)?;

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

/// Files that are missing would otherwise be missed after minutes of compiling.
fn check_files(config: &Config) -> Result<()> {
    let missing: Vec<_> = files(config)
        .into_iter()
        .filter(|(_, path)| !is_there(path))
        .map(|(key, path)| format!("{key}: there is no {}", path.display()))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "{}\n  paths are taken from where the command is started\n  do: put the data there, the \
         config says where it comes from, or name it: --set {}=PATH",
        missing.join("\n"),
        missing[0].split(':').next().unwrap_or_default()
    )
}

/// The files that a run reads, each with its key.
fn files<'a>(config: &'a Config) -> Vec<(&'static str, &'a Path)> {
    let path = |path: Option<&'a PathBuf>| path.map(PathBuf::as_path).into_iter().collect();
    let [train, valid, test] = match &config.data {
        Data::Parallel(data) => [
            paths(Some(&data.train)),
            paths(data.valid.as_ref()),
            paths(data.test.as_ref()),
        ],
        Data::Labelled(data) => {
            [Some(&data.train), data.valid.as_ref(), data.test.as_ref()].map(path)
        }
        Data::Plain(data) => [Some(&data.train), data.valid.as_ref(), data.test.as_ref()].map(path),
        _ => [vec![], vec![], vec![]],
    };
    let listed = [
        ("tokenizer.load", paths(config.tokenizer.load())),
        ("data.train", train),
        ("data.valid", valid),
        ("data.test", test),
    ];
    let each = |(key, paths): (_, Vec<_>)| paths.into_iter().map(move |path| (key, path));
    listed.into_iter().flat_map(each).collect()
}

fn paths(files: Option<&Files>) -> Vec<&Path> {
    match files {
        Some(Files::One(path)) => vec![path],
        Some(Files::Two(paths)) => paths.iter().map(PathBuf::as_path).collect(),
        None => vec![],
    }
}

/// Whether a file or folder is there; `archive.zip#name` is one if the archive is.
fn is_there(path: &Path) -> bool {
    let archive = path.to_str().and_then(|text| text.rsplit_once('#'));
    path.exists() || archive.is_some_and(|(archive, _)| Path::new(archive).exists())
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

    #[test]
    fn missing_files_are_told_with_their_keys() {
        let text = "[data]\nkind = \"parallel\"\ntrain = [\"/no/a.en\", \"/no/a.zip#a.de\"]\n\
                    valid = \"Cargo.toml\"\n[model]\nkind = \"transformer\"\n\
                    [tokenizer]\nkind = \"bpe\"\nload = [\"/no/a.json\", \"Cargo.toml\"]\n";
        let config = Config::parse("a.toml", text, &[]).expect("it is right");
        let said = check_files(&config).expect_err("none is there").to_string();
        let expected = "tokenizer.load: there is no /no/a.json\n\
                        data.train: there is no /no/a.en\n\
                        data.train: there is no /no/a.zip#a.de\n";
        assert!(said.starts_with(expected), "{said}");
        assert!(!said.contains("Cargo.toml"), "{said}");
        assert!(said.ends_with("--set tokenizer.load=PATH"), "{said}");
        assert!(is_there(Path::new("Cargo.toml#inside")));
    }
}
