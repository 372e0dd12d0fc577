//! `cargo xtask train` and `cargo xtask zoo`. A script replaces cargo.

use std::process::Command;

use crate::{Folder, Output};

pub(crate) const REVERSE: &str = "[data]\nkind = \"reverse\"\n\n[model]\nkind = \"transformer\"\n";

impl Folder {
    /// A command with a fake cargo, which builds a program that prints its arguments and exits with 7.
    #[cfg(unix)]
    fn xtask_that_builds(&self, program: &str, arguments: &str) -> Command {
        let lines = "echo \"$(basename $0): $*\"\necho \"in $PWD\"\necho $$ > pid\ncat\nexit 7";
        let message = serde_json::json!({
            "reason": "compiler-artifact",
            "target": { "name": program, "kind": ["bin"] },
            "profile": { "test": false },
            "executable": self.script(program, lines),
            "manifest_path": "/a/Cargo.toml",
        });
        let cargo = format!("echo \"cargo: $*\" >&2\ncat <<'END'\n{message}\nEND");
        let mut command = self.xtask(arguments);
        command.env("CARGO", self.script("cargo", &cargo));
        command
    }
}

#[test]
fn printed_config_round_trips() {
    let folder = Folder::new();
    folder.file("a.toml", REVERSE);
    let print = |arguments: &str| {
        let output = folder.run(&format!("train {arguments} --print-config"));
        output.assert(0, "");
        output.stdout
    };
    let printed = print("a.toml --set model.layers=3 --backend ndarray");
    for line in [
        "name = \"a\"",
        "name = \"ndarray\"",
        "layers = 3",
        "encoder_layers = 3",
        "metric = \"exact\"",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{printed}");
    }
    folder.file("b.toml", &printed);
    assert_eq!(print("b.toml"), printed);
    // A number as a name stays a string, and the steps replace the file's epochs.
    folder.file("c.toml", &format!("{REVERSE}[training]\nepochs = 2\n"));
    let printed = print("c.toml --set training.batch_size=3 --steps 5 --name 2");
    for line in ["name = \"2\"", "steps = 5", "batch_size = 3"] {
        assert!(printed.lines().any(|printed| printed == line), "{printed}");
    }
    assert!(!printed.contains("\nepochs"), "{printed}");
}

/// zoo is built for the selected backend and receives all arguments.
#[cfg(unix)]
#[test]
fn zoo_is_built_and_started() {
    let folder = Folder::new();
    let ndarray = format!("{REVERSE}\n[backend]\nname = \"ndarray\"\n");
    folder.file("a.toml", &ndarray);
    let resume = "train --set backend.name=flex --resume a.toml --accept-changed-data --step 3";
    for (feature, arguments) in [
        ("ndarray", "train a.toml --plain --install"),
        ("flex", "train a.toml --backend cpu --overwrite"),
        ("ndarray", "train a.toml --dry-run --steps 3 --name b"),
        ("flex", resume),
        ("ndarray", "train a.toml --sweep model.layers=1,2 --resume"),
        // --backend overrides --set.
        (
            "ndarray",
            "train a.toml --backend ndarray --set backend.name=flex",
        ),
        ("flex", "zoo -- new gpt --help"),
        ("ndarray", "zoo --backend ndarray -- inspect a"),
    ] {
        let output = Output::from_command(&mut folder.xtask_that_builds("zoo", arguments));
        let starts = "cargo: build --release --features zoo-conf";
        assert!(output.stderr.starts_with(starts), "{}", output.stderr);
        let features = format!("zoo-bench/{feature},zoo-examples/{feature},zoo-train/{feature} ");
        for part in [&features, "--package zoo-bench", "--bin zoo "] {
            output.assert(7, part);
        }
        // In the working directory, not in the workspace.
        let here = folder.path().canonicalize().expect("a folder");
        let after_separator = arguments
            .split_once(" -- ")
            .map(|(_, passed)| passed.to_owned());
        let passed = after_separator.unwrap_or_else(|| arguments.replace(" --install", ""));
        let expected = format!("zoo: {passed}\nin {}\n", here.display());
        assert_eq!(output.stdout, expected);
        let copy = format!("target/zoo/{feature}/zoo");
        assert!(folder.path().join(copy).is_file());
    }
}

/// zoo replaces the xtask process, so it receives stdin and Ctrl-C.
#[cfg(unix)]
#[test]
fn zoo_receives_stdin() {
    use std::io::Write;
    use std::process::Stdio;

    let folder = Folder::new();
    let mut child = folder
        .xtask_that_builds("zoo", "zoo -- translate")
        .arg("a b")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all("好久不见\n".as_bytes()).expect("a reader");
    drop(stdin);
    let id = child.id();
    let output = child.wait_with_output().expect("output");
    let pid = std::fs::read_to_string(folder.file_path("pid")).expect("a pid");
    assert_eq!(pid.trim(), id.to_string());
    let output = String::from_utf8_lossy(&output.stdout);
    assert!(output.starts_with("zoo: translate a b\n"), "{output}");
    assert!(output.ends_with("好久不见\n"), "{output}");
}
