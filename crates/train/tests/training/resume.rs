//! A run that was stopped or killed ends as one that never was.

use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use burn_train::Interrupter;
use libtest_mimic::Trial;
use serde_json::Value;
use zoo_backend::{Backend, Opened};
use zoo_train::{Ending, RunFolder, TrainOptions, train};

use crate::shared::{copy_folder, has};
use crate::support::{
    Folder, column, config, config_text, failed, quiet, resume, resume_from, rows, said, seal,
    succeeded, trials, unsuccessful, zoo, zoo_train,
};

/// What depends on the device.
pub(crate) fn on_devices(opened: &Opened) -> Vec<Trial> {
    trials!(
        opened,
        "resume",
        [
            after_kill_it_ends_with_the_same_weights,
            after_a_polite_stop_it_ends_with_the_same_weights,
            random_features_are_drawn_anew_at_the_same_steps,
            a_checkpoint_that_lost_a_part_ends_elsewhere,
        ]
    )
}

pub(crate) fn trials(opened: &Opened) -> Vec<Trial> {
    trials!(
        opened,
        "resume",
        [
            #[cfg(unix)]
            ctrl_c_saves_and_is_told_by_the_exit_code,
            another_config_is_no_continuation,
            one_process_learns_in_a_folder_at_a_time,
        ]
    )
}

/// How long a test waits for a checkpoint: a software GPU compiles its kernels first.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

fn after_kill_it_ends_with_the_same_weights(opened: &Opened) {
    // Checkpoints at other steps than validations and lines of the log; several epochs.
    let steps = [
        "training.steps = 26",
        "training.checkpoint_every = 5",
        "validation.every = 8",
    ];
    let whole = Folder::new();
    let path = whole.write("small.toml", config_text(opened, &whole, &steps));
    succeeded(&zoo_train(&path, &[]));

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
    let output = zoo_train(Path::new(path), &["--resume"]);
    succeeded(&output);
    has(&said(&output), "goes on after step");
    same(opened, &whole, &folder);
    says_both(&run);
    assert!(!run.join("checkpoints/partial-00000010").exists());
}

fn after_a_polite_stop_it_ends_with_the_same_weights(opened: &Opened) {
    after_stop(opened, &[]);
}

fn random_features_are_drawn_anew_at_the_same_steps(opened: &Opened) {
    let performer = "{ kind = \"performer\", features = 6, redraw = 5 }";
    let [encoder, decoder] =
        ["encoder", "decoder"].map(|part| format!("model.{part}_attention = {performer}"));
    after_stop(
        opened,
        &[&encoder, &decoder, "model.attention_dropout = 0.0"],
    );
}

fn after_stop(opened: &Opened, changes: &[&str]) {
    let steps = [&["training.steps = 9", "training.accumulate = 2"], changes].concat();
    let whole = Folder::new();
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
    let finished = train(&config, &resume()).unwrap();
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

/// The last weights, and every number on the way.
pub(crate) fn same(opened: &Opened, whole: &Folder, resumed: &Folder) {
    let [whole, resumed] = [whole, resumed].map(|folder| folder.join("runs/small"));
    let steps_of = |run: &Path| {
        let rows = rows(run).into_iter();
        rows.map(|row| row[..2].to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(steps_of(&whole), steps_of(&resumed));
    let off = distance(&whole, &resumed);
    assert!(
        is_same(opened, off),
        "the last weights are off by {off} of an update"
    );
    if adds_in_one_order(opened) {
        assert_eq!(rows(&whole), rows(&resumed), "the rows of metrics.jsonl");
    }
}

/// Whether two runs of a seed have the same bits: on CPUs, for one number of threads. Threads of
/// a GPU may add in another order each time.
fn adds_in_one_order(opened: &Opened) -> bool {
    matches!(
        opened.word.backend,
        Backend::Flex | Backend::Ndarray | Backend::TchCpu
    )
}

/// Whether the weights of two runs are those of one, by their distance.
fn is_same(opened: &Opened, distance: f64) -> bool {
    match adds_in_one_order(opened) {
        true => distance == 0.0,
        // A part of a checkpoint that is lost, or older by a step, makes more than half an update
        // of difference: `lost_parts`.
        false => distance < 0.01,
    }
}

/// How far the last weights of two runs are apart: the root mean square, as a share of the
/// learning rate, by which an update of Adam moves a weight.
fn distance(whole: &Path, resumed: &Path) -> f64 {
    let [a, b] = [whole, resumed].map(|run| {
        let checkpoints = RunFolder::existing(run).unwrap().checkpoints();
        let last = *checkpoints.steps().unwrap().last().unwrap();
        checkpoints.read(last).unwrap().weights
    });
    let (mut squares, mut count) = (0.0, 0);
    for key in a.keys() {
        let [a, b] = [&a, &b].map(|weights| weights.get(key).unwrap());
        assert_eq!(a.shape(), b.shape(), "{key}");
        for (a, b) in a.iter::<f64>().zip(b.iter::<f64>()) {
            squares += (a - b).powi(2);
            count += 1;
        }
    }
    let rates = column(&whole.join("train.csv"), "rate");
    (squares / f64::from(count)).sqrt() / rates.last().unwrap()
}

/// What the comparison is worth: a checkpoint that lost any of its parts ends elsewhere.
fn a_checkpoint_that_lost_a_part_ends_elsewhere(opened: &Opened) {
    let changes = [
        "training.steps = 9",
        "training.accumulate = 2",
        "training.checkpoint_every = 1",
        "training.keep = 9",
        "schedule.warmup = 0",
    ];
    let whole = Folder::new();
    let config = config(opened, &whole, &changes);
    train(&config, &quiet()).unwrap();
    // After three of its steps, once as it was and once for each part that was lost.
    let resumed = |lose: &dyn Fn(&Path)| {
        let folder = Folder::new();
        let run = folder.join("runs/small");
        copy_folder(&whole.join("runs/small"), &run);
        let checkpoint = run.join("checkpoints/step-00000003");
        lose(&checkpoint);
        seal(&checkpoint);
        let mut config = config.clone();
        config.run.output = folder.join("runs");
        train(&config, &resume_from(3)).unwrap();
        distance(&whole.join("runs/small"), &run)
    };
    let before = |name: &str| {
        whole
            .join("runs/small/checkpoints/step-00000002")
            .join(name)
    };
    let whole_one = resumed(&|_| ());
    let lost = [
        (
            "weights",
            resumed(&|checkpoint| {
                let name = "weights.safetensors";
                std::fs::copy(before(name), checkpoint.join(name)).unwrap();
            }),
        ),
        (
            "optimizer",
            resumed(&|checkpoint| {
                let empty = zoo_kernels::AdamConfig::new(zoo_kernels::AdamKind::Adam).init();
                let bytes = empty.into_bytes().unwrap();
                std::fs::write(checkpoint.join("optimizer.bpk"), &*bytes).unwrap();
            }),
        ),
        (
            "optimizer of a step before",
            resumed(&|checkpoint| {
                let name = "optimizer.bpk";
                std::fs::copy(before(name), checkpoint.join(name)).unwrap();
            }),
        ),
        (
            "data order",
            resumed(&|checkpoint| {
                let read = |path: PathBuf| -> Value {
                    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
                };
                let path = checkpoint.join("state.json");
                let mut state = read(path.clone());
                let position = read(before("state.json"))["position"].clone();
                assert_ne!(state["position"], position);
                state["position"] = position;
                std::fs::write(path, state.to_string()).unwrap();
            }),
        ),
    ];
    assert!(
        is_same(opened, whole_one),
        "off by {whole_one} of an update"
    );
    for (part, off) in lost {
        assert!(
            !is_same(opened, off),
            "without its {part} it is off by {off} alone"
        );
    }
}

fn another_config_is_no_continuation(opened: &Opened) {
    let folder = Folder::new();
    let steps = "training.steps = 1";
    train(&config(opened, &folder, &[steps]), &quiet()).unwrap();
    let other = config(opened, &folder, &[steps, "optimizer.learning_rate = 0.5"]);
    let error = failed(&other, &resume());
    has(&error, "optimizer differs");
    has(&error, "now:  learning_rate = 0.5");
    // A run that goes on for longer is the same run.
    let longer = config(opened, &folder, &["training.steps = 2"]);
    assert_eq!(train(&longer, &resume()).unwrap().steps, 2);
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
        let has_none = |run: RunFolder| run.checkpoints().steps().unwrap().is_empty();
        while RunFolder::existing(&running.run()).map_or(true, has_none) {
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
        zoo_train(&self.folder.join("small.toml"), flags)
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

fn one_process_learns_in_a_folder_at_a_time(opened: &Opened) {
    let mut running = Running::begin(opened);
    let run = running.run();
    let refusals = ["--resume", "--overwrite"].map(|flag| running.again(&[flag]));
    // Using what is there so far is nobody's loss.
    let inspected = zoo(&["inspect", run.to_str().unwrap()]).output().unwrap();
    assert!(running.goes_on(), "it ended by itself");
    running.kill();
    for refused in refusals {
        unsuccessful(&refused);
        let said = said(&refused);
        let expected = match cfg!(unix) {
            true => format!("is being trained by process {}, ", running.child.id()),
            false => "is being trained by another process".to_owned(),
        };
        has(&said, &expected);
        has(&said, run.to_str().unwrap());
        has(&said, "\n  do: wait for its end");
    }
    succeeded(&inspected);
    // A process that was killed has nothing any more.
    let output = running.resumed();
    succeeded(&output);
}

#[cfg(unix)]
fn ctrl_c_saves_and_is_told_by_the_exit_code(opened: &Opened) {
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
