//! Small runs in temporary folders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use zoo_backend::{Dtype, OpenDevice};
use zoo_config::{Config, Override};
use zoo_train::{RunFolder, TrainOptions, train};

pub(crate) use crate::shared::*;

/// A test in bf16 and f16. Dtypes that the device does not support are listed as ignored; so are
/// slow tests on a software adapter.
pub(crate) fn in_half_precisions(
    opened: &OpenDevice,
    name: &str,
    is_slow: bool,
    test: fn(&OpenDevice, Dtype),
) -> Vec<Trial> {
    let trial = |precision: Dtype| {
        let opened = opened.clone();
        let name = format!("{name}_{precision}");
        let reason = match (opened.dtypes.contains(&precision), opened.software) {
            (false, _) => "not supported by this device",
            (true, true) if is_slow => "takes minutes on a software adapter",
            (true, _) => {
                return Trial::test(name, move || {
                    test(&opened, precision);
                    Ok(())
                });
            }
        };
        Trial::test(format!("{name} ({reason})"), || Ok(())).with_ignored_flag(true)
    };
    [Dtype::Bf16, Dtype::F16].map(trial).into()
}

/// Options of a new run without console output.
pub(crate) fn quiet() -> TrainOptions {
    TrainOptions {
        quiet: true,
        ..TrainOptions::default()
    }
}

pub(crate) fn overwrite() -> TrainOptions {
    TrainOptions {
        overwrite: true,
        ..quiet()
    }
}

pub(crate) fn resume() -> TrainOptions {
    TrainOptions {
        resume: true,
        ..quiet()
    }
}

pub(crate) fn resume_from(step: usize) -> TrainOptions {
    TrainOptions {
        step: Some(step),
        ..resume()
    }
}

pub(crate) fn train_error(config: &Config, options: &TrainOptions) -> String {
    train(config, options).unwrap_err().to_string()
}

impl TempDir {
    /// The run `small`.
    pub(crate) fn run(&self) -> RunFolder {
        RunFolder::open(&self.join("runs/small")).unwrap()
    }
}

/// The config file of a very small Transformer for the copy task, with dropout, and more lines such
/// as `training.steps = 4`.
pub(crate) fn config_text(opened: &OpenDevice, folder: &TempDir, changes: &[&str]) -> String {
    let output = folder.join("runs");
    let mut text = format!(
        "run.output = {:?}\nrun.name = \"small\"\nbackend.name = \"{}\"\n\
         data = {{ kind = \"copy\", symbols = 4, min_length = 2, max_length = 4, \
         train_size = 60, valid_size = 8, test_size = 8 }}\n\
         model = {{ kind = \"transformer\", d_model = 8, n_heads = 2, layers = 1, \
         dropout = 0.1, attention_dropout = 0.1 }}\n\
         decoding.max_length = 6\n\
         training.log_every = 2\ntraining.batch_size = 6\n",
        output.display().to_string(),
        opened.id,
    );
    for change in changes {
        text.push_str(change);
        text.push('\n');
    }
    text
}

/// The parsed config with `changes` such as `training.steps = 4`.
pub(crate) fn config(opened: &OpenDevice, folder: &TempDir, changes: &[&str]) -> Config {
    let text = config_text(opened, folder, &[]);
    // Inline tables cannot be extended, so the changes are command-line overrides.
    let flag = |line: &&str| Override::set(&line.replacen(" = ", "=", 1));
    let flags: Result<Vec<Override>, _> = changes.iter().map(flag).collect();
    let config = Config::parse("small.toml", &text, &flags.unwrap());
    config.unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A temporary folder and the config of a run in it.
pub(crate) fn small_run(opened: &OpenDevice, changes: &[&str]) -> (TempDir, Config) {
    let folder = TempDir::new();
    let config = config(opened, &folder, changes);
    (folder, config)
}

/// A temporary folder with a finished run, and its config.
pub(crate) fn trained_run(opened: &OpenDevice, changes: &[&str]) -> (TempDir, Config) {
    let (folder, config) = small_run(opened, changes);
    train(&config, &quiet()).unwrap_or_else(|error| panic!("{error}"));
    (folder, config)
}

/// A column of `train.csv` or `valid.csv`.
pub(crate) fn column(table: &Path, name: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(table).unwrap();
    let mut lines = text.lines().map(|line| line.split(','));
    let index = lines.next().unwrap().position(|column| column == name);
    let index = index.unwrap_or_else(|| panic!("there is no {name} in {text}"));
    let cells = lines.map(|mut line| line.nth(index).unwrap());
    cells.map(|cell| cell.parse().unwrap()).collect()
}

/// All weights of the last checkpoint, concatenated.
pub(crate) fn last_weights(run: &RunFolder) -> Vec<f64> {
    let checkpoints = run.checkpoints();
    let last = *checkpoints.steps().unwrap().last().unwrap();
    let weights = checkpoints.read(last).unwrap().weights;
    let values = |key| weights.get(key).unwrap().iter::<f64>().collect::<Vec<_>>();
    weights.keys().flat_map(values).collect()
}

pub(crate) fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let squares = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
    squares.sum::<f64>().sqrt()
}

/// The `zoo` program with one thread.
pub(crate) fn zoo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zoo"));
    command.args(arguments).env("RAYON_NUM_THREADS", "1");
    command
}

pub(crate) fn output_text(output: &Output) -> String {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{stdout}{stderr}")
}

#[track_caller]
pub(crate) fn assert_success(output: &Output) {
    assert!(output.status.success(), "{}", output_text(output));
}

/// The output of a command that fails.
#[track_caller]
pub(crate) fn failure_text(output: &Output) -> String {
    let text = output_text(output);
    assert!(!output.status.success(), "{text}");
    text
}

/// Runs `zoo train` on a config until it exits.
pub(crate) fn zoo_train(path: &Path, more: &[&str]) -> Output {
    let args = [&["train", path.to_str().unwrap(), "--plain"], more].concat();
    zoo(&args).output().unwrap()
}

/// A run in a child process.
pub(crate) struct Running {
    pub(crate) folder: TempDir,
    pub(crate) child: Child,
}

impl Running {
    /// Starts a command with the path of a config with these changes.
    pub(crate) fn start(
        opened: &OpenDevice,
        changes: &[&str],
        command: impl FnOnce(&str) -> Command,
    ) -> Self {
        let folder = TempDir::new();
        let path = folder.write("small.toml", config_text(opened, &folder, changes));
        let child = command(path.to_str().unwrap()).spawn().unwrap();
        Self { folder, child }
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.folder.join("runs/small")
    }

    /// The steps of the checkpoints.
    pub(crate) fn steps(&self) -> Vec<usize> {
        let run = RunFolder::open(&self.run());
        run.map_or(vec![], |run| run.checkpoints().steps().unwrap())
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until `condition` holds, which must be before the run ends.
    pub(crate) fn wait_for(&mut self, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(start.elapsed() < TIMEOUT, "timed out");
            assert!(self.is_running(), "the run ended too early");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.unwrap().success());
    }

    /// Sends SIGKILL, so that the run cannot clean up.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Runs `zoo train` on the same config with these flags until it exits.
    pub(crate) fn rerun(&self, flags: &[&str]) -> Output {
        zoo_train(&self.folder.join("small.toml"), flags)
    }
}

/// A failing test leaves no process behind.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `zoo train` without its output.
pub(crate) fn silent(path: &str) -> Command {
    let mut command = zoo(&["train", path, "--plain"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The rows of `metrics.jsonl` without the columns of time and memory. Values stay text, because parsing a
/// decimal may change its last bit.
pub(crate) fn rows(run: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let timing = ["\"seconds\":", "\"tokens_per_second\":", "\"memory\":"];
    let is_timing = |pair: &&str| timing.iter().any(|key| pair.starts_with(key));
    let row = |line: &str| {
        let pairs = line.trim_matches(['{', '}']).split(',');
        pairs
            .filter(|it| !is_timing(it))
            .map(str::to_owned)
            .collect()
    };
    text.lines().map(row).collect()
}

/// Updates the checksums of a checkpoint whose files a test has changed.
pub(crate) fn write_checksums(checkpoint: &Path) {
    let names = ["weights.safetensors", "optimizer.bpk", "state.json"];
    let sums = BTreeMap::from(names.map(|name| {
        let bytes = std::fs::read(checkpoint.join(name)).unwrap();
        (name, format!("{:08x}", crc32fast::hash(&bytes)))
    }));
    let text = serde_json::to_string(&sums).unwrap();
    std::fs::write(checkpoint.join("checksums.json"), text).unwrap();
}
