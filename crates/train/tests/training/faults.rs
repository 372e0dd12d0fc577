//! Every write, sync, rename and removal of a run fails once.

use std::path::Path;

use zoo_backend::Opened;
use zoo_config::Config;
use zoo_train::faults::{Armed, INJECTED};
use zoo_train::{Finished, RunFolder, TrainError, train};

use crate::resume::same;
use crate::shared::copy_folder;
use crate::support::{Folder, config, overwrite, quiet, resume, resume_from, trials};

// It is about what is on the disk, which does not depend on the device: on flex alone, where a run
// takes milliseconds and its result is the same bit for bit.
trials! {
    trials:
    a_new_run_survives_each_of_them,
    a_resumed_run_survives_each_of_them,
    an_overwritten_run_survives_each_of_them,
}

fn small(opened: &Opened, folder: &Folder, steps: usize, keep: usize) -> Config {
    let changes = [
        &format!("training.steps = {steps}"),
        "training.checkpoint_every = 1",
        &format!("training.keep = {keep}"),
        "training.log_every = 1",
        "validation.every = 2",
        "validation.metric = \"loss\"",
        "data.train_size = 12",
        "data.valid_size = 2",
        "data.test_size = 2",
    ];
    config(opened, folder, &changes)
}

/// The files by which two runs are compared, beside weights and numbers.
fn results(run: &Path) -> [String; 2] {
    ["best.json", "result.json"].map(|name| std::fs::read_to_string(run.join(name)).unwrap())
}

fn assert_same(opened: &Opened, whole: &Folder, folder: &Folder, fault: &str) {
    println!("{fault}");
    same(opened, whole, folder);
    let [whole, run] = [whole, folder].map(|folder| folder.join("runs/small"));
    assert_eq!(results(&whole), results(&run), "{fault}");
    let foreign = RunFolder::existing(&run).unwrap().foreign().unwrap();
    assert_eq!(foreign, None, "{fault}");
}

/// What a person sees, and what is left.
fn check_failure(error: &TrainError, run: &Path, fault: &str) {
    let text = error.to_string();
    assert!(text.contains(INJECTED), "{fault}: {text}");
    assert!(text.contains("runs/small"), "{fault}: {text}");
    if let Ok(run) = RunFolder::existing(run) {
        let checkpoints = run.checkpoints();
        for step in checkpoints.steps().unwrap() {
            if let Err(error) = checkpoints.read(step) {
                panic!("{fault}: {error}");
            }
        }
    }
}

/// Resumes, or does what the refusal recommends where there is nothing to resume from.
fn go_on(config: &Config, fault: &str) {
    let finished = match train(config, &resume()) {
        Err(TrainError::NoCheckpoint { .. }) => train(config, &overwrite()),
        Err(TrainError::NoRun { .. }) => train(config, &quiet()),
        finished => finished,
    };
    if let Err(error) = finished {
        panic!("{fault}: {error}");
    }
}

fn a_new_run_survives_each_of_them(opened: &Opened) {
    let whole = Folder::new();
    let armed = Armed::new(&whole.join(""), None);
    train(&small(opened, &whole, 3, 1), &quiet()).unwrap();
    let operations = armed.operations();
    drop(armed);
    for kind in ["create ", "write ", "sync ", "rename ", "remove "] {
        assert!(operations.iter().any(|it| it.starts_with(kind)), "{kind}");
    }
    let is_checkpoint = |it: &String| it.starts_with("rename ") && it.contains("/step-");
    let published = operations.iter().position(is_checkpoint);
    let published = published.expect("a run writes checkpoints");
    each_fault(
        &Folder::new(),
        |folder| small(opened, folder, 3, 1),
        |config| train(config, &quiet()),
        |config, error, number, fault| {
            let run = config.run.output.join("small");
            check_failure(&error, &run, fault);
            let steps = RunFolder::existing(&run).map(|run| run.checkpoints().steps());
            let has_some = steps.is_ok_and(|steps| !steps.unwrap().is_empty());
            assert!(has_some || number <= published, "{fault}");
            go_on(config, fault);
        },
        |folder, fault| assert_same(opened, &whole, folder, fault),
    );
}

/// A run that goes back to its first checkpoint.
fn a_resumed_run_survives_each_of_them(opened: &Opened) {
    let whole = Folder::new();
    train(&small(opened, &whole, 3, 3), &quiet()).unwrap();
    // Left behind by a process that was killed.
    let killed = Folder::new();
    copy_folder(&whole.join("runs"), &killed.join("runs"));
    killed.write("runs/small/checkpoints/partial-00000003/state.json", "{");
    killed.write("runs/small/metrics.jsonl.partial", "{");
    each_fault(
        &killed,
        |folder| small(opened, folder, 3, 3),
        |config| train(config, &resume_from(1)),
        |config, error, _, fault| {
            check_failure(&error, &config.run.output.join("small"), fault);
            go_on(config, fault);
        },
        |folder, fault| assert_same(opened, &whole, folder, fault),
    );
}

/// Lets each operation of a command fail in turn, in a copy of a folder: `recover` follows where
/// the command fails, and `check` in any case.
fn each_fault(
    original: &Folder,
    config: impl Fn(&Folder) -> Config,
    command: impl Fn(&Config) -> Result<Finished, TrainError>,
    recover: impl Fn(&Config, TrainError, usize, &str),
    check: impl Fn(&Folder, &str),
) {
    let mut number = 0;
    loop {
        let folder = Folder::new();
        copy_folder(&original.join(""), &folder.join(""));
        let config = config(&folder);
        let armed = Armed::new(&folder.join(""), Some(number));
        let finished = command(&config);
        let operations = armed.operations();
        drop(armed);
        let Some(operation) = operations.get(number) else {
            break;
        };
        let fault = format!("fault {number}: {operation}");
        match finished {
            // Only the log may be incomplete.
            Ok(_) => assert!(operation.ends_with("log.txt"), "{fault}"),
            Err(error) => recover(&config, error, number, &fault),
        }
        check(&folder, &fault);
        number += 1;
    }
    assert!(number > 40, "{number}");
}

/// Whatever is left of the old run is replaced by the same command.
fn an_overwritten_run_survives_each_of_them(opened: &Opened) {
    let [old, whole] = [Folder::new(), Folder::new()];
    train(&small(opened, &old, 3, 3), &quiet()).unwrap();
    train(&small(opened, &whole, 1, 3), &quiet()).unwrap();
    let again = |config: &Config| train(config, &overwrite());
    each_fault(
        &old,
        |folder| small(opened, folder, 1, 3),
        again,
        |config, error, _, fault| {
            assert!(error.to_string().contains(INJECTED), "{fault}: {error}");
            again(config).unwrap_or_else(|error| panic!("{fault}: {error}"));
        },
        |folder, fault| {
            assert_same(opened, &whole, folder, fault);
            assert_eq!(folder.run().checkpoints().steps().unwrap(), [1], "{fault}");
        },
    );
}
