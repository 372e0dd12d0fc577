//! Small runs, in folders that go away.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use zoo_backend::{Dtype, Opened};
use zoo_config::{Config, Override};
use zoo_train::{RunFolder, TrainOptions, train};

pub(crate) use crate::shared::Folder;

/// Declares a function that returns the tests of a module, by the names of their functions.
macro_rules! trials {
    ($function:ident: $($(#[$meta:meta])* $test:ident),* $(,)?) => {
        pub(crate) fn $function(opened: &zoo_backend::Opened) -> Vec<libtest_mimic::Trial> {
            vec![$(
                $(#[$meta])*
                $crate::support::trial(opened, module_path!(), stringify!($test), $test)
            ),*]
        }
    };
}
pub(crate) use trials;

/// A test on a device.
pub(crate) fn trial(opened: &Opened, module: &str, name: &str, test: fn(&Opened)) -> Trial {
    let opened = opened.clone();
    let module = module.rsplit("::").next().unwrap_or_default();
    Trial::test(format!("{module}::{name}"), move || {
        test(&opened);
        Ok(())
    })
}

/// A test in each of the precisions below f32 that a device computes in. Those that it has not are
/// listed and ignored; so are slow ones on a software adapter.
pub(crate) fn in_half_precisions(
    opened: &Opened,
    name: &str,
    is_slow: bool,
    test: fn(&Opened, Dtype),
) -> Vec<Trial> {
    let of = |precision: Dtype| {
        let opened = opened.clone();
        let name = format!("{name}_{precision}");
        let reason = match (opened.dtypes.contains(&precision), opened.software) {
            (false, _) => "not on this device",
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
    [Dtype::Bf16, Dtype::F16].map(of).into()
}

/// A run that begins, without a word.
pub(crate) fn quiet() -> TrainOptions {
    TrainOptions {
        quiet: true,
        ..TrainOptions::default()
    }
}

/// The same in the place of the one that is there.
pub(crate) fn overwrite() -> TrainOptions {
    TrainOptions {
        overwrite: true,
        ..quiet()
    }
}

/// A run that goes on.
pub(crate) fn resume() -> TrainOptions {
    TrainOptions {
        resume: true,
        ..quiet()
    }
}

/// The same from a step.
pub(crate) fn resume_from(step: usize) -> TrainOptions {
    TrainOptions {
        step: Some(step),
        ..resume()
    }
}

/// What a run is refused with.
pub(crate) fn failed(config: &Config, options: &TrainOptions) -> String {
    train(config, options).unwrap_err().to_string()
}

impl Folder {
    /// The run `small` in it.
    pub(crate) fn run(&self) -> RunFolder {
        RunFolder::existing(&self.join("runs/small")).unwrap()
    }
}

/// The config of a run in a folder, with these sections.
pub(crate) fn config_of(opened: &Opened, folder: &Folder, name: &str, sections: &str) -> Config {
    let text = format!(
        "run.output = {:?}\nrun.name = {name:?}\nbackend.word = \"{}\"\n{sections}\n",
        folder.join("runs").display().to_string(),
        opened.word
    );
    let config = Config::parse("small.toml", &text, &[]);
    config.unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The file of a very small Transformer that copies letters, with everything in it that is
/// drawn, and other sections added by lines such as `training.steps = 4`.
pub(crate) fn config_text(opened: &Opened, folder: &Folder, changes: &[&str]) -> String {
    let output = folder.join("runs");
    let mut text = format!(
        "run.output = {:?}\nrun.name = \"small\"\nbackend.word = \"{}\"\n\
         data = {{ kind = \"copy\", symbols = 4, min_length = 2, max_length = 4, \
         train_size = 60, valid_size = 8, test_size = 8 }}\n\
         model = {{ kind = \"transformer\", d_model = 8, heads = 2, layers = 1, \
         dropout = 0.1, attention_dropout = 0.1 }}\n\
         decoding.max_length = 6\n\
         training.log_every = 2\ntraining.batch_size = 6\n",
        output.display().to_string(),
        opened.word,
    );
    for change in changes {
        text.push_str(change);
        text.push('\n');
    }
    text
}

/// The same read, with anything added or changed by such lines.
pub(crate) fn config(opened: &Opened, folder: &Folder, changes: &[&str]) -> Config {
    let text = config_text(opened, folder, &[]);
    // Inline tables cannot be added to: the lines are flags of the command line.
    let flag = |line: &&str| Override::set(&line.replacen(" = ", "=", 1));
    let flags: Result<Vec<Override>, _> = changes.iter().map(flag).collect();
    let config = Config::parse("small.toml", &text, &flags.unwrap());
    config.unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A folder of its own, and the config of a run in it.
pub(crate) fn small(opened: &Opened, changes: &[&str]) -> (Folder, Config) {
    let folder = Folder::new();
    let config = config(opened, &folder, changes);
    (folder, config)
}

/// The same, when the run is over.
pub(crate) fn trained(opened: &Opened, changes: &[&str]) -> (Folder, Config) {
    let (folder, config) = small(opened, changes);
    train(&config, &quiet()).unwrap_or_else(|error| panic!("{error}"));
    (folder, config)
}

/// The numbers of a column of `train.csv` or `valid.csv`.
pub(crate) fn column(table: &Path, name: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(table).unwrap();
    let mut lines = text.lines().map(|line| line.split(','));
    let at = lines.next().unwrap().position(|column| column == name);
    let at = at.unwrap_or_else(|| panic!("there is no {name} in {text}"));
    lines
        .map(|mut line| line.nth(at).unwrap().parse().unwrap())
        .collect()
}

/// The `zoo` program with these arguments, one thread, and lines for output.
pub(crate) fn zoo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zoo"));
    command.args(arguments).env("RAYON_NUM_THREADS", "1");
    command
}

pub(crate) fn said(output: &Output) -> String {
    let [said, complained] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{said}{complained}")
}

#[track_caller]
pub(crate) fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", said(output));
}

#[track_caller]
pub(crate) fn unsuccessful(output: &Output) {
    assert!(!output.status.success(), "{}", said(output));
}

/// Runs `zoo train` on a config, with more arguments, to its end.
pub(crate) fn zoo_train(path: &Path, more: &[&str]) -> Output {
    let words = [&["train", path.to_str().unwrap(), "--plain"], more].concat();
    zoo(&words).output().unwrap()
}

/// How long a test waits for a run: a software GPU compiles its kernels first.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A run in a process of its own.
pub(crate) struct Running {
    pub(crate) folder: Folder,
    pub(crate) child: Child,
}

impl Running {
    /// Starts a command for a config with these changes.
    pub(crate) fn begin(
        opened: &Opened,
        changes: &[&str],
        command: impl FnOnce(&str) -> Command,
    ) -> Self {
        let folder = Folder::new();
        let path = folder.write("small.toml", config_text(opened, &folder, changes));
        let child = command(path.to_str().unwrap()).spawn().unwrap();
        Self { folder, child }
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.folder.join("runs/small")
    }

    /// The steps that there are checkpoints of.
    pub(crate) fn steps(&self) -> Vec<usize> {
        let run = RunFolder::existing(&self.run());
        run.map_or(vec![], |run| run.checkpoints().steps().unwrap())
    }

    pub(crate) fn goes_on(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for something that a run does before it ends.
    pub(crate) fn wait_for(&mut self, is_there: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_there(self) {
            assert!(start.elapsed() < PATIENCE, "it takes too long");
            assert!(self.goes_on(), "it ended by itself");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.unwrap().success());
    }

    /// SIGKILL: nothing can be tidied up.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Another process on the same run.
    pub(crate) fn again(&self, flags: &[&str]) -> Output {
        zoo_train(&self.folder.join("small.toml"), flags)
    }
}

/// A test that fails leaves no process behind.
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

/// The rows of a run's `metrics.jsonl`, without what depends on the clock. Numbers are as they are
/// written: what is read of decimals may differ in the last bit.
pub(crate) fn rows(run: &Path) -> Vec<Vec<(String, String)>> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let row = |line: &str| {
        let inside = line.strip_prefix('{').unwrap().strip_suffix('}').unwrap();
        let pairs = inside.split(',').map(|pair| pair.split_once(':').unwrap());
        let pairs =
            pairs.map(|(name, value)| (name.trim_matches('"').to_owned(), value.to_owned()));
        let of_clock = ["seconds", "tokens_per_second"];
        pairs
            .filter(|(name, _)| !of_clock.contains(&name.as_str()))
            .collect()
    };
    text.lines().map(row).collect()
}

/// Writes the checksums of a checkpoint whose files a test has changed.
pub(crate) fn seal(checkpoint: &Path) {
    let names = ["weights.safetensors", "optimizer.bpk", "state.json"];
    let sums: serde_json::Map<String, serde_json::Value> = names
        .iter()
        .map(|name| {
            let bytes = std::fs::read(checkpoint.join(name)).unwrap();
            let sum = format!("{:08x}", crc32fast::hash(&bytes));
            ((*name).to_owned(), sum.into())
        })
        .collect();
    let text = serde_json::to_string(&sums).unwrap();
    std::fs::write(checkpoint.join("checksums.json"), text).unwrap();
}
