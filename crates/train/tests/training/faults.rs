//! Fault injection: every write, sync, rename and removal of a run fails once.

use std::path::Path;

use zoo_backend::OpenDevice;
use zoo_config::Config;
use zoo_train::faults::{FaultInjection, INJECTED};
use zoo_train::{RunFolder, TrainError, TrainOutput, train};

use crate::resume::assert_same_run;
use crate::support::*;

trials! {
    trials(OpenDevice):
    a_new_run_survives_every_fault,
    a_resumed_run_survives_every_fault,
    an_overwritten_run_survives_every_fault,
}

fn small_config(opened: &OpenDevice, folder: &TempDir, steps: usize, keep: usize) -> Config {
    let changes = [
        &format!("training.steps = {steps}"),
        "training.checkpoint_every = 1",
        &format!("training.keep_checkpoints = {keep}"),
        "training.log_every = 1",
        "validation.every = 2",
        "validation.metric = \"loss\"",
        "data.train_size = 12",
        "data.valid_size = 2",
        "data.test_size = 2",
    ];
    config(opened, folder, &changes)
}

/// The files that are compared besides weights and metrics.
fn results(run: &Path) -> [String; 2] {
    ["best.json", "result.json"].map(|name| std::fs::read_to_string(run.join(name)).unwrap())
}

fn assert_recovered(opened: &OpenDevice, reference: &TempDir, folder: &TempDir, fault: &str) {
    println!("{fault}");
    assert_same_run(opened, reference, folder);
    let [reference, run] = [reference, folder].map(|folder| folder.join("runs/small"));
    assert_eq!(results(&reference), results(&run), "{fault}");
    let foreign = RunFolder::open(&run).unwrap().foreign().unwrap();
    assert_eq!(foreign, None, "{fault}");
}

/// The error names the fault and the folder, and all remaining checkpoints are intact.
fn check_failure(error: &TrainError, run: &Path, fault: &str) {
    let text = error.to_string();
    assert!(text.contains(INJECTED), "{fault}: {text}");
    assert!(text.contains("runs/small"), "{fault}: {text}");
    if let Ok(run) = RunFolder::open(run) {
        let checkpoints = run.checkpoints();
        for step in checkpoints.steps().unwrap() {
            if let Err(error) = checkpoints.read(step) {
                panic!("{fault}: {error}");
            }
        }
    }
}

/// Resumes, or starts over as the error recommends if there is no checkpoint.
fn resume_or_restart(config: &Config, fault: &str) {
    let output = match train(config, &resume()) {
        Err(TrainError::NoCheckpoint { .. }) => train(config, &overwrite()),
        Err(TrainError::NoRun { .. }) => train(config, &quiet()),
        output => output,
    };
    if let Err(error) = output {
        panic!("{fault}: {error}");
    }
}

fn a_new_run_survives_every_fault(opened: &OpenDevice) {
    let reference = TempDir::new();
    let injection = FaultInjection::new(&reference.join(""), None);
    train(&small_config(opened, &reference, 3, 1), &quiet()).unwrap();
    let operations = injection.operations();
    drop(injection);
    for kind in ["create ", "write ", "sync ", "rename ", "remove "] {
        assert!(operations.iter().any(|it| it.starts_with(kind)), "{kind}");
    }
    let is_checkpoint = |it: &String| it.starts_with("rename ") && it.contains("/step-");
    let published = operations.iter().position(is_checkpoint);
    let published = published.expect("a run writes checkpoints");
    each_fault(
        &TempDir::new(),
        |folder| small_config(opened, folder, 3, 1),
        |config| train(config, &quiet()),
        |config, error, number, fault| {
            let run = config.run.output.join("small");
            check_failure(&error, &run, fault);
            let steps = RunFolder::open(&run).map(|run| run.checkpoints().steps());
            let has_some = steps.is_ok_and(|steps| !steps.unwrap().is_empty());
            assert!(has_some || number <= published, "{fault}");
            resume_or_restart(config, fault);
        },
        |folder, fault| assert_recovered(opened, &reference, folder, fault),
    );
}

/// Resumes from the first checkpoint.
fn a_resumed_run_survives_every_fault(opened: &OpenDevice) {
    let reference = TempDir::new();
    train(&small_config(opened, &reference, 3, 3), &quiet()).unwrap();
    // Left behind by a killed process.
    let killed = TempDir::new();
    copy_folder(&reference.join("runs"), &killed.join("runs"));
    killed.write("runs/small/checkpoints/partial-00000003/state.json", "{");
    killed.write("runs/small/metrics.jsonl.partial", "{");
    each_fault(
        &killed,
        |folder| small_config(opened, folder, 3, 3),
        |config| train(config, &resume_from(1)),
        |config, error, _, fault| {
            check_failure(&error, &config.run.output.join("small"), fault);
            resume_or_restart(config, fault);
        },
        |folder, fault| assert_recovered(opened, &reference, folder, fault),
    );
}

/// Runs a command in copies of a folder, with another operation failing each time. `recover` is
/// called if the command fails, `check` in any case.
fn each_fault(
    original: &TempDir,
    config: impl Fn(&TempDir) -> Config,
    command: impl Fn(&Config) -> Result<TrainOutput, TrainError>,
    recover: impl Fn(&Config, TrainError, usize, &str),
    check: impl Fn(&TempDir, &str),
) {
    let mut number = 0;
    loop {
        let folder = TempDir::new();
        copy_folder(&original.join(""), &folder.join(""));
        let config = config(&folder);
        let injection = FaultInjection::new(&folder.join(""), Some(number));
        let output = command(&config);
        let operations = injection.operations();
        drop(injection);
        let Some(operation) = operations.get(number) else {
            break;
        };
        let fault = format!("fault {number}: {operation}");
        match output {
            // Only a failure to write the log is ignored.
            Ok(_) => assert!(operation.ends_with("log.txt"), "{fault}"),
            Err(error) => recover(&config, error, number, &fault),
        }
        check(&folder, &fault);
        number += 1;
    }
    assert!(number > 40, "{number}");
}

/// The same command replaces whatever is left of the old run.
fn an_overwritten_run_survives_every_fault(opened: &OpenDevice) {
    let [old, reference] = [TempDir::new(), TempDir::new()];
    train(&small_config(opened, &old, 3, 3), &quiet()).unwrap();
    train(&small_config(opened, &reference, 1, 3), &quiet()).unwrap();
    let again = |config: &Config| train(config, &overwrite());
    each_fault(
        &old,
        |folder| small_config(opened, folder, 1, 3),
        again,
        |config, error, _, fault| {
            assert!(error.to_string().contains(INJECTED), "{fault}: {error}");
            again(config).unwrap_or_else(|error| panic!("{fault}: {error}"));
        },
        |folder, fault| {
            assert_recovered(opened, &reference, folder, fault);
            assert_eq!(folder.run().checkpoints().steps().unwrap(), [1], "{fault}");
        },
    );
}
