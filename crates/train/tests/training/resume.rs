//! A run that was stopped or killed ends as one that never was.

use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use burn::train::Interrupter;
use libtest_mimic::Trial;
use serde_json::Value;
use zoo_backend::{Backend, Opened};
use zoo_models::weights::Weights;
use zoo_train::{Ending, RunFolder, TrainOptions, train};

use crate::support::{Folder, config, config_text, last_weights, rows, said, zoo};

pub(crate) fn trials(opened: &Opened) -> Vec<Trial> {
    let trial = |name: &str, test: fn(&Opened)| {
        let opened = opened.clone();
        Trial::test(format!("resume::{name}"), move || {
            test(&opened);
            Ok(())
        })
    };
    vec![
        trial("after_kill_it_ends_with_the_same_weights", after_kill),
        trial(
            "after_a_polite_stop_it_ends_with_the_same_weights",
            |opened| after_stop(opened, &[]),
        ),
        trial(
            "random_features_are_drawn_anew_at_the_same_steps",
            |opened| {
                let performer = "{ kind = \"performer\", features = 6, redraw = 5 }";
                let attention = ["encoder", "decoder"]
                    .map(|part| format!("model.{part}_attention = {performer}"));
                let [encoder, decoder] = &attention;
                let changes = [encoder, decoder, "model.attention_dropout = 0.0"];
                after_stop(opened, &changes);
            },
        ),
        #[cfg(unix)]
        trial("ctrl_c_saves_and_is_told_by_the_exit_code", interrupted),
        trial("another_config_is_no_continuation", with_another_config),
        trial("one_process_learns_in_a_folder_at_a_time", one_at_a_time),
    ]
}

/// How long a test waits for a checkpoint: a software GPU compiles its kernels first.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

fn after_kill(opened: &Opened) {
    // Checkpoints at other steps than validations and lines of the log; several epochs.
    let steps = [
        "training.steps = 26",
        "training.checkpoint_every = 5",
        "validation.every = 8",
    ];
    let whole = Folder::new();
    let path = whole.write("small.toml", config_text(opened, &whole, &steps));
    let output = zoo(&["train", path.to_str().unwrap(), "--plain"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));

    let folder = Folder::new();
    let path = folder.write("small.toml", config_text(opened, &folder, &steps));
    let path = path.to_str().unwrap();
    let mut child = zoo(&["train", path, "--plain"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let run = folder.join("runs/small");
    let start = Instant::now();
    while !run.join("checkpoints/step-00000005").exists() {
        assert!(
            start.elapsed() < PATIENCE,
            "there is no checkpoint to be killed after"
        );
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(2));
    }
    // SIGKILL: nothing can be tidied up.
    child.kill().unwrap();
    child.wait().unwrap();

    // What a write in progress would have left.
    folder.write(
        "runs/small/checkpoints/partial-00000010/weights.safetensors",
        "half",
    );
    let output = zoo(&["train", path, "--plain", "--resume"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("goes on after step"),
        "{}",
        said(&output)
    );
    same(opened, &whole, &folder);
    says_both(&run);
    assert!(!run.join("checkpoints/partial-00000010").exists());
}

fn after_stop(opened: &Opened, changes: &[&str]) {
    let steps = [&["training.steps = 9", "training.accumulate = 2"], changes].concat();
    let whole = Folder::new();
    let quiet = || TrainOptions {
        quiet: true,
        ..TrainOptions::default()
    };
    train(&config(opened, &whole, &steps), &quiet()).unwrap();

    let folder = Folder::new();
    let config = config(opened, &folder, &steps);
    let interrupter = Interrupter::new();
    interrupter.stop(None);
    let asked = TrainOptions {
        interrupter,
        ..quiet()
    };
    let stopped = train(&config, &asked).unwrap();
    assert_eq!((stopped.steps, stopped.ending), (1, Ending::Interrupted));
    let resume = TrainOptions {
        resume: true,
        ..quiet()
    };
    let finished = train(&config, &resume).unwrap();
    assert_eq!((finished.steps, finished.ending), (9, Ending::Complete));
    same(opened, &whole, &folder);
}

/// What a run began with stays, and what it was gone on with is added.
fn says_both(run: &Path) {
    let about = RunFolder::existing(run).unwrap().about().unwrap();
    let has_flag = |of: &Value| {
        let command = of["command"].as_array().unwrap();
        command.iter().any(|word| word == "--resume")
    };
    assert!(!has_flag(&about), "{about:#}");
    let [once] = about["resumed"].as_array().unwrap().as_slice() else {
        panic!("{about:#}");
    };
    assert!(has_flag(once), "{once:#}");
    assert!(once["step"].as_u64().unwrap() >= 5, "{once:#}");
    for key in ["commit", "device", "backend", "versions", "threads"] {
        assert_eq!(about[key], once[key], "{key}");
    }
    assert!(once["time"].as_str() >= about["started"].as_str());
}

/// The last weights, and every number on the way. Bit for bit on flex, which adds in one order;
/// elsewhere threads may add in another.
pub(crate) fn same(opened: &Opened, whole: &Folder, resumed: &Folder) {
    let [whole, resumed] = [whole, resumed].map(|folder| folder.join("runs/small"));
    if opened.word.backend == Backend::Flex {
        assert!(
            last_weights(&whole) == last_weights(&resumed),
            "the last weights differ"
        );
        assert_eq!(rows(&whole), rows(&resumed), "the rows of metrics.jsonl");
        return;
    }
    let steps = RunFolder::existing(&whole).unwrap().checkpoints().steps();
    let steps_of = |run: &Path| {
        let rows = rows(run).into_iter();
        rows.map(|row| row[..2].to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(steps_of(&whole), steps_of(&resumed));
    let name = format!(
        "checkpoints/step-{:08}/weights.safetensors",
        steps.last().unwrap()
    );
    let [whole, resumed] = [whole, resumed].map(|run| Weights::read(run.join(&name)).unwrap());
    for key in whole.keys() {
        let [a, b] = [&whole, &resumed].map(|weights| weights.get(key).unwrap().clone());
        for (a, b) in a.iter::<f32>().zip(b.iter::<f32>()) {
            // Adam divides by the size of a gradient: where that is next to nothing, another
            // order of adding shows in full.
            assert!((a - b).abs() < 2e-3, "{key}: {a} and {b}");
        }
    }
}

fn with_another_config(opened: &Opened) {
    let folder = Folder::new();
    let quiet = TrainOptions {
        quiet: true,
        ..TrainOptions::default()
    };
    let steps = "training.steps = 1";
    train(&config(opened, &folder, &[steps]), &quiet).unwrap();
    let resume = TrainOptions {
        resume: true,
        ..quiet
    };
    let other = config(opened, &folder, &[steps, "optimizer.learning_rate = 0.5"]);
    let error = train(&other, &resume).unwrap_err().to_string();
    assert!(error.contains("optimizer differs"), "{error}");
    assert!(error.contains("now:  learning_rate = 0.5"), "{error}");
    // A run that goes on for longer is the same run.
    let longer = config(opened, &folder, &["training.steps = 2"]);
    assert_eq!(train(&longer, &resume).unwrap().steps, 2);
}

/// A run in a process of its own that would go on for long, and has a checkpoint.
struct Running {
    folder: Folder,
    child: Child,
}

impl Running {
    fn begin(opened: &Opened) -> Self {
        let folder = Folder::new();
        let changes = ["training.steps = 200000", "training.checkpoint_every = 1"];
        folder.write("small.toml", config_text(opened, &folder, &changes));
        let child = zoo(&["train", folder.join("small.toml").to_str().unwrap()])
            .arg("--plain")
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut running = Self { folder, child };
        let start = Instant::now();
        while RunFolder::existing(&running.run()).map_or(0, |run| run.checkpoints().steps().len())
            == 0
        {
            assert!(start.elapsed() < PATIENCE, "there is no checkpoint");
            assert!(running.goes_on(), "it ended by itself");
            std::thread::sleep(Duration::from_millis(2));
        }
        running
    }

    fn run(&self) -> PathBuf {
        self.folder.join("runs/small")
    }

    fn goes_on(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Another process on the same run.
    fn again(&self, flags: &[&str]) -> Output {
        let config = self.folder.join("small.toml");
        let train = ["train", config.to_str().unwrap(), "--plain"];
        zoo(&[&train, flags].concat()).output().unwrap()
    }

    /// The same, which goes on and is done at once.
    fn resumed(&self) -> Output {
        self.again(&["--resume", "--set", "training.steps=1"])
    }
}

/// A test that fails leaves no process behind.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn one_at_a_time(opened: &Opened) {
    let mut running = Running::begin(opened);
    let run = running.run();
    let refusals = ["--resume", "--overwrite"].map(|flag| running.again(&[flag]));
    // Using what is there so far is nobody's loss.
    let inspected = zoo(&["inspect", run.to_str().unwrap()]).output().unwrap();
    assert!(running.goes_on(), "it ended by itself");
    running.kill();
    for refused in refusals {
        assert!(!refused.status.success(), "{}", said(&refused));
        let said = said(&refused);
        let expected = match cfg!(unix) {
            true => format!("is being trained by process {}, ", running.child.id()),
            false => "is being trained by another process".to_owned(),
        };
        assert!(said.contains(&expected), "{said}");
        assert!(said.contains(run.to_str().unwrap()), "{said}");
        assert!(said.contains("\n  do: wait for its end"), "{said}");
    }
    assert!(inspected.status.success(), "{}", said(&inspected));
    // A process that was killed has nothing any more.
    let output = running.resumed();
    assert!(output.status.success(), "{}", said(&output));
}

#[cfg(unix)]
fn interrupted(opened: &Opened) {
    let mut running = Running::begin(opened);
    let signal = format!("kill -INT {}", running.child.id());
    let sent = std::process::Command::new("sh")
        .args(["-c", &signal])
        .status();
    assert!(sent.unwrap().success());
    assert_eq!(running.child.wait().unwrap().code(), Some(130));
    let output = running.resumed();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}
