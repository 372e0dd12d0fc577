//! Child processes with time and memory limits. Each case runs in its own process, so its memory
//! use is isolated and a crash does not end the run.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::machine::{available_memory, read_kib_field};
use crate::record::{Outcome, Report};
use crate::units;

/// At a few GB/s, an allocating child does not fill the remaining memory between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Default memory limit, of the available memory: the machine stays usable while a child is killed.
const MEMORY_FRACTION: f64 = 0.9;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    pub time: Duration,
    /// Resident memory in bytes; `None` is 90% of the available memory.
    pub memory: Option<u64>,
}

/// Runs a benchmark program until it exits or exceeds a limit; `None` if `stop` was set.
pub fn run_with_limits(mut command: Command, limits: Limits, stop: &AtomicBool) -> Option<Report> {
    kill_with_parent(&mut command);
    let pipes = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = match pipes.stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            let program = command.get_program().display();
            let message = format!("cannot start {program}: {error}");
            return Some(Outcome::Failed { message }.into());
        }
    };
    // Drain the pipes while it runs: a child blocks on a full pipe.
    let pipes = [drain(child.stdout.take()), drain(child.stderr.take())];
    let exit = wait(&mut child, limits, stop);
    if !matches!(exit, Some(Ok(_))) {
        // Both fail only if it has already exited.
        let _ = child.kill();
        let _ = child.wait();
    }
    Some(match exit? {
        Ok(status) => {
            let [stdout, stderr] = pipes.map(|reader| reader.join().unwrap_or_default());
            parse_report(status, &stdout, &stderr)
        }
        Err(outcome) => outcome.into(),
    })
}

/// Makes the kernel kill the child when this process dies, so that a hanging child is not orphaned.
#[cfg(target_os = "linux")]
fn kill_with_parent(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec it only makes a system call and accesses no shared memory.
    unsafe {
        command.pre_exec(
            || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            },
        );
    }
}

/// Not available on this system; Ctrl-C still ends both processes.
#[cfg(not(target_os = "linux"))]
fn kill_with_parent(_: &mut Command) {}

/// Waits for the exit status, or returns the limit that was exceeded; `None` if `stop` was set.
fn wait(
    child: &mut Child,
    limits: Limits,
    stop: &AtomicBool,
) -> Option<Result<ExitStatus, Outcome>> {
    // If memory runs out between two polls, the OOM killer should choose this process.
    let id = child.id();
    let _ = std::fs::write(format!("/proc/{id}/oom_score_adj"), "1000");
    let memory = limits
        .memory
        .or_else(|| available_memory().map(|bytes| (bytes as f64 * MEMORY_FRACTION) as u64));
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(Ok(status)),
            Ok(None) => {}
            Err(error) => {
                let message = format!("cannot wait for the process: {error}");
                return Some(Err(Outcome::Failed { message }));
            }
        }
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        if start.elapsed() > limits.time {
            let seconds = limits.time.as_secs_f64();
            return Some(Err(Outcome::TimedOut { seconds }));
        }
        let resident = read_kib_field(&format!("/proc/{id}/status"), "VmRSS:");
        if let (Some(used), Some(limit)) = (resident, memory)
            && used > limit
        {
            let [used, limit] = [used, limit].map(|size| units::bytes(size as f64));
            let detail = format!("killed at {used} (limit: {limit})");
            return Some(Err(Outcome::OutOfMemory { detail }));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn parse_report(status: ExitStatus, stdout: &str, stderr: &str) -> Report {
    let last_line = stdout.trim_end().lines().last().unwrap_or_default();
    if status.success()
        && let Ok(report) = serde_json::from_str(last_line)
    {
        return report;
    }
    // Messages of the allocators of Rust, LibTorch, CUDA and graphics drivers.
    const OUT_OF_MEMORY: [&str; 5] = [
        "memory allocation of",
        "out of memory",
        "can't allocate memory",
        "not enough memory",
        "outofmemory",
    ];
    let lowercase = stderr.to_lowercase();
    let is_out_of_memory = OUT_OF_MEMORY.iter().any(|text| lowercase.contains(text));
    let message = match (error_message(stderr), status.success()) {
        _ if is_killed(status) => "killed by the system, probably out of memory".to_owned(),
        (message, _) if !message.is_empty() => message,
        (_, true) => format!("no report; the last line of stdout was {last_line:?}"),
        (_, false) => format!("{status} without an error message"),
    };
    let outcome = if is_killed(status) || is_out_of_memory {
        Outcome::OutOfMemory { detail: message }
    } else {
        Outcome::Failed { message }
    };
    outcome.into()
}

#[cfg(unix)]
fn is_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(libc::SIGKILL)
}

#[cfg(not(unix))]
fn is_killed(_: ExitStatus) -> bool {
    false
}

/// The message of a panic or a Python traceback: the last non-empty line, at most 300 characters.
fn error_message(stderr: &str) -> String {
    let is_message = |line: &&str| !line.is_empty() && !line.starts_with("note: ");
    let last = stderr.lines().map(str::trim).rfind(is_message);
    last.unwrap_or_default().chars().take(300).collect()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn every_exit_is_mapped_to_an_outcome() {
        let start = Instant::now();
        let limits = |milliseconds| Limits {
            time: Duration::from_millis(milliseconds),
            memory: None,
        };
        let (short, long) = (limits(100), limits(20_000));
        let report = r#"echo log; echo '{"device":"d","outcome":{"timed-out":{"seconds":2.0}}}'"#;
        let panics = "echo 'thread main panicked:' >&2; echo 'index out of range' >&2; \
                      echo 'note: run with RUST_BACKTRACE=1' >&2; exit 101";
        let allocation = "echo 'memory allocation of 99 bytes failed' >&2; exit 134";
        let missing = "Failed { message: \"cannot start /nowhere/zoo-bench";
        let index = "Failed { message: \"index out of range\" }";
        for (program, script, limits, expected) in [
            ("sh", report, long, "TimedOut { seconds: 2.0 }"),
            ("sh", "exec sleep 30", short, "TimedOut { seconds: 0.1 }"),
            ("sh", panics, long, index),
            ("sh", "exit 3", long, "without an error message"),
            ("sh", allocation, long, "OutOfMemory"),
            ("sh", "kill -KILL $$", long, "OutOfMemory"),
            ("/nowhere/zoo-bench", "", long, missing),
        ] {
            let mut command = Command::new(program);
            command.args(["-c", script]);
            let report =
                run_with_limits(command, limits, &AtomicBool::new(false)).expect("not stopped");
            let outcome = format!("{:?}", report.outcome);
            assert!(outcome.contains(expected), "{script}: {outcome}");
        }
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
