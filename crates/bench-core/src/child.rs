//! One case in a process of its own, watched: what it takes is its own, and
//! nothing it does ends the run.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::machine::{available_memory, kibibytes};
use crate::record::{Outcome, Report};
use crate::units;

/// How often a child is looked at. Memory fills at some GB/s: between two looks
/// it grows by less than what is left of the machine's.
const LOOK: Duration = Duration::from_millis(5);

/// The share of the memory available that a case may take: enough is left for
/// the machine to stay usable while it is stopped.
const SHARE_OF_MEMORY: f64 = 0.9;

/// What may be taken by a child.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Time, from its start.
    pub time: Duration,
    /// Resident memory in bytes; `None` is nine tenths of what is available.
    pub memory: Option<u64>,
}

/// Runs a measuring program to its end, or to that of its time or memory.
///
/// `None` when `stop` was set meanwhile.
pub fn watch(mut command: Command, limits: Limits, stop: &AtomicBool) -> Option<Report> {
    end_with_us(&mut command);
    let pipes = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = match pipes.stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            let program = command.get_program().display();
            let message = format!("{program} could not be started: {error}");
            return Some(Outcome::Failed { message }.into());
        }
    };
    // Pipes are emptied while it runs, or a talkative child would wait for us forever.
    let pipes = [drain(child.stdout.take()), drain(child.stderr.take())];
    let ended = follow(&mut child, limits, stop);
    if !matches!(ended, Some(Ok(_))) {
        // Either may fail only because it is gone already.
        let _ = child.kill();
        let _ = child.wait();
    }
    Some(match ended? {
        Ok(status) => {
            let [stdout, stderr] = pipes.map(|reader| reader.join().unwrap_or_default());
            understand(status, &stdout, &stderr)
        }
        Err(outcome) => outcome.into(),
    })
}

/// Sees to it that a child does not outlive us, however we end: nobody would stop one
/// that hangs.
#[cfg(target_os = "linux")]
fn end_with_us(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec only a system call is made, on no memory of ours.
    unsafe {
        command.pre_exec(
            || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            },
        );
    }
}

/// Elsewhere there is no such promise; Ctrl-C still ends both.
#[cfg(not(target_os = "linux"))]
fn end_with_us(_: &mut Command) {}

/// How a child ended, or what it is to be ended for; `None` if `stop` was set.
fn follow(
    child: &mut Child,
    limits: Limits,
    stop: &AtomicBool,
) -> Option<Result<ExitStatus, Outcome>> {
    // If memory ends before we notice, the system shall take this one.
    let id = child.id();
    let _ = std::fs::write(format!("/proc/{id}/oom_score_adj"), "1000");
    let memory = limits
        .memory
        .or_else(|| available_memory().map(|bytes| (bytes as f64 * SHARE_OF_MEMORY) as u64));
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(Ok(status)),
            Ok(None) => {}
            Err(error) => {
                let message = format!("it could not be watched: {error}");
                return Some(Err(Outcome::Failed { message }));
            }
        }
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        if begun.elapsed() > limits.time {
            let seconds = limits.time.as_secs_f64();
            return Some(Err(Outcome::TimedOut { seconds }));
        }
        let resident = kibibytes(&format!("/proc/{id}/status"), "VmRSS:");
        if let (Some(used), Some(limit)) = (resident, memory)
            && used > limit
        {
            let [used, limit] = [used, limit].map(|size| units::bytes(size as f64));
            let detail = format!("stopped at {used}: it may take {limit}");
            return Some(Err(Outcome::OutOfMemory { detail }));
        }
        thread::sleep(LOOK);
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

fn understand(status: ExitStatus, stdout: &str, stderr: &str) -> Report {
    let last_line = stdout.trim_end().lines().last().unwrap_or_default();
    if status.success()
        && let Ok(report) = serde_json::from_str(last_line)
    {
        return report;
    }
    // What allocators of Rust, LibTorch, CUDA and graphics drivers say.
    const NO_MEMORY: [&str; 5] = [
        "memory allocation of",
        "out of memory",
        "can't allocate memory",
        "not enough memory",
        "outofmemory",
    ];
    let words = last_words(stderr);
    let said = stderr.to_lowercase();
    let outcome = if killed(status) {
        let detail = "killed by the system, most likely for its memory".to_owned();
        Outcome::OutOfMemory { detail }
    } else if NO_MEMORY.iter().any(|phrase| said.contains(phrase)) {
        Outcome::OutOfMemory { detail: words }
    } else {
        let message = match (words.is_empty(), status.success()) {
            (false, _) => words,
            (true, true) => format!("it ended without a report; its last line was {last_line:?}"),
            (true, false) => format!("it ended with {status} and said nothing"),
        };
        Outcome::Failed { message }
    };
    outcome.into()
}

#[cfg(unix)]
fn killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(libc::SIGKILL)
}

#[cfg(not(unix))]
fn killed(_: ExitStatus) -> bool {
    false
}

/// The message of a panic or a Python traceback: the last line that says something.
fn last_words(stderr: &str) -> String {
    let says_something = |line: &&str| !line.is_empty() && !line.starts_with("note: ");
    let last = stderr.lines().map(str::trim).rfind(says_something);
    let words = last.unwrap_or_default();
    // A message, not a dump.
    words.chars().take(300).collect()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// A report on the last line is taken, no time left is an outcome, a failure gives its last
    /// words, and allocators and the system say that there is no memory.
    #[test]
    fn whatever_becomes_of_a_child_is_an_outcome() {
        let begun = Instant::now();
        let limits = |milliseconds| Limits {
            time: Duration::from_millis(milliseconds),
            memory: None,
        };
        let (short, long) = (limits(100), limits(20_000));
        let report = r#"echo talk; echo '{"device":"d","outcome":{"timed-out":{"seconds":2.0}}}'"#;
        let panics = "echo 'thread main panicked:' >&2; echo 'the sky fell' >&2; \
                      echo 'note: run with RUST_BACKTRACE=1' >&2; exit 101";
        let allocation = "echo 'memory allocation of 99 bytes failed' >&2; exit 134";
        let missing = "Failed { message: \"/nowhere/zoo-bench could not be started";
        for (program, script, limits, expected) in [
            ("sh", report, long, "TimedOut { seconds: 2.0 }"),
            ("sh", "exec sleep 30", short, "TimedOut { seconds: 0.1 }"),
            ("sh", panics, long, "Failed { message: \"the sky fell\" }"),
            ("sh", "exit 3", long, "said nothing"),
            ("sh", allocation, long, "OutOfMemory"),
            ("sh", "kill -KILL $$", long, "OutOfMemory"),
            ("/nowhere/zoo-bench", "", long, missing),
        ] {
            let mut command = Command::new(program);
            command.args(["-c", script]);
            let report = watch(command, limits, &AtomicBool::new(false)).expect("not stopped");
            let outcome = format!("{:?}", report.outcome);
            assert!(outcome.contains(expected), "{script}: {outcome}");
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
