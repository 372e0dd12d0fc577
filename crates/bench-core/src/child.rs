//! One case in a process of its own, watched: what it takes is its own, and
//! nothing it does ends the run.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::machine::available_memory;
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
    Some(Report::without_device(outcome))
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
        if let (Some(used), Some(limit)) = (resident(id), memory)
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

/// Resident memory of a process in bytes, where the system tells.
fn resident(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
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

    #[test]
    fn a_report_on_the_last_line_is_taken() {
        let script = r#"echo talk; echo '{"device":"d","outcome":{"timed-out":{"seconds":2.0}}}'"#;
        assert_eq!(run(script, LIMITS), Outcome::TimedOut { seconds: 2.0 });
    }

    #[test]
    fn no_time_left_is_an_outcome() {
        let limits = Limits {
            time: Duration::from_millis(100),
            ..LIMITS
        };
        let begun = Instant::now();
        assert_eq!(
            run("exec sleep 30", limits),
            Outcome::TimedOut { seconds: 0.1 }
        );
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_failure_gives_its_last_words() {
        let script = "echo 'thread main panicked:' >&2; echo 'the sky fell' >&2; \
                      echo 'note: run with RUST_BACKTRACE=1' >&2; exit 101";
        let message = "the sky fell".to_owned();
        assert_eq!(run(script, LIMITS), Outcome::Failed { message });
        let Outcome::Failed { message } = run("exit 3", LIMITS) else {
            panic!("a failure")
        };
        assert!(message.contains("said nothing"), "{message}");
    }

    #[test]
    fn allocators_and_the_system_say_out_of_memory() {
        for script in [
            "echo 'memory allocation of 99 bytes failed' >&2; exit 134",
            "kill -KILL $$",
        ] {
            let outcome = run(script, LIMITS);
            assert!(
                matches!(outcome, Outcome::OutOfMemory { .. }),
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_an_outcome() {
        let command = Command::new("/nowhere/zoo-bench");
        let report = watch(command, LIMITS, &AtomicBool::new(false)).expect("not stopped");
        let Outcome::Failed { message } = report.outcome else {
            panic!("a failure")
        };
        assert!(
            message.contains("/nowhere/zoo-bench could not be started"),
            "{message}"
        );
    }
}
