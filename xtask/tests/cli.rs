//! What a person sees who mistypes, asks for help, or has nothing installed.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn xtask(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(arguments);
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An empty folder of its own, removed at the end.
struct Empty(PathBuf);

impl Empty {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("zoo-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        Self(folder)
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_misspelt_backend_gets_the_nearest_at_once() {
    for command in ["test", "bench", "check", "doctor"] {
        let start = Instant::now();
        let output = xtask(&[command, "--backend", "wpgu"])
            .output()
            .expect("it starts");
        assert!(start.elapsed() < Duration::from_secs(2));
        assert!(!output.status.success());
        assert!(stderr(&output).contains("did you mean wgpu?"), "{output:?}");
    }
}

#[test]
fn a_misspelt_dtype_gets_the_nearest() {
    let output = xtask(&["bench", "--dtype", "bf61"])
        .output()
        .expect("it starts");
    assert!(!output.status.success());
    assert!(stderr(&output).contains("did you mean bf16?"), "{output:?}");
}

#[test]
fn wgpu_and_vulkan_do_not_share_a_build() {
    let output = xtask(&["test", "--backend", "wgpu,vulkan"])
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("wgpu and vulkan cannot share a build"));
}

#[cfg(target_os = "linux")]
#[test]
fn wgpu_without_a_driver_names_the_package() {
    let output = xtask(&["test", "--backend", "wgpu"])
        .env("VK_DRIVER_FILES", "/nowhere.json")
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("apt-get install mesa-vulkan-drivers"),
        "{said}"
    );
    assert!(said.contains("--install"), "{said}");
}

#[test]
fn a_wrong_libtorch_is_named() {
    let output = xtask(&["test", "--backend", "tch-cpu"])
        .env("LIBTORCH", "/nowhere")
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("LIBTORCH is set to /nowhere, which holds no LibTorch"));
}

/// No Python on the path, no LibTorch, an empty cache: the three ways are named.
#[test]
fn without_libtorch_and_python_the_three_ways_are_named() {
    let empty = Empty::new("libtorch");
    let output = xtask(&["test", "--backend", "tch-cpu"])
        .env("PATH", &empty.0)
        // It asks any compiler for its version, so any program that has one will do.
        .env("CXX", env!("CARGO"))
        .env("XDG_CACHE_HOME", &empty.0)
        .env_remove("LIBTORCH")
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    for part in [
        "1. LIBTORCH=",
        "2. a Python",
        "3. Python 3.10",
        "no Python 3.10",
    ] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
}

#[test]
fn without_a_compiler_it_is_named_before_anything_is_downloaded() {
    let empty = Empty::new("compiler");
    let output = xtask(&["test", "--backend", "tch-cpu"])
        .env("PATH", &empty.0)
        .env("XDG_CACHE_HOME", &empty.0)
        .env_remove("LIBTORCH")
        .env_remove("CXX")
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("apt-get install g++"),
        "{output:?}"
    );
}

/// A pip that is killed half-way leaves nothing that is used later.
#[cfg(unix)]
#[test]
fn a_broken_install_is_not_used_later() {
    use std::os::unix::fs::PermissionsExt;

    let empty = Empty::new("broken");
    let python = empty.0.join("python3");
    // Says it is new enough, finds no torch, and dies while installing one.
    let script = "#!/bin/sh\n\
                  case \"$*\" in\n\
                  *'pip install'*) mkdir -p \"$PARTIAL/torch/lib\"; exit 1;;\n\
                  esac\n";
    std::fs::write(&python, script).expect("a temporary file");
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755))
        .expect("a file of our own");
    let libtorch = empty.0.join("attention-zoo/libtorch");
    let partial = libtorch.join(".2.9.1.partial");
    for _ in 0..2 {
        let output = xtask(&["test", "--backend", "tch-cpu"])
            .env("PATH", format!("{}:/usr/bin:/bin", empty.0.display()))
            .env("PARTIAL", &partial)
            .env("XDG_CACHE_HOME", &empty.0)
            .env_remove("LIBTORCH")
            .output()
            .expect("it starts");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains("pip install torch==2.9.1 failed"));
        assert!(partial.exists() && !libtorch.join("2.9.1").exists());
    }
}

/// A machine with nothing on it: the doctor says what is missing and is content.
#[test]
fn the_doctor_finds_what_is_missing() {
    let empty = Empty::new("doctor");
    let output = xtask(&["doctor"])
        .env("PATH", &empty.0)
        .env("XDG_CACHE_HOME", &empty.0)
        .env("CARGO_TARGET_DIR", &empty.0)
        .env("VK_DRIVER_FILES", "/nowhere.json")
        .env_remove("LIBTORCH")
        .env_remove("CXX")
        .env_remove("COLUMNS")
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "no Vulkan driver",
        "apt-get install mesa-vulkan-drivers",
        "installs torch==2.9.1",
        "cargo xtask doctor --build --backend WORD tries one of: flex,ndarray",
    ] {
        assert!(said.contains(part), "{part:?} is missing in\n{said}");
    }
}

#[test]
fn the_doctor_speaks_json() {
    let empty = Empty::new("json");
    let output = xtask(&["doctor", "--json"])
        .env("CARGO_TARGET_DIR", &empty.0)
        .output()
        .expect("it starts");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let words: Vec<_> = report["backends"]
        .as_array()
        .expect("a list of backends")
        .iter()
        .map(|backend| backend["word"].as_str().expect("a word"))
        .collect();
    assert_eq!(
        words,
        [
            "flex", "ndarray", "wgpu", "vulkan", "tch-cpu", "tch-cuda", "cuda"
        ]
    );
}

#[cfg(target_os = "linux")]
#[test]
fn arguments_need_not_be_utf_8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let wrong = OsStr::from_bytes(b"caf\xe9");
    let folder = Empty::new("not-utf-8");
    let out = folder.0.join(wrong);
    for (words, path, expected) in [
        (&["train"][..], wrong, "caf\u{fffd}"),
        (&["train", "a.toml", "--set"], wrong, "invalid UTF-8"),
        (&["bench", "--backend"], wrong, "invalid"),
        (
            // Measures nothing, and says so.
            &[
                "bench",
                "--quick",
                "--mechanism",
                "flash",
                "--program",
                "/bin/false",
                "--out",
            ],
            out.as_os_str(),
            "results: ",
        ),
        (&["bench", "report"], wrong, "caf\u{fffd}"),
        (&[], wrong, "unrecognized subcommand"),
    ] {
        let output = xtask(words).arg(path).output().expect("it starts");
        let said = stderr(&output);
        assert!(!output.status.success(), "{words:?}");
        assert!(!said.contains("panicked"), "{words:?}: {said}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}
