//! What a person sees who calls `cargo xtask`. Nothing is built here.

mod bench;
mod cli;
mod hub;
mod links;
mod train;

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A folder of its own, in which commands are run; removed at the end.
struct Folder(TempDir);

/// What a command printed, and its exit code.
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Said {
    fn of(command: &mut Command) -> Self {
        let output = command.output().expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// It ended with this exit code, and printed this.
    #[track_caller]
    fn is(&self, code: i32, part: &str) {
        let Self { stdout, stderr, .. } = self;
        let is_said = stdout.contains(part) || stderr.contains(part);
        let told = format!("{part:?} with {code}: {:?}\n{stdout}\n{stderr}", self.code);
        assert!(self.code == Some(code) && is_said, "{told}");
    }
}

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Where a file of this folder is.
    fn at(&self, name: &str) -> String {
        let path = self.path().join(name);
        path.to_str().expect("a plain path").to_owned()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.at(name);
        std::fs::write(&path, text).expect("a temporary file");
        path
    }

    /// A program.
    #[cfg(unix)]
    fn script(&self, name: &str, lines: &str) -> String {
        use std::os::unix::fs::PermissionsExt;
        let path = self.file(name, &format!("#!/bin/sh\n{lines}\n"));
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).expect("a file of our own");
        path
    }

    /// A command in this folder, on a machine that has no cargo and an empty cache.
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

    /// What a command says in this folder.
    fn says(&self, arguments: &str) -> Said {
        Said::of(&mut self.xtask(arguments))
    }
}
