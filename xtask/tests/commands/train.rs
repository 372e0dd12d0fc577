//! What a person sees who trains, or calls `zoo`: the config, and the program's own words and
//! exit code. A script stands in for cargo.

use std::process::Command;

use crate::{Folder, Said};

pub(crate) const REVERSE: &str = "[data]\nkind = \"reverse\"\n\n[model]\nkind = \"transformer\"\n";

impl Folder {
    /// One that "builds" a program which tells what it was given and ends with 7.
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
fn the_whole_config_is_printed_and_reads_back() {
    let folder = Folder::new();
    folder.file("a.toml", REVERSE);
    let print = |arguments: &str| {
        let said = folder.says(&format!("train {arguments} --print-config"));
        said.is(0, "");
        said.stdout
    };
    let printed = print("a.toml --set model.layers=3 --backend ndarray");
    for line in [
        "name = \"a\"",
        "word = \"ndarray\"",
        "layers = 3",
        "encoder_layers = 3",
        "metric = \"exact\"",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{printed}");
    }
    folder.file("b.toml", &printed);
    assert_eq!(print("b.toml"), printed);
}

/// A run is built for the backend that counts, and the program is told what we were told.
#[cfg(unix)]
#[test]
fn zoo_is_built_for_the_backend_and_speaks_for_itself() {
    let folder = Folder::new();
    let ndarray = format!("{REVERSE}\n[backend]\nword = \"ndarray\"\n");
    folder.file("a.toml", &ndarray);
    for (arguments, feature, told) in [
        (
            "train a.toml --plain --install",
            "ndarray",
            "train a.toml --plain",
        ),
        (
            "train a.toml --backend cpu --overwrite",
            "flex",
            "train a.toml --backend cpu --overwrite",
        ),
        (
            "train --set backend.word=flex --resume a.toml --accept-changed-data --step 3",
            "flex",
            "train --set backend.word=flex --resume a.toml --accept-changed-data --step 3",
        ),
        // The flag of its own counts more.
        (
            "train a.toml --backend ndarray --set backend.word=flex",
            "ndarray",
            "train a.toml --backend ndarray --set backend.word=flex",
        ),
        ("zoo -- new gpt --help", "flex", "new gpt --help"),
        ("zoo --backend ndarray -- inspect a", "ndarray", "inspect a"),
    ] {
        let said = Said::of(&mut folder.xtask_that_builds("zoo", arguments));
        let starts = "cargo: build --release --features zoo-conf";
        assert!(said.stderr.starts_with(starts), "{}", said.stderr);
        let features = format!("zoo-bench/{feature},zoo-examples/{feature},zoo-train/{feature} ");
        for part in [&features, "--package zoo-bench", "--bin zoo "] {
            said.is(7, part);
        }
        // Where the person is, not where the workspace is.
        let here = folder.path().canonicalize().expect("it is there");
        let expected = format!("zoo: {told}\nin {}\n", here.display());
        assert_eq!(said.stdout, expected);
        let kept = format!("target/zoo/{feature}/zoo");
        assert!(folder.path().join(kept).is_file());
    }
}

/// The program owns the terminal: what is typed reaches it, and it is the very process that
/// was started, so a Ctrl-C is its own.
#[cfg(unix)]
#[test]
fn zoo_reads_what_is_typed() {
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
        .expect("it starts");
    let mut typed = child.stdin.take().expect("a pipe");
    typed
        .write_all("好久不见\n".as_bytes())
        .expect("it is read");
    drop(typed);
    let started = child.id();
    let output = child.wait_with_output().expect("it ends");
    let pid = std::fs::read_to_string(folder.at("pid")).expect("it wrote it");
    assert_eq!(pid.trim(), started.to_string());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("zoo: translate a b\n"), "{said}");
    assert!(said.ends_with("好久不见\n"), "{said}");
}
