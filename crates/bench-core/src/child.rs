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
    let outcome = match start(&mut command) {
        Ok(child) => match follow(child, limits, stop)? {
            Ok(report) => return Some(report),
            Err(outcome) => outcome,
        },
        Err(error) => Outcome::Failed {
            message: format!("{} could not be started: {error}", program(&command)),
        },
    };
    Some(outcome.into())
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn start(command: &mut Command) -> std::io::Result<Child> {
    end_with_us(command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
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

/// A child's report, or what became of it instead; `None` if `stop` was set.
fn follow(mut child: Child, limits: Limits, stop: &AtomicBool) -> Option<Result<Report, Outcome>> {
    // If memory ends before we notice, the system shall take this one.
    let id = child.id();
    let _ = std::fs::write(format!("/proc/{id}/oom_score_adj"), "1000");
    let memory = limits
        .memory
        .or_else(|| available_memory().map(|bytes| (bytes as f64 * SHARE_OF_MEMORY) as u64));

    // Pipes are emptied while it runs, or a talkative child would wait for us forever.
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) => {}
            Err(error) => {
                break Err(Outcome::Failed {
                    message: format!("it could not be watched: {error}"),
                });
            }
        }
        if stop.load(Ordering::Relaxed) {
            end(&mut child);
            return None;
        }
        if begun.elapsed() > limits.time {
            break Err(Outcome::TimedOut {
                seconds: limits.time.as_secs_f64(),
            });
        }
        let resident = kibibytes(&format!("/proc/{id}/status"), "VmRSS:");
        if let (Some(used), Some(limit)) = (resident, memory)
            && used > limit
        {
            break Err(Outcome::OutOfMemory {
                detail: format!(
                    "stopped at {}: it may take {}",
                    units::bytes(used as f64),
                    units::bytes(limit as f64)
                ),
            });
        }
        thread::sleep(LOOK);
    };
    let status = match status {
        Ok(status) => status,
        Err(outcome) => {
            end(&mut child);
            return Some(Err(outcome));
        }
    };
    let read = |reader: thread::JoinHandle<String>| reader.join().unwrap_or_default();
    Some(understand(status, &read(stdout), &read(stderr)))
}

fn end(child: &mut Child) {
    // Either may fail only because it is gone already.
    let _ = child.kill();
    let _ = child.wait();
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

fn understand(status: ExitStatus, stdout: &str, stderr: &str) -> Result<Report, Outcome> {
    let last_line = stdout.trim_end().lines().last().unwrap_or_default();
    if status.success()
        && let Ok(report) = serde_json::from_str(last_line)
    {
        return Ok(report);
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
    if killed(status) {
        return Err(Outcome::OutOfMemory {
            detail: "killed by the system, most likely for its memory".to_owned(),
        });
    }
    if NO_MEMORY.iter().any(|phrase| said.contains(phrase)) {
        return Err(Outcome::OutOfMemory { detail: words });
    }
    let message = match (words.is_empty(), status.success()) {
        (false, _) => words,
        (true, true) => format!("it ended without a report; its last line was {last_line:?}"),
        (true, false) => format!("it ended with {status} and said nothing"),
    };
    Err(Outcome::Failed { message })
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

    fn run(script: &str, limits: Limits) -> Outcome {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        watch(command, limits, &AtomicBool::new(false))
            .expect("nobody stops it")
            .outcome
    }

    const LIMITS: Limits = Limits {
        time: Duration::from_secs(20),
        memory: None,
    };

    /// A report on the last line is taken, no time left is an outcome, a failure gives its last
    /// words, and allocators and the system say that there is no memory.
    #[test]
    fn whatever_becomes_of_a_child_is_an_outcome() {
        let begun = Instant::now();
        let short = Limits {
            time: Duration::from_millis(100),
            ..LIMITS
        };
        let report = r#"echo talk; echo '{"device":"d","outcome":{"timed-out":{"seconds":2.0}}}'"#;
        let panics = "echo 'thread main panicked:' >&2; echo 'the sky fell' >&2; \
                      echo 'note: run with RUST_BACKTRACE=1' >&2; exit 101";
        let allocation = "echo 'memory allocation of 99 bytes failed' >&2; exit 134";
        for (script, limits, expected) in [
            (report, LIMITS, "TimedOut { seconds: 2.0 }"),
            ("exec sleep 30", short, "TimedOut { seconds: 0.1 }"),
            (panics, LIMITS, "Failed { message: \"the sky fell\" }"),
            ("exit 3", LIMITS, "said nothing"),
            (allocation, LIMITS, "OutOfMemory"),
            ("kill -KILL $$", LIMITS, "OutOfMemory"),
        ] {
            let outcome = format!("{:?}", run(script, limits));
            assert!(outcome.contains(expected), "{script}: {outcome}");
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_outcome() {
        let command = Command::new("/nowhere/zoo-bench");
        let report = watch(command, LIMITS, &AtomicBool::new(false)).expect("not stopped");
        let outcome = format!("{:?}", report.outcome);
        let says = "Failed { message: \"/nowhere/zoo-bench could not be started";
        assert!(outcome.starts_with(says), "{outcome}");
    }
}
