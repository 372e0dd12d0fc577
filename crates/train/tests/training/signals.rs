//! Signals and failing output: no progress is lost.

#[cfg(target_os = "linux")]
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use zoo_backend::OpenDevice;

use crate::resume::assert_same_run;
use crate::support::*;

trials! {
    trials(OpenDevice):
    signals_write_a_checkpoint,
    sighup_is_ignored_under_nohup,
    closed_pipes_do_not_end_a_run,
    // Only Linux has /dev/full.
    #[cfg(target_os = "linux")]
    a_full_disk_behind_stdout_does_not_end_a_run,
}

/// Enough to be interrupted. The only checkpoint before the last step is the one of the signal.
const STEPS: usize = 400;

fn begin(opened: &OpenDevice, command: impl FnOnce(&str) -> Command) -> Running {
    let keys = [
        "training.steps",
        "training.checkpoint_every",
        "validation.every",
    ];
    let changes = keys.map(|key| format!("{key} = {STEPS}"));
    Running::start(opened, &changes.each_ref().map(String::as_str), command)
}

/// Waits for the first metrics, then sends a signal.
fn interrupt(running: &mut Running, signal: &str) {
    running.wait_for(|running| {
        let metrics = std::fs::metadata(running.run().join("metrics.jsonl"));
        metrics.is_ok_and(|file| file.len() > 0)
    });
    running.signal(signal);
}

/// Restores the default signal handlers: ignored signals are inherited, such as SIGHUP if the tests
/// run under `nohup`.
pub(crate) fn default_signals(command: Command) -> Command {
    if !cfg!(target_os = "linux") {
        return command;
    }
    let mut env = Command::new("env");
    env.arg("--default-signal").arg(command.get_program());
    env.args(command.get_args());
    let variables = command.get_envs();
    env.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    env
}

fn train(path: &str) -> Command {
    let mut command = default_signals(zoo(&["train", path, "--plain"]));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The uninterrupted run, trained once.
fn reference(opened: &OpenDevice) -> &'static TempDir {
    static REFERENCE: OnceLock<TempDir> = OnceLock::new();
    REFERENCE.get_or_init(|| {
        let mut running = begin(opened, train);
        assert_eq!(running.exit_code(), Some(0));
        assert_eq!(running.steps(), [STEPS]);
        std::mem::replace(&mut running.folder, TempDir::new())
    })
}

/// Resumes an interrupted run and compares the result.
fn check_resume(opened: &OpenDevice, running: &Running) {
    let [step] = running.steps()[..] else {
        panic!("{:?}", running.steps());
    };
    assert!(0 < step && step < STEPS, "stopped after step {step}");
    assert_success(&running.rerun(&["--resume"]));
    assert_same_run(opened, reference(opened), &running.folder);
}

fn signals_write_a_checkpoint(opened: &OpenDevice) {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let mut running = begin(opened, train);
        interrupt(&mut running, signal);
        assert_eq!(running.exit_code(), Some(code), "{signal}");
        check_resume(opened, &running);
    }
}

fn sighup_is_ignored_under_nohup(opened: &OpenDevice) {
    let mut running = begin(opened, |path| {
        let zoo = env!("CARGO_BIN_EXE_zoo");
        let ignoring = format!("trap '' HUP; exec {zoo} train {path} --plain");
        let mut command = Command::new("sh");
        command.args(["-c", &ignoring]).stdout(Stdio::null());
        command.env("RAYON_NUM_THREADS", "1");
        command
    });
    interrupt(&mut running, "HUP");
    assert_eq!(running.exit_code(), Some(0));
    assert_same_run(opened, reference(opened), &running.folder);
}

/// As in `zoo train ... | head -1`. Messages about a signal are lost, too.
fn closed_pipes_do_not_end_a_run(opened: &OpenDevice) {
    let begin = || {
        let mut running = begin(opened, |path| {
            let mut command = zoo(&["train", path, "--plain"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        });
        let mut line = String::new();
        let mut stdout = BufReader::new(running.child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        starts(&line, "device: ");
        drop((stdout, running.child.stderr.take()));
        running
    };
    let mut running = begin();
    assert_eq!(running.exit_code(), Some(0));
    assert_same_run(opened, reference(opened), &running.folder);

    let mut running = begin();
    interrupt(&mut running, "TERM");
    assert_eq!(running.exit_code(), Some(143));
    check_resume(opened, &running);
}

#[cfg(target_os = "linux")]
fn a_full_disk_behind_stdout_does_not_end_a_run(opened: &OpenDevice) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut running = begin(opened, |path| {
        let mut command = zoo(&["train", path, "--plain"]);
        command.stdout(full.try_clone().unwrap()).stderr(full);
        command
    });
    assert_eq!(running.exit_code(), Some(0));
    assert_same_run(opened, reference(opened), &running.folder);
}
