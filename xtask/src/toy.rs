//! `cargo xtask toy`: adds a mechanism that nobody needs, by the steps that ARCHITECTURE.md
//! tells people who add one, to a copy of the workspace, and runs the tests there.
//!
//! The mechanism is in `outside/toy`. That its changes still fit, and that each is told by its
//! step, is a test that takes no time; the command builds it, too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;

use crate::backends::{Backends, Environment};
use crate::build;
use crate::packages;
use crate::places;

#[derive(Args)]
pub(crate) struct Toy {
    #[command(flatten)]
    backends: Backends,
}

/// Where the mechanism is, and the word for it.
const FOLDER: &str = "outside/toy";
const WORD: &str = "look-back";

/// What is not part of the workspace.
const LEFT_OUT: [&str; 5] = [".git", "bench-results", "data", "runs", "target"];

#[derive(Deserialize)]
struct Changes {
    change: Vec<Change>,
}

/// Something that a step asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    /// The number of the step.
    step: usize,
    /// What is changed, or made.
    file: String,
    /// The file of the toy's folder that it is made from.
    from: Option<String>,
    /// What the file has once, and what is added behind it.
    after: Option<String>,
    add: Option<String>,
}

/// Files by their place in the workspace.
type Files = BTreeMap<PathBuf, Vec<u8>>;

impl Toy {
    pub(crate) fn run(self) -> Result<()> {
        let environment = self.backends.prepare()?;
        let folder = places::target().join("toy");
        let copy = folder.join("workspace");
        let mut files = Files::new();
        read(&places::workspace(), &mut files)?;
        add_the_mechanism(&mut files)?;
        write(&copy, &files)?;
        println!("{WORD} was added to a copy: {}", copy.display());

        // Apart, since we are a program of the other target directory.
        let light = folder.join("light");
        for arguments in [
            &["run", "--quiet", "--package", "xtask", "--", "readme"][..],
            &["run", "--quiet", "--package", "xtask", "--", "config-docs"],
        ] {
            cargo(&copy, &light, arguments, &Environment::new())?;
        }
        let mut arguments = packages::light_tests();
        arguments.retain(|argument| *argument != "--no-run");
        // Ours alone: to the copy it cannot be added again.
        arguments.extend(["--", "--skip", "toy::"]);
        cargo(&copy, &light, &arguments, &Environment::new())?;

        let features = packages::features(&self.backends.features());
        let arguments = packages::with_burn("test", &features);
        for word in self.backends.words() {
            let mut environment = environment.clone();
            environment.push(("ZOO_BACKEND", word.to_string().into()));
            for filter in [WORD, "chapter", "just_behind"] {
                let arguments = [&arguments[..], &["--quiet", "--", filter]].concat();
                let said = cargo(&copy, &places::target(), &arguments, &environment)?;
                let passed = passed(&said);
                ensure!(passed > 0, "no test of the copy has {filter:?} in its name");
                println!("{word}: {passed} tests with {filter:?} in their names passed");
            }
        }
        Ok(())
    }
}

/// Runs cargo in the copy, and returns what it printed.
fn cargo(
    copy: &Path,
    target: &Path,
    arguments: &[&str],
    environment: &Environment,
) -> Result<String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(copy);
    build::set(&mut command, environment);
    command.env("CARGO_TARGET_DIR", target);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cargo could not be started")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{said}\nin {}: cargo {} failed\n  do: see whether \"How to add a mechanism\" in ARCHITECTURE.md \
         misses a step, and add it there and to {FOLDER}",
        copy.display(),
        arguments.join(" ")
    );
    Ok(said)
}

/// Tests that passed, by the closing lines of their programs.
fn passed(said: &str) -> usize {
    let results = said.lines().filter_map(|line| {
        let rest = line.strip_prefix("test result: ok. ")?;
        rest.split(' ').next()?.parse::<usize>().ok()
    });
    results.sum()
}

/// Reads the files of a workspace.
fn read(workspace: &Path, files: &mut Files) -> Result<()> {
    let mut folders = vec![workspace.to_owned()];
    while let Some(folder) = folders.pop() {
        let unread = || format!("{} cannot be read", folder.display());
        for entry in fs::read_dir(&folder).with_context(unread)? {
            let path = entry.with_context(unread)?.path();
            let place = path.strip_prefix(workspace).unwrap_or(&path).to_owned();
            // A target directory may be anywhere, and says what it is.
            let is_cache = path.join("CACHEDIR.TAG").is_file();
            if is_cache || LEFT_OUT.iter().any(|name| place == Path::new(name)) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                let unread = || format!("{} cannot be read", path.display());
                files.insert(place, fs::read(&path).with_context(unread)?);
            }
        }
    }
    Ok(())
}

/// Makes a folder have these files and no others. One that is as it was is not touched, so
/// that cargo need not build it again.
fn write(copy: &Path, files: &Files) -> Result<()> {
    let mut there = Files::new();
    if copy.is_dir() {
        read(copy, &mut there)?;
    }
    for place in there.keys().filter(|place| !files.contains_key(*place)) {
        fs::remove_file(copy.join(place))?;
    }
    for (place, bytes) in files {
        if there.get(place) != Some(bytes) {
            let path = copy.join(place);
            fs::create_dir_all(path.parent().unwrap_or(copy))?;
            fs::write(&path, bytes)
                .with_context(|| format!("{} cannot be written", path.display()))?;
        }
    }
    Ok(())
}

/// Does to the files what the toy's changes say.
fn add_the_mechanism(files: &mut Files) -> Result<()> {
    for change in changes(files)? {
        change.apply(files)?;
    }
    // Another version: the copy's crates are then others than ours to cargo, which goes by
    // name, version and place in the workspace, and both share one Burn.
    let manifest = text(files, "Cargo.toml")?;
    let (before, version) = manifest
        .split_once("[workspace.package]\nversion = \"")
        .context("Cargo.toml has no version of the workspace")?;
    let (version, after) = version.split_once('"').unwrap_or_default();
    let manifest = format!("{before}[workspace.package]\nversion = \"{version}+toy\"{after}");
    files.insert("Cargo.toml".into(), manifest.into_bytes());
    Ok(())
}

fn changes(files: &Files) -> Result<Vec<Change>> {
    let path = format!("{FOLDER}/changes.toml");
    let changes: Changes =
        toml::from_str(&text(files, &path)?).with_context(|| format!("{path} cannot be read"))?;
    Ok(changes.change)
}

fn text(files: &Files, path: &str) -> Result<String> {
    let bytes = files.get(Path::new(path));
    let bytes = bytes.with_context(|| format!("{path} is not there"))?;
    String::from_utf8(bytes.clone()).with_context(|| format!("{path} is not text"))
}

impl Change {
    fn apply(&self, files: &mut Files) -> Result<()> {
        let Self { step, file, .. } = self;
        let changed = match (&self.from, &self.after, &self.add) {
            (Some(from), None, None) => {
                let is_new = !files.contains_key(Path::new(file));
                ensure!(is_new, "step {step}: {file} is there already");
                text(files, &format!("{FOLDER}/{from}"))?
            }
            (None, Some(after), Some(add)) => {
                let whole = text(files, file)?;
                let count = whole.matches(after.as_str()).count();
                ensure!(
                    count == 1,
                    "step {step}: {file} has {count} times, and should have once:\n{after}\n  do: change \
                     {FOLDER}/changes.toml as the file was changed"
                );
                whole.replacen(after.as_str(), &format!("{after}{add}"), 1)
            }
            _ => bail!("step {step}: {file}: a change has `from`, or `after` and `add`"),
        };
        files.insert(file.into(), changed.into_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Files {
        let mut files = Files::new();
        read(&places::workspace(), &mut files).expect("it can be read");
        files
    }

    /// The steps that ARCHITECTURE.md tells, the first at 1.
    fn steps(files: &Files) -> Vec<String> {
        let page = text(files, "ARCHITECTURE.md").expect("it is there");
        let (_, section) = page
            .split_once("\n## How to add a mechanism\n")
            .expect("it tells how");
        let section = section.split("\n## ").next().unwrap_or_default();
        let mut steps = vec![String::new()];
        for line in section.lines() {
            if line.starts_with(&format!("{}. ", steps.len())) {
                steps.push(String::new());
            }
            if let Some(step) = steps.last_mut() {
                *step += &format!("{line}\n");
            }
        }
        steps
    }

    #[test]
    fn its_changes_fit_the_workspace() {
        let mut files = workspace();
        add_the_mechanism(&mut files).unwrap_or_else(|error| panic!("{error:#}"));
        assert!(files.contains_key(Path::new("crates/attention/src/look_back.rs")));
        let manifest = text(&files, "Cargo.toml").expect("it is there");
        assert!(manifest.contains("+toy\"\n"), "{manifest}");
    }

    /// Somebody who follows the steps is told of every file that has to be changed.
    #[test]
    fn every_file_is_named_by_its_step() {
        let files = workspace();
        let steps = steps(&files);
        for change in changes(&files).expect("they can be read") {
            let file = change.file.as_str();
            let folder = Path::new(file).parent().expect("in a folder").display();
            let named = match change.from {
                Some(_) => format!("`{folder}`"),
                None => format!("`{file}`"),
            };
            let step = steps.get(change.step).map_or("", String::as_str);
            assert!(
                step.contains(&named),
                "step {}: {named}\n{step}",
                change.step
            );
        }
    }

    #[test]
    fn tests_that_passed_are_counted() {
        let said = "test result: ok. 3 passed; 0 failed\nx\ntest result: ok. 40 passed; 0 failed\n";
        assert_eq!(passed(said), 43);
    }

    #[test]
    fn what_no_longer_fits_is_told() {
        let mut files = Files::from([("a.rs".into(), b"one two one".to_vec())]);
        let mut change = Change {
            step: 1,
            file: "a.rs".to_owned(),
            from: None,
            after: Some("two".to_owned()),
            add: Some(" three".to_owned()),
        };
        change.apply(&mut files).expect("it fits");
        assert_eq!(text(&files, "a.rs").expect("text"), "one two three one");
        for (after, told) in [("four", "0 times"), ("one", "2 times")] {
            change.after = Some(after.to_owned());
            let error = change.apply(&mut files).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
