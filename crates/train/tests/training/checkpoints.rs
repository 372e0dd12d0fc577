//! Checkpoints that are damaged, and disks that are full.

use libtest_mimic::Trial;
use zoo_backend::Opened;
use zoo_train::{RunFolder, TrainOptions, train};

use crate::support::{Folder, config, config_text, said, zoo};

pub(crate) fn trials(opened: &Opened) -> Vec<Trial> {
    let [damaged, kept, full] = [opened.clone(), opened.clone(), opened.clone()];
    let mut trials = vec![
        Trial::test(
            "checkpoints::a_damaged_one_is_told_and_an_older_one_named",
            move || {
                a_damaged_one(&damaged);
                Ok(())
            },
        ),
        Trial::test("checkpoints::the_last_and_the_best_are_kept", move || {
            the_last_and_the_best(&kept);
            Ok(())
        }),
    ];
    if cfg!(unix) {
        trials.push(Trial::test(
            "checkpoints::a_full_disk_leaves_the_older_one",
            move || {
                a_full_disk(&full);
                Ok(())
            },
        ));
    }
    trials
}

fn quiet() -> TrainOptions {
    TrainOptions {
        quiet: true,
        ..TrainOptions::default()
    }
}

fn a_damaged_one(opened: &Opened) {
    let folder = Folder::new();
    let steps = ["training.steps = 4", "training.checkpoint_every = 2"];
    let config = config(opened, &folder, &steps);
    train(&config, &quiet()).unwrap();
    for name in ["weights.safetensors", "optimizer.bpk", "state.json"] {
        let path = folder.join(&format!("runs/small/checkpoints/step-00000004/{name}"));
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        std::fs::write(&path, bad).unwrap();
        let resume = TrainOptions {
            resume: true,
            ..quiet()
        };
        let error = train(&config, &resume).unwrap_err().to_string();
        assert!(error.contains("step-00000004 is damaged"), "{error}");
        assert!(
            error.contains(&format!("{name} is not as it was written")),
            "{error}"
        );
        assert!(
            error.contains("That of step 2 is whole: --step 2 takes it"),
            "{error}"
        );
        std::fs::write(&path, good).unwrap();
    }
    let sums = folder.join("runs/small/checkpoints/step-00000004/checksums.json");
    let good = std::fs::read(&sums).unwrap();
    for bad in ["", "{}", "[1]", "{\"state.json\": \"00000000\"}"] {
        std::fs::write(&sums, bad).unwrap();
        let resume = TrainOptions {
            resume: true,
            ..quiet()
        };
        let error = train(&config, &resume).unwrap_err().to_string();
        assert!(error.contains("step-00000004 is damaged"), "{bad}: {error}");
    }
    std::fs::write(&sums, good).unwrap();
    let resume = TrainOptions {
        resume: true,
        step: Some(2),
        ..quiet()
    };
    assert_eq!(train(&config, &resume).unwrap().steps, 4);
    let missing = TrainOptions {
        resume: true,
        step: Some(3),
        ..quiet()
    };
    let error = train(&config, &missing).unwrap_err().to_string();
    assert!(
        error.ends_with("has no checkpoint of step 3; it has those of 2, 4"),
        "{error}"
    );
}

fn the_last_and_the_best(opened: &Opened) {
    let folder = Folder::new();
    let changes = [
        "training.steps = 6",
        "training.checkpoint_every = 1",
        "training.keep = 2",
        "validation.every = 1",
        "validation.metric = \"loss\"",
        // So large a step that the first is the best.
        "optimizer.learning_rate = 3.0",
        "schedule.warmup = 0",
    ];
    let finished = train(&config(opened, &folder, &changes), &quiet()).unwrap();
    let checkpoints = RunFolder::existing(&folder.join("runs/small"))
        .unwrap()
        .checkpoints();
    let best = checkpoints.best().unwrap();
    assert_eq!(Some(&best), finished.best.as_ref());
    let mut expected = vec![best.step, 5, 6];
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(checkpoints.steps(), expected);
}

fn a_full_disk(opened: &Opened) {
    let folder = Folder::new();
    let changes = ["training.steps = 8", "training.checkpoint_every = 2"];
    let path = folder.write("small.toml", config_text(opened, &folder, &changes));
    let path = path.to_str().unwrap();
    let config = config(
        opened,
        &folder,
        &["training.steps = 2", "training.checkpoint_every = 2"],
    );
    train(&config, &quiet()).unwrap();
    // No file may grow beyond this, as if the disk had so much room: less than weights take.
    let limited = format!(
        "trap '' XFSZ; ulimit -f 4; exec {} train {path} --plain --resume",
        env!("CARGO_BIN_EXE_zoo")
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &limited])
        .output()
        .unwrap();
    let text = said(&output);
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains("the checkpoint of step 4 could not be written"),
        "{text}"
    );
    assert!(
        text.contains("The checkpoint of step 2 is kept. Make room, then go on with --resume"),
        "{text}"
    );
    let checkpoints = RunFolder::existing(&folder.join("runs/small"))
        .unwrap()
        .checkpoints();
    assert_eq!(checkpoints.steps(), [2]);
    // With room again, it goes on.
    let output = zoo(&["train", path, "--plain", "--resume"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(checkpoints.steps().ends_with(&[4, 6, 8]));
}
