//! What a person sees who mistypes, asks for help, or has nothing installed.

use std::time::{Duration, Instant};

use crate::{Folder, fails, stderr, stdout, xtask};

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

/// What a backend needs and this machine lacks is said before anything is built or downloaded.
/// The commands run with an empty cache and no `LIBTORCH` or `CXX` but those given.
#[test]
fn what_a_backend_lacks_is_named() {
    let empty = Folder::new("lacks");
    let nothing = empty.0.to_str().expect("a plain path");
    for (backend, variables, parts) in [
        (
            "wgpu,vulkan",
            &[][..],
            &["wgpu and vulkan cannot share a build"][..],
        ),
        #[cfg(target_os = "linux")]
        (
            "wgpu",
            &[("VK_DRIVER_FILES", "/nowhere.json")],
            &["apt-get install mesa-vulkan-drivers", "--install"],
        ),
        (
            "tch-cpu",
            &[("LIBTORCH", "/nowhere"), ("CXX", env!("CARGO"))],
            &["LIBTORCH is set to /nowhere, which holds no LibTorch"],
        ),
        // It asks any compiler for its version, so any program that has one will do.
        (
            "tch-cpu",
            &[("PATH", nothing), ("CXX", env!("CARGO"))],
            &[
                "1. LIBTORCH=",
                "2. a Python",
                "3. Python 3.10",
                "no Python 3.10",
            ],
        ),
        ("tch-cpu", &[("PATH", nothing)], &["apt-get install g++"]),
    ] {
        let mut command = xtask(&["test", "--backend", backend]);
        command.env_remove("LIBTORCH").env_remove("CXX");
        command.env("XDG_CACHE_HOME", nothing);
        let said = fails(command.envs(variables.iter().copied()));
        for part in parts {
            assert!(said.contains(part), "{part} is missing in {said}");
        }
    }
}

/// A pip that is killed half-way leaves nothing that is used later.
#[cfg(unix)]
#[test]
fn a_broken_install_is_not_used_later() {
    let empty = Folder::new("broken");
    // Says it is new enough, finds no torch, and dies while installing one.
    let script = "#!/bin/sh\n\
                  case \"$*\" in\n\
                  *'pip install'*) mkdir -p \"$PARTIAL/torch/lib\"; exit 1;;\n\
                  esac\n";
    empty.script("python3", script);
    let libtorch = empty.0.join("attention-zoo/libtorch");
    let partial = libtorch.join(".2.9.1.partial");
    for _ in 0..2 {
        let mut command = xtask(&["test", "--backend", "tch-cpu"]);
        command
            .env("PATH", format!("{}:/usr/bin:/bin", empty.0.display()))
            .env("PARTIAL", &partial)
            .env("XDG_CACHE_HOME", &empty.0)
            .env_remove("LIBTORCH");
        assert!(fails(&mut command).contains("pip install torch==2.9.1 failed"));
        assert!(partial.exists() && !libtorch.join("2.9.1").exists());
    }
}

/// A machine with nothing on it: the doctor says what is missing and is content.
#[test]
fn the_doctor_finds_what_is_missing() {
    let empty = Folder::new("doctor");
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
    let said = stdout(&output);
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
    let empty = Folder::new("json");
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
    let folder = Folder::new("not-utf-8");
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
