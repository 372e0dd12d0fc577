//! What a person sees who mistypes, asks for help, or has nothing installed.

use std::time::{Duration, Instant};

use crate::train::REVERSE;
use crate::{Folder, Said};

/// One line of the table.
fn check(line: &str, folder: &Folder, empty: &str) {
    let mut parts = line.split(" => ");
    let command = parts.next().unwrap_or_default();
    let command = command.replace("$EMPTY", empty);
    let command = command.replace("$CARGO", env!("CARGO"));
    let (code, command) = command.split_once(' ').expect("an exit code");
    let code = code.parse().expect("a number");
    let words = command.split_whitespace();
    let is_variable = |word: &&str| word.starts_with(char::is_uppercase) && word.contains('=');
    let variables = words.clone().take_while(is_variable);
    let arguments: Vec<&str> = words.skip_while(is_variable).collect();
    let arguments = arguments.join(" ");

    let begun = Instant::now();
    let mut command = folder.xtask(&arguments);
    let said = Said::of(command.envs(variables.filter_map(|word| word.split_once('='))));
    // A wrong flag is refused at once.
    assert!(code != 2 || begun.elapsed() < Duration::from_secs(2));
    for part in parts {
        said.is(code, part);
    }
    // Lines of help are not broken for the terminal, so they must be short.
    let longest = said.stdout.lines().map(|line| line.chars().count()).max();
    let is_help = arguments.ends_with("--help");
    assert!(!is_help || longest <= Some(110), "{}", said.stdout);
}

#[test]
fn every_command_says_what_the_table_has() {
    let folder = Folder::new();
    folder.file("good.toml", REVERSE);
    folder.file("bad.toml", &REVERSE.replace("reverse", "revrse"));
    let files = "[data]\nkind = \"plain\"\ntrain = \"play.txt\"\n[model]\nkind = \"gpt\"\n";
    folder.file("files.toml", files);
    let empty = Folder::new();
    let is_case = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let lines: Vec<&str> = include_str!("said.txt").lines().filter(is_case).collect();
    assert!(lines.len() > 60);
    for line in lines {
        check(line, &folder, &empty.at(""));
    }
    #[cfg(target_os = "linux")]
    for line in [
        "1 VK_DRIVER_FILES=/nowhere.json test --backend wgpu => apt-get install mesa-vulkan-drivers \
         => --install",
        "0 PATH=$EMPTY VK_DRIVER_FILES=/nowhere.json doctor => no Vulkan driver => apt-get install \
         mesa-vulkan-drivers",
    ] {
        check(line, &folder, &empty.at(""));
    }
    // Nothing was written where the hub's data would have been.
    let left = std::fs::read_dir(folder.at("data")).into_iter().flatten();
    assert_eq!(left.count(), 0);
}

/// A pip that is killed half-way leaves nothing that is used later.
#[cfg(unix)]
#[test]
fn a_broken_install_is_not_used_later() {
    let folder = Folder::new();
    // Says it is new enough, finds no torch, and dies while installing one.
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
        Said::of(&mut command).is(1, "pip install torch==2.9.1 failed");
        assert!(partial.exists() && !libtorch.join("2.9.1").exists());
    }
}

#[test]
fn the_doctor_speaks_json() {
    let said = Folder::new().says("doctor --json");
    let report: serde_json::Value = serde_json::from_str(&said.stdout).expect("JSON");
    let backends = report["backends"].as_array().expect("a list of backends");
    let words: Vec<_> = backends.iter().map(|backend| &backend["word"]).collect();
    let expected = "flex ndarray wgpu vulkan tch-cpu tch-cuda cuda";
    assert_eq!(words, expected.split(' ').collect::<Vec<_>>());
    for key in "compiles starts device dtypes memory_bytes remedy".split(' ') {
        assert!(backends[0].get(key).is_some(), "{key} in {}", said.stdout);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn arguments_need_not_be_utf_8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let wrong = OsStr::from_bytes(b"caf\xe9");
    let folder = Folder::new();
    for (words, expected) in [
        ("train", "caf\u{fffd}"),
        ("train a.toml --set", "invalid UTF-8"),
        ("bench --backend", "invalid"),
        ("bench report", "caf\u{fffd}"),
        // Measures nothing, and says so.
        (
            "bench --quick --mechanism flash --program /bin/false --out",
            "results: ",
        ),
        ("", "unrecognized subcommand"),
    ] {
        let Said { code, stderr, .. } = Said::of(folder.xtask(words).arg(wrong));
        assert_ne!(code, Some(0), "{words}");
        assert!(!stderr.contains("panicked"), "{words}: {stderr}");
        assert!(stderr.contains(expected), "{words}: {stderr}");
    }
}
