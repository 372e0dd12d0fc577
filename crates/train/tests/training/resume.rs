//! A run that was stopped or killed ends as one that never was.

use std::path::{Path, PathBuf};

use burn_train::Interrupter;
use serde_json::Value;
use zoo_backend::{Backend, Opened};
use zoo_train::{Ending, RunFolder, TrainOptions, train};

use crate::shared::{copy_folder, has};
use crate::support::{
    Folder, Running, column, config, failed, quiet, resume, resume_from, rows, said, seal, silent,
    small, succeeded, trained, trials, unsuccessful, zoo,
};

// What depends on the device.
trials! {
    on_devices:
    after_kill_it_ends_with_the_same_weights,
    after_a_polite_stop_it_ends_with_the_same_weights,
    random_features_are_drawn_anew_at_the_same_steps,
    a_checkpoint_that_lost_a_part_ends_elsewhere,
}

trials! {
    trials:
    another_config_is_no_continuation,
    one_process_learns_in_a_folder_at_a_time,
}

fn after_kill_it_ends_with_the_same_weights(opened: &Opened) {
    // Checkpoints at other steps than validations and lines of the log; several epochs.
    let steps = [
        "training.steps = 26",
        "training.checkpoint_every = 5",
        "validation.every = 8",
    ];
    let mut whole = Running::begin(opened, &steps, silent);
    assert_eq!(whole.exit_code(), Some(0));
    let mut killed = Running::begin(opened, &steps, silent);
    killed.wait_for(|killed| !killed.steps().is_empty());
    killed.kill();

    // What a write in progress would have left.
    let partial = "runs/small/checkpoints/partial-00000010";
    killed
        .folder
        .write(&format!("{partial}/weights.safetensors"), "half");
    let output = killed.again(&["--resume"]);
    succeeded(&output);
    has(&said(&output), "goes on after step");
    same(opened, &whole.folder, &killed.folder);
    says_both(&killed.run());
    assert!(!killed.folder.join(partial).exists());
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
    let (whole, _) = trained(opened, &steps);
    let (folder, config) = small(opened, &steps);
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
    let (whole, config) = trained(opened, &changes);
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
        let checkpoint = whole.join("runs/small/checkpoints/step-00000002");
        checkpoint.join(name)
    };
    let before = &before;
    let whole_one = resumed(&|_| ());
    let copy = |name: &'static str| {
        move |checkpoint: &Path| {
            std::fs::copy(before(name), checkpoint.join(name)).unwrap();
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
        let position = read(before("state.json"))["position"].clone();
        assert_ne!(state["position"], position);
        state["position"] = position;
        std::fs::write(path, state.to_string()).unwrap();
    };
    let lost = [
        ("weights", resumed(&copy("weights.safetensors"))),
        ("optimizer", resumed(&empty)),
        (
            "optimizer of a step before",
            resumed(&copy("optimizer.bpk")),
        ),
        ("data order", resumed(&earlier_position)),
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
    let steps = "training.steps = 1";
    let (folder, _) = trained(opened, &[steps]);
    let other = config(opened, &folder, &[steps, "optimizer.learning_rate = 0.5"]);
    let error = failed(&other, &resume());
    has(&error, "optimizer differs");
    has(&error, "now:  learning_rate = 0.5");
    // A run that goes on for longer is the same run.
    let longer = config(opened, &folder, &["training.steps = 2"]);
    assert_eq!(train(&longer, &resume()).unwrap().steps, 2);
}

fn one_process_learns_in_a_folder_at_a_time(opened: &Opened) {
    // It would go on for long.
    let changes = ["training.steps = 200000", "training.checkpoint_every = 1"];
    let mut running = Running::begin(opened, &changes, silent);
    running.wait_for(|running| !running.steps().is_empty());
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
    succeeded(&running.again(&["--resume", "--set", "training.steps=1"]));
}
