//! Resumed runs: their result equals that of an uninterrupted run.

use std::path::{Path, PathBuf};

use burn_train::Interrupter;
use serde_json::Value;
use zoo_backend::{Backend, OpenDevice};
use zoo_train::{RunFolder, StopReason, TrainOptions, train};

use crate::shared::{copy_folder, has};
use crate::support::{
    Running, TempDir, assert_failure, assert_success, column, config, output_text, quiet, resume,
    resume_from, rows, silent, small_run, train_error, trained_run, trials, write_checksums, zoo,
};

// Device-dependent.
trials! {
    on_devices:
    a_killed_run_resumes_exactly,
    an_interrupted_run_resumes_exactly,
    a_resumed_performer_resamples_at_the_same_steps,
    every_part_of_a_checkpoint_is_needed,
}

trials! {
    trials:
    a_changed_config_cannot_be_resumed,
    one_process_trains_in_a_folder_at_a_time,
}

fn a_killed_run_resumes_exactly(opened: &OpenDevice) {
    // Checkpoints, validations and log lines at different steps; several epochs.
    let steps = [
        "training.steps = 26",
        "training.checkpoint_every = 5",
        "validation.every = 8",
    ];
    let mut reference = Running::start(opened, &steps, silent);
    assert_eq!(reference.exit_code(), Some(0));
    let mut killed = Running::start(opened, &steps, silent);
    killed.wait_for(|killed| !killed.steps().is_empty());
    killed.kill();

    // Left by a checkpoint that was being written.
    let partial = "runs/small/checkpoints/partial-00000010";
    killed
        .folder
        .write(&format!("{partial}/weights.safetensors"), "half");
    let output = killed.rerun(&["--resume"]);
    assert_success(&output);
    has(&output_text(&output), "resuming after step");
    assert_same_run(opened, &reference.folder, &killed.folder);
    check_metadata(&killed.run());
    assert!(!killed.folder.join(partial).exists());
}

fn an_interrupted_run_resumes_exactly(opened: &OpenDevice) {
    after_stop(opened, &[]);
}

fn a_resumed_performer_resamples_at_the_same_steps(opened: &OpenDevice) {
    let performer = "{ kind = \"performer\", features = 6, resample = 5 }";
    let [encoder, decoder] =
        ["encoder", "decoder"].map(|part| format!("model.{part}_attention = {performer}"));
    after_stop(
        opened,
        &[&encoder, &decoder, "model.attention_dropout = 0.0"],
    );
}

fn after_stop(opened: &OpenDevice, changes: &[&str]) {
    let steps = [&["training.steps = 9", "training.accumulate = 2"], changes].concat();
    let (reference, _) = trained_run(opened, &steps);
    let (folder, config) = small_run(opened, &steps);
    let interrupter = Interrupter::new();
    interrupter.stop(None);
    let options = TrainOptions {
        interrupter,
        ..quiet()
    };
    let stopped = train(&config, &options).unwrap();
    assert_eq!(
        (stopped.steps, stopped.stop_reason),
        (1, StopReason::Interrupted)
    );
    let output = train(&config, &resume()).unwrap();
    assert_eq!(
        (output.steps, output.stop_reason),
        (9, StopReason::Completed)
    );
    assert_same_run(opened, &reference, &folder);
}

/// `run.json` keeps the first command and lists the resumed one.
fn check_metadata(run: &Path) {
    let metadata = RunFolder::open(run).unwrap().metadata().unwrap();
    let has_flag = |record: &Value| {
        let command = record["command"].as_array().unwrap();
        command.iter().any(|arg| arg == "--resume")
    };
    assert!(!has_flag(&metadata), "{metadata:#}");
    let [once] = metadata["resumed"].as_array().unwrap().as_slice() else {
        panic!("{metadata:#}");
    };
    assert!(has_flag(once), "{once:#}");
    assert!(once["step"].as_u64().unwrap() >= 5, "{once:#}");
    for key in ["commit", "device", "backend", "versions", "threads"] {
        assert_eq!(metadata[key], once[key], "{key}");
    }
    assert!(once["time"].as_str() >= metadata["started"].as_str());
}

/// Asserts that two runs have the same final weights and, on deterministic backends, metrics.
pub(crate) fn assert_same_run(opened: &OpenDevice, reference: &TempDir, resumed: &TempDir) {
    let [reference, resumed] = [reference, resumed].map(|folder| folder.join("runs/small"));
    let steps = |run: &Path| {
        let rows = rows(run).into_iter();
        rows.map(|row| row[..2].to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(steps(&reference), steps(&resumed));
    let difference = distance(&reference, &resumed);
    assert!(
        is_same(opened, difference),
        "the final weights differ by {difference} updates"
    );
    if is_deterministic(opened) {
        assert_eq!(
            rows(&reference),
            rows(&resumed),
            "the rows of metrics.jsonl"
        );
    }
}

/// Whether runs with the same seed are bitwise equal: on CPUs, for a fixed number of threads. GPUs
/// may add in a different order each time.
fn is_deterministic(opened: &OpenDevice) -> bool {
    matches!(
        opened.id.backend,
        Backend::Flex | Backend::Ndarray | Backend::TchCpu
    )
}

/// Whether runs whose weights have this distance count as equal.
fn is_same(opened: &OpenDevice, distance: f64) -> bool {
    if is_deterministic(opened) {
        return distance == 0.0;
    }
    // A missing or outdated part of a checkpoint makes a difference of more than half an update:
    // `every_part_of_a_checkpoint_is_needed`.
    distance < 0.01
}

/// The root mean square difference of the final weights, divided by the learning rate, which is
/// the size of an Adam update.
fn distance(reference: &Path, resumed: &Path) -> f64 {
    let [a, b] = [reference, resumed].map(|run| {
        let checkpoints = RunFolder::open(run).unwrap().checkpoints();
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
    let rates = column(&reference.join("train.csv"), "rate");
    (squares / f64::from(count)).sqrt() / rates.last().unwrap()
}

/// Checks the comparison itself: without any part of a checkpoint, the result differs.
fn every_part_of_a_checkpoint_is_needed(opened: &OpenDevice) {
    let changes = [
        "training.steps = 9",
        "training.accumulate = 2",
        "training.checkpoint_every = 1",
        "training.keep = 9",
        "schedule.warmup = 0",
    ];
    let (reference, config) = trained_run(opened, &changes);
    // Resumes from step 3 after `modify` has changed the checkpoint.
    let resumed = |modify: &dyn Fn(&Path)| {
        let folder = TempDir::new();
        let run = folder.join("runs/small");
        copy_folder(&reference.join("runs/small"), &run);
        let checkpoint = run.join("checkpoints/step-00000003");
        modify(&checkpoint);
        write_checksums(&checkpoint);
        let mut config = config.clone();
        config.run.output = folder.join("runs");
        train(&config, &resume_from(3)).unwrap();
        distance(&reference.join("runs/small"), &run)
    };
    let previous = reference.join("runs/small/checkpoints/step-00000002");
    let previous = &previous;
    let unmodified = resumed(&|_| ());
    let copy = |name: &'static str| {
        move |checkpoint: &Path| {
            std::fs::copy(previous.join(name), checkpoint.join(name)).unwrap();
        }
    };
    let empty = |checkpoint: &Path| {
        let empty = zoo_kernels::AdamConfig::new(zoo_kernels::AdamKind::Adam).init();
        let bytes = empty.into_bytes().unwrap();
        std::fs::write(checkpoint.join("optimizer.bpk"), &*bytes).unwrap();
    };
    let earlier_position = |checkpoint: &Path| {
        let read = |path: PathBuf| -> Value {
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
        };
        let path = checkpoint.join("state.json");
        let mut state = read(path.clone());
        let position = read(previous.join("state.json"))["position"].clone();
        assert_ne!(state["position"], position);
        state["position"] = position;
        std::fs::write(path, state.to_string()).unwrap();
    };
    let modified = [
        ("weights", resumed(&copy("weights.safetensors"))),
        ("optimizer", resumed(&empty)),
        (
            "optimizer of the previous step",
            resumed(&copy("optimizer.bpk")),
        ),
        ("data order", resumed(&earlier_position)),
    ];
    assert!(
        is_same(opened, unmodified),
        "differs by {unmodified} updates"
    );
    for (part, difference) in modified {
        assert!(
            !is_same(opened, difference),
            "without its {part}, it differs by only {difference} updates"
        );
    }
}

fn a_changed_config_cannot_be_resumed(opened: &OpenDevice) {
    let steps = "training.steps = 1";
    let (folder, _) = trained_run(opened, &[steps]);
    let other = config(opened, &folder, &[steps, "optimizer.learning_rate = 0.5"]);
    let error = train_error(&other, &resume());
    has(&error, "the config has changed in [optimizer]");
    has(&error, "now:  learning_rate = 0.5");
    // More steps are allowed.
    let longer = config(opened, &folder, &["training.steps = 2"]);
    assert_eq!(train(&longer, &resume()).unwrap().steps, 2);
}

fn one_process_trains_in_a_folder_at_a_time(opened: &OpenDevice) {
    // Long enough that it does not end before it is killed.
    let changes = ["training.steps = 200000", "training.checkpoint_every = 1"];
    let mut running = Running::start(opened, &changes, silent);
    running.wait_for(|running| !running.steps().is_empty());
    let run = running.run();
    let rejected = ["--resume", "--overwrite"].map(|flag| running.rerun(&[flag]));
    // Reading needs no lock.
    let inspected = zoo(&["inspect", run.to_str().unwrap()]).output().unwrap();
    assert!(running.is_running(), "the run ended too early");
    running.kill();
    for output in rejected {
        assert_failure(&output);
        let message = output_text(&output);
        let expected = if cfg!(unix) {
            format!("is being trained by process {}\n", running.child.id())
        } else {
            "is being trained by another process".to_owned()
        };
        has(&message, &expected);
        has(&message, run.to_str().unwrap());
        has(&message, "\n  help: wait for it");
    }
    assert_success(&inspected);
    // A killed process releases its lock.
    assert_success(&running.rerun(&["--resume", "--set", "training.steps=1"]));
}
