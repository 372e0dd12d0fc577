//! The processes that train the variants of a sweep.

use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::out::print_error_text;
use crate::{Result, TrainError};

/// Enough for the last error of a process.
const MAX_KEPT: usize = 1 << 16;

/// How a process ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Finished,
    /// A signal or the user stopped it, with this exit code.
    Stopped(u8),
    /// With the reason.
    Failed(String),
}

/// Runs processes of this program, at most one at a time.
#[derive(Debug, Clone)]
pub(super) struct Children {
    program: PathBuf,
    /// The process that runs; 0 if none does.
    running: Arc<AtomicU32>,
    /// The last signal; 0 if there was none.
    signal: Arc<AtomicU8>,
}

impl Children {
    pub(super) fn new() -> Result<Self> {
        let program = if cfg!(target_os = "linux") {
            // The running program, even if its file was replaced.
            "/proc/self/exe".into()
        } else {
            std::env::current_exe().map_err(TrainError::file("zoo"))?
        };
        Ok(Self::with_program(program))
    }

    fn with_program(program: PathBuf) -> Self {
        Self {
            program,
            running: Arc::default(),
            signal: Arc::default(),
        }
    }

    /// Passes a signal on, and starts no more processes. A terminal sends it to both processes; the
    /// child counts that as one.
    pub(super) fn signal(&self, signal: u8) {
        self.signal.store(signal, Ordering::SeqCst);
        self.send(signal);
    }

    fn send(&self, signal: u8) {
        let id = self.running.load(Ordering::SeqCst);
        #[cfg(unix)]
        if id != 0 {
            // SAFETY: the process is a child of this one and has not been waited for.
            unsafe {
                libc::kill(id as libc::pid_t, signal.into());
            }
        }
        // Elsewhere a console sends Ctrl-C to both.
        #[cfg(not(unix))]
        let _ = (id, signal);
    }

    /// Runs a process on this terminal until it ends.
    pub(super) fn run(&self, arguments: &[OsString]) -> Outcome {
        let pending = || match self.signal.load(Ordering::SeqCst) {
            0 => None,
            signal => Some(signal),
        };
        if let Some(signal) = pending() {
            return Outcome::Stopped(128 + signal);
        }
        let mut command = Command::new(&self.program);
        command.args(arguments).stderr(Stdio::piped());
        set_name(&mut command);
        stop_with_parent(&mut command);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Outcome::Failed(format!("cannot start a process: {error}")),
        };
        self.running.store(child.id(), Ordering::SeqCst);
        // A signal that came when there was no process.
        if let Some(signal) = pending() {
            self.send(signal);
        }
        let mut errors = vec![];
        if let Some(mut stderr) = child.stderr.take() {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut bytes) {
                print_error_text(&bytes[..count]);
                errors.extend_from_slice(&bytes[..count]);
                errors.drain(..errors.len().saturating_sub(MAX_KEPT));
            }
        }
        // Its output may end before it does; only after `wait` may another process get its id.
        let status = child.wait();
        self.running.store(0, Ordering::SeqCst);
        match status {
            Ok(status) => outcome(status, &String::from_utf8_lossy(&errors)),
            Err(error) => Outcome::Failed(format!("cannot wait for the process: {error}")),
        }
    }
}

/// The name of this program, which is not that of its file in `/proc`.
fn set_name(command: &mut Command) {
    #[cfg(unix)]
    if let Some(name) = std::env::args_os().next() {
        use std::os::unix::process::CommandExt;
        command.arg0(name);
    }
    #[cfg(not(unix))]
    let _ = command;
}

/// Sends `SIGTERM` to the process when this one ends, even by `kill -9`, so that it saves a checkpoint
/// and leaves its run to the next sweep.
fn stop_with_parent(command: &mut Command) {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::process::CommandExt;
        // SAFETY: `prctl` is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = command;
}

fn outcome(status: ExitStatus, errors: &str) -> Outcome {
    if status.success() {
        return Outcome::Finished;
    }
    // Of the error only the first line: the rest was printed.
    let error = errors.lines().rev().find_map(|line| {
        let panic = line.contains("panicked at").then_some(line);
        line.strip_prefix("error: ").or(panic)
    });
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        match status.signal() {
            Some(signal @ (libc::SIGINT | libc::SIGTERM | libc::SIGHUP)) => {
                return Outcome::Stopped(128 + signal as u8);
            }
            Some(libc::SIGKILL) => {
                let reason = "killed, probably because it ran out of memory";
                return Outcome::Failed(reason.to_owned());
            }
            Some(_) | None => {}
        }
    }
    match status.code() {
        // As `StopSignal::exit_code`.
        Some(code @ (129 | 130 | 143)) => Outcome::Stopped(code as u8),
        _ => Outcome::Failed(error.map_or_else(|| status.to_string(), ToOwned::to_owned)),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn outcomes_of_processes() {
        let children = Children::with_program("sh".into());
        let run = |script: &str| {
            let arguments = ["-c", script].map(OsString::from);
            children.run(&arguments)
        };
        let failed = |reason: &str| Outcome::Failed(reason.to_owned());
        assert_eq!(run("exit 0"), Outcome::Finished);
        assert_eq!(run("exit 130"), Outcome::Stopped(130));
        assert_eq!(run("kill -TERM $$"), Outcome::Stopped(143));
        let script = "echo 'note: x' >&2; echo 'error: no data' >&2; echo '  help: y' >&2; exit 1";
        assert_eq!(run(script), failed("no data"));
        assert_eq!(run("exit 3"), failed("exit status: 3"));
        let reason = "killed, probably because it ran out of memory";
        assert_eq!(run("kill -KILL $$"), failed(reason));
        match Children::with_program("/nowhere/zoo".into()).run(&[]) {
            Outcome::Failed(reason) => assert!(reason.starts_with("cannot start a process: ")),
            outcome => panic!("{outcome:?}"),
        }
    }

    #[test]
    fn a_signal_between_two_processes_is_not_lost() {
        let temp = crate::temp_dir::TempDir::new();
        let file = temp.join("started");
        let children = Children::with_program("sh".into());
        let script = format!("touch '{}'; exec sleep 60", file.display());
        let arguments = ["-c", &script].map(OsString::from);
        children.signal(libc::SIGTERM as u8);
        assert_eq!(children.run(&arguments), Outcome::Stopped(143));
        assert!(!file.exists());
        // While the process is started.
        let children = Children::with_program("sh".into());
        let thread = {
            let children = children.clone();
            std::thread::spawn(move || children.run(&arguments))
        };
        children.signal(libc::SIGTERM as u8);
        assert_eq!(thread.join().unwrap(), Outcome::Stopped(143));
    }
}
