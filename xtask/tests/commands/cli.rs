//! Help, typos and missing requirements.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::train::REVERSE;
use crate::{Folder, Output};

/// Runs one line of cli.txt.
fn check(line: &str, folder: &Folder, empty: &str) {
    let line = line.replace("$EMPTY", empty);
    let line = line.replace("$CARGO", env!("CARGO"));
    let mut parts = line.split(" => ");
    let mut words = parts.next().unwrap_or_default().split_whitespace();
    let code = words.next().and_then(|code| code.parse().ok());
    let code = code.expect("an exit code");
    let is_variable = |word: &&str| word.starts_with(char::is_uppercase) && word.contains('=');
    let variables = words.clone().take_while(is_variable);
    let variables = variables.filter_map(|word| word.split_once('='));
    let arguments: Vec<&str> = words.skip_while(is_variable).collect();
    let arguments = arguments.join(" ");

    let (files, start) = (folder.entries(), Instant::now());
    let output = Output::from_command(folder.xtask(&arguments).envs(variables));
    // Invalid flags are rejected before anything is written, built or downloaded: the target folder
    // and the cache are in this folder. The limit is not about speed, so that it holds on a loaded
    // machine; a build or a download would take longer.
    if code == 2 {
        assert_eq!(folder.entries(), files, "{arguments}");
        assert!(start.elapsed() < Duration::from_secs(60), "{arguments}");
    }
    for part in parts {
        output.assert(code, part);
    }
    // Help is wrapped, except for the examples.
    let longest = output.stdout.lines().map(|line| line.chars().count()).max();
    let is_help = arguments.ends_with("--help");
    assert!(!is_help || longest <= Some(100), "{}", output.stdout);
}

#[test]
fn every_line_of_the_table() {
    let folder = Folder::new();
    folder.file("good.toml", REVERSE);
    folder.file("bad.toml", &REVERSE.replace("reverse", "revrse"));
    let files = "[data]\nkind = \"plain\"\ntrain = \"play.txt\"\n[model]\nkind = \"gpt\"\n";
    folder.file("files.toml", files);
    let empty = Folder::new();
    let is_case = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let lines: Vec<&str> = include_str!("cli.txt").lines().filter(is_case).collect();
    assert!(lines.len() > 60);
    for line in lines {
        check(line, &folder, &empty.file_path(""));
    }
    #[cfg(target_os = "linux")]
    for line in [
        "1 VK_DRIVER_FILES=/nowhere.json test --backend wgpu => apt-get install mesa-vulkan-drivers \
         => --install",
        "0 PATH=$EMPTY VK_DRIVER_FILES=/nowhere.json doctor => no Vulkan driver => apt-get install \
         mesa-vulkan-drivers",
    ] {
        check(line, &folder, &empty.file_path(""));
    }
    // Failed downloads write nothing.
    let files = std::fs::read_dir(folder.file_path("data"));
    assert_eq!(files.map_or(0, Iterator::count), 0);
}

#[cfg(unix)]
#[test]
fn an_interrupted_installation_is_not_used() {
    let folder = Folder::new();
    // A Python that is new enough, has no torch, and fails to install it.
    let script = "case \"$*\" in\n\
                  *'pip install'*) mkdir -p \"$PARTIAL/torch/lib\"; exit 1;;\n\
                  esac\n";
    folder.script("python3", script);
    let libtorch = folder.path().join("attention-zoo/libtorch");
    let partial = libtorch.join(".2.9.1.partial");
    for _ in 0..2 {
        let mut command = folder.xtask("test --backend tch-cpu");
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        command.env("PATH", path).env("PARTIAL", &partial);
        Output::from_command(&mut command).assert(1, "pip install torch==2.9.1 failed");
        assert!(partial.exists() && !libtorch.join("2.9.1").exists());
    }
}

#[test]
fn doctor_prints_json() {
    let output = Folder::new().run("doctor --json");
    let report: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
    let backends = report["backends"].as_array().expect("a list of backends");
    let names: Vec<_> = backends.iter().map(|backend| &backend["name"]).collect();
    let expected = "flex ndarray wgpu vulkan tch-cpu tch-cuda cuda";
    assert_eq!(names, expected.split(' ').collect::<Vec<_>>());
    for key in "compiles starts device dtypes memory_bytes remedy".split(' ') {
        assert!(backends[0].get(key).is_some(), "{key} in {}", output.stdout);
    }
}

#[test]
fn a_closed_pipe_is_ignored() {
    let folder = Folder::new();
    folder.file("good.toml", REVERSE);
    for arguments in ["bench --list", "doctor", "train good.toml --print-config"] {
        let mut command = folder.xtask(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("output");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {stderr}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn arguments_need_not_be_utf_8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let argument = OsStr::from_bytes(b"caf\xe9");
    let folder = Folder::new();
    let bench = "bench --quick --mechanism flash --program /bin/false --out";
    for (arguments, expected) in [
        ("train", "caf\u{fffd}"),
        ("train a.toml --set", "invalid UTF-8"),
        ("bench --backend", "invalid"),
        ("bench report", "caf\u{fffd}"),
        (bench, "results: "),
        ("", "unrecognized subcommand"),
    ] {
        let output = Output::from_command(folder.xtask(arguments).arg(argument));
        let Output { code, stderr, .. } = output;
        assert_ne!(code, Some(0), "{arguments}");
        assert!(!stderr.contains("panicked"), "{arguments}: {stderr}");
        assert!(stderr.contains(expected), "{arguments}: {stderr}");
    }
}
