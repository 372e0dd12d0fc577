//! What a person sees who calls `zoo-hub`. A script stands in for Python, and for the hub: it
//! installs nothing, and its import copies a database or fails.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Says it is a Python, makes itself an environment, and imports as `$IMPORT` says.
const PYTHON: &str = r#"#!/bin/sh
case "$*" in
--version) echo "Python 3.11.7" ;;
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python3" ;;
"-m ensurepip"*) [ "$IMPORT" != no-pip ] ;;
"-m pip"*) ;;
"-c import"*) [ "$IMPORT" != no-packages ] ;;
*importer.py*)
  echo "$*" >> "$LOG"
  while [ "$1" != --file ]; do shift; done
  case "$IMPORT" in
  whole) cp "$DATABASE" "$2" ;;
  killed) head -c 5000 "$DATABASE" > "$2"; kill -9 $PPID ;;
  *) head -c 5000 "$DATABASE" > "$2"; exit 1 ;;
  esac ;;
esac
"#;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("zoo-hub-run-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("bin")).expect("a temporary folder");
        let python = folder.join("bin/python3");
        fs::write(&python, PYTHON).expect("a temporary file");
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("our own file");
        Self(folder)
    }

    /// Runs it where the import does this.
    fn hub(&self, import: &str, arguments: &[&str]) -> Output {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/reviews.db");
        let path = format!("{}:/usr/bin:/bin", self.0.join("bin").display());
        Command::new(env!("CARGO_BIN_EXE_zoo-hub"))
            .args(arguments)
            .current_dir(&self.0)
            .env("PATH", path)
            .env("XDG_CACHE_HOME", self.0.join("cache"))
            .env("IMPORT", import)
            .env("DATABASE", golden)
            .env("LOG", self.0.join("log"))
            .output()
            .expect("it starts")
    }

    /// How often Python was asked to import.
    fn imports(&self) -> usize {
        fs::read_to_string(self.0.join("log")).map_or(0, |log| log.lines().count())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_data_set_is_loaded_once() {
    let folder = Folder::new("once");
    let output = folder.hub("whole", &["a/reviews", "--subset", "s", "--to", "data"]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let section = "[data]\nkind = \"labelled\"\ntrain = \"data/train.jsonl\"\n\
                   valid = \"data/valid.jsonl\"\n\
                   label_field = \"label\"\ntext_field = \"text\"\n";
    assert_eq!(said, section);
    let log = fs::read_to_string(folder.0.join("log")).expect("it was imported");
    assert!(
        log.contains("--name a/reviews") && log.contains("--subset s"),
        "{log}"
    );

    let arguments = ["a/reviews", "--subset", "s", "--to", "data"];
    let output = folder.hub("failing", &arguments);
    assert!(
        stderr(&output).contains("data/train.jsonl is there already"),
        "{output:?}"
    );
    // From the database that was kept: an import would fail.
    let output = folder.hub("failing", &[&arguments[..], &["--overwrite"]].concat());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(folder.imports(), 1);
}

#[test]
fn half_a_database_is_never_taken_for_a_whole_one() {
    for import in ["failing", "killed"] {
        let folder = Folder::new(import);
        let arguments = ["reviews", "--to", "data"];
        let output = folder.hub(import, &arguments);
        assert!(!output.status.success(), "{output:?}");
        assert!(!folder.0.join("data").exists());
        if import == "failing" {
            let said = stderr(&output);
            assert!(
                said.contains("reviews could not be loaded (exit status: 1)"),
                "{said}"
            );
            for part in ["--subset", "HF_ENDPOINT", "HF_TOKEN"] {
                assert!(said.contains(part), "{part} in {said}");
            }
        }
        let output = folder.hub("whole", &arguments);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(folder.imports(), 2);
        let text = fs::read_to_string(folder.0.join("data/train.jsonl")).expect("it is there");
        assert_eq!(text.lines().count(), 3);
    }
}

#[test]
fn packages_that_are_missing_are_told_from_data_that_is() {
    for import in ["no-pip", "no-packages"] {
        let folder = Folder::new(import);
        let said = stderr(&folder.hub(import, &["reviews", "--to", "data"]));
        assert!(said.contains("could not be installed into"), "{said}");
        for part in [
            "PIP_INDEX_URL",
            "python3-venv",
            "attention-zoo/hub/import/venv",
        ] {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
}

#[test]
fn without_python_it_is_named() {
    let folder = Folder::new("python");
    fs::remove_file(folder.0.join("bin/python3")).expect("it was there");
    let output = Command::new(env!("CARGO_BIN_EXE_zoo-hub"))
        .args(["reviews", "--to", "data", "--cache", "kept"])
        .current_dir(&folder.0)
        .env("PATH", folder.0.join("bin"))
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("apt-get install python3 python3-venv"),
        "{output:?}"
    );
}

#[test]
fn fields_and_splits_that_are_not_there_get_the_nearest() {
    let folder = Folder::new("nearest");
    for (arguments, hint) in [
        (
            &["--text", "txt"][..],
            "unknown field \"txt\": did you mean text?",
        ),
        (&["--split", "test=test.hrad"], "did you mean test.hard?"),
        (&["--split", "tset=test.hard"], "did you mean test?"),
        (&["--text", "photo"], "split train, row 1: photo is 3 bytes"),
        (&["--source", "text"], "--target <FIELD>"),
        (&["--label", "label"], "--text <FIELD>"),
    ] {
        let arguments = [&["reviews", "--to", "data"], arguments].concat();
        let output = folder.hub("whole", &arguments);
        assert!(!output.status.success(), "{output:?}");
        assert!(
            stderr(&output).contains(hint),
            "{hint} in {}",
            stderr(&output)
        );
    }
    let left: Vec<_> = fs::read_dir(folder.0.join("data"))
        .into_iter()
        .flatten()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
