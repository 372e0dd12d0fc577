//! Resumed runs: their result equals that of an uninterrupted run.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use serde_json::Value;
use zoo_backend::{Backend, OpenDevice};
use zoo_spec::SplitMix64;
use zoo_train::{RunFolder, StopReason, train};

use crate::support::*;

// Device-dependent.
trials! {
    on_devices(OpenDevice):
    a_killed_run_resumes_exactly,
    an_interrupted_run_resumes_exactly,
    a_resumed_performer_resamples_at_the_same_steps,
    every_part_of_a_checkpoint_is_needed,
}

trials! {
    trials(OpenDevice):
    a_changed_config_cannot_be_resumed,
    a_moved_run_folder_can_be_resumed,
    one_process_trains_in_a_folder_at_a_time,
}

fn a_killed_run_resumes_exactly(opened: &OpenDevice) {
    // Checkpoints, validations and log lines at different steps; an epoch has ten steps. Fewer on a
    // software adapter; a fast device must not finish before it is killed.
    let steps = [
        &format!("training.steps = {}", if opened.software { 13 } else { 26 }),
        "training.checkpoint_every = 3",
        "validation.every = 5",
    ];
    let mut reference = Running::start(opened, &steps, silent);
    assert_eq!(reference.exit_code(), Some(0));
    let mut killed = Running::start(opened, &steps, silent);
    killed.wait_for(|killed| !killed.steps().is_empty());
    killed.kill();

    // Left by a checkpoint that was being written.
    let partial = killed.run().join("checkpoints/partial-00000010");
    std::fs::create_dir_all(&partial).unwrap();
    std::fs::write(partial.join("weights.safetensors"), "half").unwrap();
    let output = killed.rerun(&["--resume"]);
    assert_success(&output);
    has(&output_text(&output), "resuming after step");
    assert_same_run(opened, &reference.folder, &killed.folder);
    check_metadata(&killed.run());
    assert!(!partial.exists());
}

fn an_interrupted_run_resumes_exactly(opened: &OpenDevice) {
    after_stop(opened, &[]);
}

fn a_resumed_performer_resamples_at_the_same_steps(opened: &OpenDevice) {
    let performer = "{ kind = \"performer\", n_features = 6, resample = 3 }";
    let [encoder, decoder] =
        ["encoder", "decoder"].map(|part| format!("model.{part}_attention = {performer}"));
    let changes = [&encoder, &decoder, "model.attention_dropout = 0.0"];
    after_stop(opened, &changes);
}

fn after_stop(opened: &OpenDevice, changes: &[&str]) {
    let steps = [
        &["training.steps = 6", "training.gradient_accumulation = 2"],
        changes,
    ]
    .concat();
    let (reference, _) = trained_run(opened, &steps);
    let (folder, config) = small_run(opened, &steps);
    let options = quiet();
    options.interrupter.stop();
    let stopped = train(&config, &options).unwrap();
    assert_eq!(stopped.stop_reason, StopReason::Interrupted);
    assert_eq!(stopped.steps, 1);
    let output = train(&config, &resume()).unwrap();
    assert_eq!(output.stop_reason, StopReason::Completed);
    assert_eq!(output.steps, 6);
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
    assert!(once["step"].as_u64().unwrap() >= 3, "{once:#}");
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
    let difference = num_updates(&reference, &resumed);
    let is_same = is_same(opened, difference);
    assert!(is_same, "the final weights differ by {difference} updates");
    if is_deterministic(opened) {
        assert_eq!(rows(&reference), rows(&resumed), "metrics.jsonl");
    }
}

/// Whether runs with the same seed are bitwise equal: on CPUs, for a fixed number of threads. GPUs
/// may add in a different order each time.
fn is_deterministic(opened: &OpenDevice) -> bool {
    use Backend::{Flex, Ndarray, TchCpu};
    matches!(opened.id.backend, Flex | Ndarray | TchCpu)
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
fn num_updates(reference: &Path, resumed: &Path) -> f64 {
    let [a, b] = [reference, resumed].map(|run| last_weights(&RunFolder::open(run).unwrap()));
    let root_mean_square = distance(&a, &b) / (a.len() as f64).sqrt();
    let rates = column(&reference.join("train.csv"), "rate");
    root_mean_square / rates.last().unwrap()
}

/// Checks the comparison itself: without any part of a checkpoint, the result differs.
fn every_part_of_a_checkpoint_is_needed(opened: &OpenDevice) {
    let changes = [
        "training.steps = 6",
        "training.gradient_accumulation = 2",
        "training.checkpoint_every = 1",
        "training.keep_checkpoints = 6",
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
        num_updates(&reference.join("runs/small"), &run)
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
        ("latest optimizer", resumed(&copy("optimizer.bpk"))),
        ("data order", resumed(&earlier_position)),
    ];
    assert!(is_same(opened, unmodified), "by {unmodified} updates");
    for (part, difference) in modified {
        let is_same = is_same(opened, difference);
        assert!(!is_same, "by only {difference} updates without its {part}");
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

fn a_moved_run_folder_can_be_resumed(opened: &OpenDevice) {
    let (folder, _) = trained_run(opened, &["training.steps = 1"]);
    // A name that is an integer in TOML.
    let run = folder.join("moved/2024");
    std::fs::create_dir(folder.join("moved")).unwrap();
    std::fs::rename(folder.join("runs/small"), &run).unwrap();
    let last_step = || {
        *RunFolder::open(&run)
            .unwrap()
            .checkpoints()
            .steps()
            .unwrap()
            .last()
            .unwrap()
    };
    assert_success(&zoo_train(&run, &["--resume", "--set", "training.steps=2"]));
    assert_eq!(last_step(), 2);
    let mut here = zoo(&[
        "train",
        ".",
        "--plain",
        "--resume",
        "--set",
        "training.epochs=1",
    ]);
    assert_success(&here.current_dir(&run).output().unwrap());
    // 60 examples in batches of 6.
    assert_eq!(last_step(), 10);
    assert!(!folder.join("runs/small").exists());
    let message = failure_text(&zoo_train(&run, &[]));
    has(
        &message,
        format!("{} already exists\n  help: --resume", run.display()),
    );
    let message = failure_text(&zoo_train(&folder.join("moved"), &["--resume"]));
    has(
        &message,
        "moved is a folder without config.toml\n  help: give a config file",
    );
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
        let message = failure_text(&output);
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

/// A run that is killed and resumed many times equals an uninterrupted run. Longer with
/// `ZOO_SOAK=1`.
pub(crate) fn soak(opened: &OpenDevice) -> Trial {
    let (steps, kills) = match std::env::var_os("ZOO_SOAK") {
        Some(_) => (1000, 20),
        None => (60, 3),
    };
    let opened = opened.clone();
    let name = format!("resume::{steps}_steps_with_{kills}_kills");
    Trial::test(name, move || {
        kill_and_resume(&opened, steps, kills);
        Ok(())
    })
}

fn kill_and_resume(opened: &OpenDevice, steps: usize, kills: usize) {
    let changes = [
        &format!("training.steps = {steps}"),
        "training.checkpoint_every = 3",
        &format!("validation.every = {}", steps / 4),
    ];
    let mut reference = Running::start(opened, &changes, silent);
    assert_eq!(reference.exit_code(), Some(0));

    let mut rng = SplitMix64::named("soak");
    let mut kill_steps: Vec<usize> = (0..kills).map(|_| 1 + rng.below(steps - 1)).collect();
    kill_steps.sort_unstable();
    let mut killed = vec![];
    let mut running = Running::start(opened, &changes, silent);
    for step in kill_steps {
        let start = Instant::now();
        // Waits for a checkpoint, then for a random time, so that some kills hit a checkpoint being
        // written. If the run is already past `step`, it is killed while it starts.
        while last_step(&running) < step && running.is_running() {
            assert!(start.elapsed() < TIMEOUT, "no checkpoint of step {step}");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(rng.below(10_000) as u64));
        if running.is_running() {
            running.kill();
            killed.push(last_step(&running));
        } else {
            // The run was faster.
            assert_eq!(running.exit_code(), Some(0), "before step {step}");
        }
        let path = running.folder.join("small.toml");
        let mut again = silent(path.to_str().unwrap());
        running.child = again.arg("--resume").spawn().unwrap();
    }
    println!("killed after the checkpoints of steps {killed:?}");
    assert!(killed.len() > kills / 2, "the run was too fast: {killed:?}");
    assert_eq!(running.exit_code(), Some(0));
    assert_same_run(opened, &reference.folder, &running.folder);
}

/// The step of the last checkpoint.
fn last_step(running: &Running) -> usize {
    running.steps().last().copied().unwrap_or(0)
}
