//! Command-line tests of `cargo xtask`. Nothing is built.

mod bench;
mod cli;
mod hub;
mod train;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A temporary working directory for commands.
struct Folder(TempDir);

struct Output {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Output {
    fn from_command(command: &mut Command) -> Self {
        let output = command.output().expect("a process");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// Checks the exit code and that stdout or stderr contains `part`.
    #[track_caller]
    fn assert(&self, code: i32, part: &str) {
        let Self { stdout, stderr, .. } = self;
        let is_printed = stdout.contains(part) || stderr.contains(part);
        assert!(
            self.code == Some(code) && is_printed,
            "expected {part:?} and exit code {code}, got {:?}\n{stdout}\n{stderr}",
            self.code
        );
    }
}

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file_path(&self, name: &str) -> String {
        let path = self.path().join(name);
        path.to_str().expect("a plain path").to_owned()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.file_path(name);
        std::fs::write(&path, text).expect("a temporary file");
        path
    }

    /// The names of the files and folders in it.
    fn entries(&self) -> BTreeSet<OsString> {
        let entries = std::fs::read_dir(self.path()).expect("a folder");
        entries.flatten().map(|entry| entry.file_name()).collect()
    }

    /// Writes an executable shell script.
    #[cfg(unix)]
    fn script(&self, name: &str, lines: &str) -> String {
        use std::os::unix::fs::PermissionsExt;
        let path = self.file(name, &format!("#!/bin/sh\n{lines}\n"));
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).expect("a temporary file");
        path
    }

    /// A command in this folder, without cargo and with an empty cache.
    fn xtask(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .args(arguments.split_whitespace())
            .current_dir(self.path())
            .env("CARGO", self.path().join("no-cargo"))
            .env("CARGO_TARGET_DIR", self.path().join("target"))
            .env("XDG_CACHE_HOME", self.path())
            .env("PYTHONPATH", hub::scripts().join("fake"))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        for variable in ["LIBTORCH", "CXX", "COLUMNS"] {
            command.env_remove(variable);
        }
        command
    }

    fn run(&self, arguments: &str) -> Output {
        Output::from_command(&mut self.xtask(arguments))
    }
}
