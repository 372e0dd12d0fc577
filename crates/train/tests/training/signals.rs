//! Signals and output that fail: neither loses what was computed.
//!
//! They concern the process and not the device, so they run on flex alone, where a step is quick
//! and a resumed run ends with the same bits.

#[cfg(target_os = "linux")]
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use zoo_backend::Opened;
use zoo_train::RunFolder;

use crate::resume::{PATIENCE, same};
use crate::shared::starts;
use crate::support::{Folder, config_text, succeeded, trials, zoo, zoo_train};

pub(crate) fn trials(opened: &Opened) -> Vec<Trial> {
    trials!(
        opened,
        "signals",
        [
            sigint_writes_a_checkpoint,
            sigterm_writes_a_checkpoint,
            sighup_writes_a_checkpoint,
            sighup_is_ignored_under_nohup,
            closed_pipes_do_not_end_a_run,
            // Only Linux has /dev/full.
            #[cfg(target_os = "linux")]
            a_full_disk_behind_stdout_does_not_end_a_run,
        ]
    )
}

/// Enough to be stopped in the middle. The only checkpoint before the last step is the one that
/// a signal asks for.
const STEPS: usize = 400;

/// A run in a process of its own.
struct Running {
    folder: Folder,
    child: Child,
}

impl Running {
    fn begin(opened: &Opened, command: impl FnOnce(&str) -> Command) -> Self {
        let folder = Folder::new();
        let keys = [
            "training.steps",
            "training.checkpoint_every",
            "validation.every",
        ];
        let changes = keys.map(|key| format!("{key} = {STEPS}"));
        let changes = changes.each_ref().map(String::as_str);
        let path = folder.write("small.toml", config_text(opened, &folder, &changes));
        let child = command(path.to_str().unwrap()).spawn().unwrap();
        Self { folder, child }
    }

    fn run(&self) -> PathBuf {
        self.folder.join("runs/small")
    }

    /// Waits until steps were made.
    fn wait_for_steps(&mut self) {
        let start = Instant::now();
        let numbers = self.run().join("metrics.jsonl");
        while std::fs::metadata(&numbers).map_or(0, |file| file.len()) == 0 {
            assert!(start.elapsed() < PATIENCE, "no step was made");
            assert!(self.child.try_wait().unwrap().is_none(), "it ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.unwrap().success());
    }

    fn steps(&self) -> Vec<usize> {
        let run = RunFolder::existing(&self.run()).unwrap();
        run.checkpoints().steps().unwrap()
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

/// A test that fails leaves no process behind.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that ignores no signal, even if whoever runs the tests does, as `nohup` ignores
/// SIGHUP: ignored signals are inherited.
fn default_signals(command: Command) -> Command {
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

/// The run that nothing happened to, made once.
fn whole(opened: &Opened) -> &'static Folder {
    static WHOLE: OnceLock<Folder> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let mut running = Running::begin(opened, train);
        assert_eq!(running.exit_code(), Some(0));
        assert_eq!(running.steps(), [STEPS]);
        std::mem::replace(&mut running.folder, Folder::new())
    })
}

/// Resumes a run that was stopped, and compares its end.
fn resumes(opened: &Opened, running: &Running) {
    let [step] = running.steps()[..] else {
        panic!("{:?}", running.steps());
    };
    assert!(0 < step && step < STEPS, "stopped after step {step}");
    let path = running.folder.join("small.toml");
    succeeded(&zoo_train(&path, &["--resume"]));
    same(opened, whole(opened), &running.folder);
}

fn sigint_writes_a_checkpoint(opened: &Opened) {
    stopped(opened, "INT", 130);
}

fn sigterm_writes_a_checkpoint(opened: &Opened) {
    stopped(opened, "TERM", 143);
}

fn sighup_writes_a_checkpoint(opened: &Opened) {
    stopped(opened, "HUP", 129);
}

fn stopped(opened: &Opened, signal: &str, code: i32) {
    let mut running = Running::begin(opened, train);
    running.wait_for_steps();
    running.signal(signal);
    assert_eq!(running.exit_code(), Some(code));
    resumes(opened, &running);
}

fn sighup_is_ignored_under_nohup(opened: &Opened) {
    let mut running = Running::begin(opened, |path| {
        let zoo = env!("CARGO_BIN_EXE_zoo");
        let ignoring = format!("trap '' HUP; exec {zoo} train {path} --plain");
        let mut command = Command::new("sh");
        command.args(["-c", &ignoring]).stdout(Stdio::null());
        command.env("RAYON_NUM_THREADS", "1");
        command
    });
    running.wait_for_steps();
    running.signal("HUP");
    assert_eq!(running.exit_code(), Some(0));
    same(opened, whole(opened), &running.folder);
}

/// As by `zoo train ... | head -1`, or when `tee` is killed: also what a signal prints goes
/// nowhere.
fn closed_pipes_do_not_end_a_run(opened: &Opened) {
    let begin = || {
        let mut running = Running::begin(opened, |path| {
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
    same(opened, whole(opened), &running.folder);

    let mut running = begin();
    running.wait_for_steps();
    running.signal("TERM");
    assert_eq!(running.exit_code(), Some(143));
    resumes(opened, &running);
}

#[cfg(target_os = "linux")]
fn a_full_disk_behind_stdout_does_not_end_a_run(opened: &Opened) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut running = Running::begin(opened, |path| {
        let mut command = zoo(&["train", path, "--plain"]);
        command.stdout(full.try_clone().unwrap()).stderr(full);
        command
    });
    assert_eq!(running.exit_code(), Some(0));
    same(opened, whole(opened), &running.folder);
}
