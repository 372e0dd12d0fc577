//! What a person sees who trains, or calls `zoo`: mistakes before anything is built, and the
//! program's own words and exit code afterwards. A script stands in for cargo.

use std::process::Command;

use crate::{Folder, fails, stderr, stdout, xtask};

impl Folder {
    /// What is run when nothing may be built: a cargo that is not there.
    fn xtask(&self, arguments: &[&str]) -> Command {
        let mut command = xtask(arguments);
        command
            .current_dir(&self.0)
            .env("CARGO", self.0.join("no-cargo"))
            .env("CARGO_TARGET_DIR", self.0.join("target"));
        command
    }

    /// One that "builds" a program which tells what it was given and ends with 7.
    #[cfg(unix)]
    fn xtask_that_builds(&self, program: &str, arguments: &[&str]) -> Command {
        let text = "#!/bin/sh\necho \"$(basename $0): $*\"\necho \"in $PWD\"\necho $$ > pid\ncat\nexit 7\n";
        let executable = self.script(program, text);
        let message = format!(
            "{{\"reason\": \"compiler-artifact\", \"target\": {{\"name\": \"{program}\", \
             \"kind\": [\"bin\"]}}, \"profile\": {{\"test\": false}}, \
             \"executable\": \"{executable}\", \"manifest_path\": \"/a/Cargo.toml\"}}"
        );
        let cargo = format!("#!/bin/sh\necho \"cargo: $*\" >&2\ncat <<'END'\n{message}\nEND\n");
        let mut command = self.xtask(arguments);
        command.env("CARGO", self.script("cargo", &cargo));
        command
    }
}

const REVERSE: &str = "[data]\nkind = \"reverse\"\n\n[model]\nkind = \"transformer\"\n";

#[test]
fn a_bad_config_is_told_before_anything_is_built() {
    let folder = Folder::new("bad");
    folder.file("bad.toml", &REVERSE.replace("reverse", "revrse"));
    folder.file("good.toml", REVERSE);
    let files = "[data]\nkind = \"plain\"\ntrain = \"play.txt\"\n[model]\nkind = \"gpt\"\n";
    folder.file("files.toml", files);
    for (arguments, said) in [
        (&["none.toml"][..], "none.toml: the config cannot be read"),
        (
            &["bad.toml"],
            "bad.toml:2:8: data.kind: unknown word \"revrse\"",
        ),
        (
            &["good.toml", "--set", "model.layer=2"],
            "did you mean layers?",
        ),
        (
            &["good.toml", "--set", "model.layers"],
            "there is no = between",
        ),
        (
            &["good.toml", "--set", "model.layers=0"],
            "--set model.layers=0: model.layers must be",
        ),
        (&["files.toml"], "data.train: there is no play.txt"),
        (&["files.toml"], "--set data.train=PATH"),
    ] {
        let error = fails(&mut folder.xtask(&[&["train"], arguments].concat()));
        assert!(error.contains(said), "{said} in {error}");
    }
    // A right one goes on to the build, which this test has not got.
    let said = fails(&mut folder.xtask(&["train", "good.toml"]));
    assert!(said.contains("cargo could not be started"), "{said}");
}

#[test]
fn an_unknown_backend_gets_the_nearest() {
    let folder = Folder::new("backend");
    folder.file("a.toml", REVERSE);
    for arguments in [
        &["train", "a.toml", "--backend", "wpgu"][..],
        &["train", "a.toml", "--set", "backend.word=wpgu"],
        &["zoo", "--backend", "wpgu", "--", "new", "gpt"],
    ] {
        let output = folder.xtask(arguments).output().expect("it starts");
        assert!(!output.status.success());
        assert!(stderr(&output).contains("did you mean wgpu?"), "{output:?}");
    }
}

#[test]
fn the_whole_config_is_printed_and_reads_back() {
    let folder = Folder::new("print");
    folder.file("a.toml", REVERSE);
    let arguments = [
        "train",
        "a.toml",
        "--set",
        "model.layers=3",
        "--backend",
        "ndarray",
    ];
    let print = |arguments: &[&str]| {
        let mut command = folder.xtask(arguments);
        let output = command.arg("--print-config").output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        stdout(&output)
    };
    let printed = print(&arguments);
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
    assert_eq!(print(&["train", "b.toml"]), printed);
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let folder = Folder::new("flags");
    folder.file("a.toml", REVERSE);
    for pair in [["--resume", "--overwrite"], ["--print-config", "--resume"]] {
        let output = folder
            .xtask(&["train", "a.toml", pair[0], pair[1]])
            .output();
        let output = output.expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(
            stderr(&output).contains("cannot be used with"),
            "{output:?}"
        );
    }
}

#[cfg(unix)]
#[test]
fn zoo_is_built_for_the_backend_and_speaks_for_itself() {
    let folder = Folder::new("built");
    folder.file(
        "a.toml",
        &format!("{REVERSE}\n[backend]\nword = \"ndarray\"\n"),
    );
    for (arguments, feature, told) in [
        (
            &["train", "a.toml", "--plain"][..],
            "ndarray",
            "train a.toml --plain",
        ),
        (
            &["train", "a.toml", "--backend", "cpu", "--overwrite"],
            "flex",
            "train a.toml --backend flex --overwrite",
        ),
        (
            &["zoo", "--", "new", "gpt", "--help"],
            "flex",
            "new gpt --help",
        ),
        (
            &["zoo", "--backend", "ndarray", "--", "inspect", "a b"],
            "ndarray",
            "inspect a b",
        ),
    ] {
        let output = folder.xtask_that_builds("zoo", arguments).output();
        let output = output.expect("it starts");
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let built = stderr(&output);
        let features = format!("zoo-bench/{feature},zoo-examples/{feature},zoo-train/{feature} ");
        assert!(
            built.starts_with("cargo: build --release --features zoo-conf"),
            "{built}"
        );
        assert!(built.contains(&features), "{built}");
        assert!(
            built.contains("--package zoo-bench") && built.contains("--bin zoo "),
            "{built}"
        );
        // Where the person is, not where the workspace is.
        let here = folder.0.canonicalize().expect("it is there");
        let said = format!("zoo: {told}\nin {}\n", here.display());
        assert_eq!(stdout(&output), said);
        let kept = format!("target/zoo/{feature}/zoo");
        assert!(folder.0.join(kept).is_file());
    }
}

/// The program owns the terminal: what is typed reaches it, and it is the very process that
/// was started, so a Ctrl-C is its own.
#[cfg(unix)]
#[test]
fn zoo_reads_what_is_typed() {
    use std::io::Write;
    use std::process::Stdio;

    let folder = Folder::new("typed");
    let mut child = folder
        .xtask_that_builds("zoo", &["zoo", "--", "translate", "runs/a"])
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
    let pid = std::fs::read_to_string(folder.0.join("pid")).expect("it wrote it");
    assert_eq!(pid.trim(), started.to_string());
    let said = stdout(&output);
    assert!(said.starts_with("zoo: translate runs/a\n"), "{said}");
    assert!(said.ends_with("好久不见\n"), "{said}");
}

#[test]
fn help_says_what_can_be_done() {
    let folder = Folder::new("help");
    for (arguments, parts) in [
        (
            &["--help"][..],
            &["train", "zoo", "hub", "Train from a TOML file"][..],
        ),
        (
            &["train", "--help"],
            &[
                "<CONFIG>",
                "--set <KEY=VALUE>",
                "--print-config",
                "--resume",
                "--plain",
            ],
        ),
        (
            &["zoo", "--help"],
            &["[-- <ARGUMENTS>...]", "[default: flex]"],
        ),
    ] {
        let output = folder.xtask(arguments).output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        let said = stdout(&output);
        for part in parts {
            assert!(said.contains(part), "{part} in {said}");
        }
        // Lines are not broken for the terminal, so they must be short.
        let longest = said.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(110), "{said}");
    }
}
