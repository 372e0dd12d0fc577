//! Small runs, in folders that go away.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::Trial;
use zoo_backend::{Dtype, Opened};
use zoo_config::{Config, Override};
use zoo_train::{RunFolder, TrainOptions, train};

/// The tests of a module, by the names of their functions.
macro_rules! trials {
    ($opened:expr, $module:literal, [$($(#[$meta:meta])* $test:ident),* $(,)?]) => {
        vec![$(
            $(#[$meta])*
            $crate::support::trial($opened, concat!($module, "::", stringify!($test)), $test)
        ),*]
    };
}
pub(crate) use trials;

/// A test on a device.
pub(crate) fn trial(opened: &Opened, name: &str, test: fn(&Opened)) -> Trial {
    let opened = opened.clone();
    Trial::test(name, move || {
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

/// A folder of a test's own.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("zoo-training-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The run `small` in it.
    pub(crate) fn run(&self) -> RunFolder {
        RunFolder::existing(&self.join("runs/small")).unwrap()
    }

    /// Writes a file into it.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
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
