//! Checkpoints that are damaged, and disks that are full.

use std::path::Path;

use zoo_backend::Opened;
use zoo_models::weights::Weights;
use zoo_spec::Draw;
use zoo_train::{TrainError, Trained, Which, average, train};

use crate::shared::{ends, has, starts};
use crate::support::{
    Folder, column, config, config_text, failed, quiet, resume, resume_from, said, seal, small,
    succeeded, trained, trials, unsuccessful, zoo_train,
};

// What depends on the device: whether weights are finite is asked there.
trials! {
    on_devices:
    non_finite_weights_replace_no_good_ones,
    non_finite_weights_of_a_file_are_not_used,
}

trials! {
    trials:
    any_byte_that_changed_is_noticed,
    each_command_names_its_own_flag_for_a_whole_one,
    a_run_ends_also_if_its_best_is_damaged,
    a_damaged_one_is_told_and_an_older_one_named,
    of_those_as_good_the_best_has_the_lowest_loss,
    the_last_and_the_best_are_kept,
    #[cfg(unix)]
    a_full_disk_leaves_the_older_one,
}

/// Whatever happens to a file of a checkpoint, it is not read, and the other one is named.
fn any_byte_that_changed_is_noticed(opened: &Opened) {
    let steps = ["training.steps = 2", "training.checkpoint_every = 1"];
    let (folder, _) = trained(opened, &steps);
    let checkpoints = folder.run().checkpoints();
    let mut draw = Draw::named("bytes");
    for name in [
        "weights.safetensors",
        "optimizer.bpk",
        "state.json",
        "checksums.json",
    ] {
        let path = checkpoints.folder_of(2).join(name);
        let whole = std::fs::read(&path).unwrap();
        for _ in 0..50 {
            let mut bytes = whole.clone();
            let at = draw.below(bytes.len());
            match draw.below(3) {
                0 => bytes[at] ^= 1 << draw.below(8),
                1 => bytes.truncate(at),
                _ => bytes.insert(at, b' ' + draw.below(90) as u8),
            }
            std::fs::write(&path, &bytes).unwrap();
            let same = name == "checksums.json" && is_same_json(&bytes, &whole);
            match checkpoints.read(2) {
                Ok(_) => assert!(same, "{name} changed at {at}, and was read"),
                Err(TrainError::Damaged { instead, .. }) => {
                    assert_eq!(instead.map(|it| it.whole), Some(1), "{name}, {at}");
                }
                Err(other) => panic!("{name}, {at}: {other}"),
            }
        }
        std::fs::write(&path, &whole).unwrap();
        checkpoints.read(2).unwrap();
    }
}

/// A space more between words of JSON changes nothing.
fn is_same_json(a: &[u8], b: &[u8]) -> bool {
    let read = |bytes| serde_json::from_slice::<serde_json::Value>(bytes).ok();
    read(a).is_some() && read(a) == read(b)
}

fn a_damaged_one_is_told_and_an_older_one_named(opened: &Opened) {
    let steps = ["training.steps = 4", "training.checkpoint_every = 2"];
    let (folder, config) = trained(opened, &steps);
    for name in ["weights.safetensors", "optimizer.bpk", "state.json"] {
        let path = folder.join(&format!("runs/small/checkpoints/step-00000004/{name}"));
        let good = damage(&path);
        let error = failed(&config, &resume());
        has(&error, "step-00000004 is damaged");
        has(&error, format!("{name} is not as it was written"));
        ends(
            &error,
            "\n  do: that of step 2 is whole: --step 2 goes on from it",
        );
        std::fs::write(&path, good).unwrap();
    }
    let sums = folder.join("runs/small/checkpoints/step-00000004/checksums.json");
    let good = std::fs::read(&sums).unwrap();
    for bad in ["", "{}", "[1]", "{\"state.json\": \"00000000\"}"] {
        std::fs::write(&sums, bad).unwrap();
        let error = failed(&config, &resume());
        assert!(error.contains("step-00000004 is damaged"), "{bad}: {error}");
    }
    std::fs::write(&sums, good).unwrap();
    assert_eq!(train(&config, &resume_from(2)).unwrap().steps, 4);
    let error = failed(&config, &resume_from(3));
    ends(&error, "has no checkpoint of step 3; it has those of 2, 4");
}

/// Changes a bit of a file. Returns what it was.
fn damage(path: &Path) -> Vec<u8> {
    let good = std::fs::read(path).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    std::fs::write(path, bad).unwrap();
    good
}

fn damage_step(folder: &Folder, step: usize) {
    let checkpoint = folder.run().checkpoints().folder_of(step);
    damage(&checkpoint.join("weights.safetensors"));
}

fn each_command_names_its_own_flag_for_a_whole_one(opened: &Opened) {
    let changes = [
        "training.steps = 8",
        "training.checkpoint_every = 2",
        "training.keep = 4",
    ];
    let (folder, _) = trained(opened, &changes);
    // The oldest: what is whole is newer.
    damage_step(&folder, 2);
    let run = folder.run();
    let error = Trained::open(run.path(), Which::Step(2), Some(opened.word), &[]).unwrap_err();
    let said = error.to_string();
    ends(
        &said,
        "\n  do: that of step 4 is whole: --checkpoint 4 takes it",
    );
    let said = average(&run, &[2, 6, 8]).unwrap_err().to_string();
    ends(&said, "--steps 6,8 leaves the damaged out");
    let said = average(&run, &[2]).unwrap_err().to_string();
    ends(&said, "--steps 4 takes it");
}

fn a_run_ends_also_if_its_best_is_damaged(opened: &Opened) {
    let changed = |folder: &Folder, seed: usize, steps: usize| {
        let changes = [
            &format!("run.seed = {seed}"),
            &format!("training.steps = {steps}"),
            "validation.every = 1",
            "validation.metric = \"loss\"",
            // Steps so large that more of them may well make it worse.
            "optimizer.learning_rate = 3.0",
            "schedule.warmup = 0",
        ];
        config(opened, folder, &changes)
    };
    // What is drawn differs from device to device: the first seed by which the first is the best.
    let seed = (1..30).find(|seed| {
        let whole = train(&changed(&Folder::new(), *seed, 4), &quiet());
        whole.unwrap().best.unwrap().step == 1
    });
    let (folder, seed) = (Folder::new(), seed.expect("one of them"));
    train(&changed(&folder, seed, 2), &quiet()).unwrap();
    damage_step(&folder, 1);
    let four = changed(&folder, seed, 4);
    let finished = train(&four, &resume()).unwrap();
    assert!(finished.test.is_some());
    let result = std::fs::read_to_string(finished.folder.file("result.json")).unwrap();
    has(&result, "\"checkpoint\": 4");
    let log = std::fs::read_to_string(finished.folder.file("log.txt")).unwrap();
    has(&log, "step-00000001 is damaged");
    has(&log, "the test is of the last weights instead");
}

fn the_last_and_the_best_are_kept(opened: &Opened) {
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
    let checkpoints = folder.run().checkpoints();
    let best = checkpoints.best().unwrap().unwrap();
    assert_eq!(Some(&best), finished.best.as_ref());
    let mut expected = vec![best.step, 5, 6];
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(checkpoints.steps().unwrap(), expected);
}

fn of_those_as_good_the_best_has_the_lowest_loss(opened: &Opened) {
    let folder = Folder::new();
    let changes = [
        "training.steps = 8",
        "validation.every = 2",
        "validation.metric = \"exact\"",
        // No text of the letters is written in so few steps.
        "optimizer.learning_rate = 1e-3",
        "schedule.warmup = 0",
    ];
    let finished = train(&config(opened, &folder, &changes), &quiet()).unwrap();
    let table = finished.folder.file("valid.csv");
    assert_eq!(column(&table, "exact"), [0.0; 4]);
    let losses = column(&table, "loss");
    let lowest = (0..4)
        .min_by(|a, b| losses[*a].total_cmp(&losses[*b]))
        .unwrap();
    assert!(lowest > 0, "it learns: {losses:?}");
    assert_eq!(finished.best.unwrap().step, 2 * (lowest + 1));
}

fn a_full_disk_leaves_the_older_one(opened: &Opened) {
    let every = "training.checkpoint_every = 2";
    let (folder, _) = trained(opened, &["training.steps = 2", every]);
    let text = config_text(opened, &folder, &["training.steps = 8", every]);
    let file = folder.write("small.toml", text);
    let path = file.to_str().unwrap();
    // No file may grow beyond this, as if the disk had so much room: less than weights take.
    let limited = format!(
        "trap '' XFSZ; ulimit -f 4; exec {} train {path} --plain --resume",
        env!("CARGO_BIN_EXE_zoo")
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &limited])
        .output()
        .unwrap();
    unsuccessful(&output);
    let text = said(&output);
    has(&text, "the checkpoint of step 4 could not be written");
    has(
        &text,
        "The checkpoint of step 2 is kept. Make room, then go on with --resume",
    );
    let checkpoints = folder.run().checkpoints();
    assert_eq!(checkpoints.steps().unwrap(), [2]);
    // With room again, it goes on.
    succeeded(&zoo_train(&file, &["--resume"]));
    assert!(checkpoints.steps().unwrap().ends_with(&[4, 6, 8]));
}

/// A rate by which the first step leaves weights that are finite, and the second does not.
const DIVERGES: [&str; 8] = [
    "training.steps = 6",
    "training.log_every = 6",
    "training.checkpoint_every = 1",
    "optimizer.kind = \"sgd\"",
    "optimizer.learning_rate = 1e30",
    "optimizer.clipping = \"none\"",
    "schedule.warmup = 0",
    "validation.metric = \"exact\"",
];

fn non_finite_weights_replace_no_good_ones(opened: &Opened) {
    let not_finite = "the weights are no longer finite after step 2 (";
    let changes = ["training.keep = 1", "validation.every = 6"];
    let (folder, config) = small(opened, &[&DIVERGES[..], &changes].concat());
    let error = failed(&config, &quiet());
    starts(&error, not_finite);
    ends(
        &error,
        "the checkpoint of step 1 can be used: --checkpoint 1 evaluates it, --resume --step 1 \
             goes on from it",
    );
    let run = folder.run();
    assert_eq!(run.checkpoints().steps().unwrap(), [1]);
    assert!(run.checkpoints().read(1).is_ok());

    // No text is right, as many as of any other weights: that is no best model.
    let changes = [&DIVERGES[..], &["validation.every = 1"]].concat();
    let (folder, config) = small(opened, &changes);
    starts(&failed(&config, &quiet()), not_finite);
    assert_eq!(folder.run().checkpoints().best().unwrap(), None);
}

/// As earlier versions wrote them.
fn non_finite_weights_of_a_file_are_not_used(opened: &Opened) {
    let steps = ["training.steps = 2", "training.checkpoint_every = 1"];
    let (folder, config) = trained(opened, &steps);
    let checkpoint = folder.run().checkpoints().folder_of(2);
    let path = checkpoint.join("weights.safetensors");
    let good = Weights::read(&path).unwrap();
    let keys: Vec<String> = good.keys().map(str::to_owned).collect();
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        // The last number of the last tensor.
        let tensors = keys.iter().enumerate().map(|(at, key)| {
            let data = good.get(key).unwrap().clone();
            let shape = data.shape().clone();
            let mut numbers: Vec<f32> = data.iter().collect();
            if at + 1 == keys.len() {
                *numbers.last_mut().unwrap() = bad;
            }
            (key.clone(), burn::tensor::TensorData::new(numbers, shape))
        });
        std::fs::remove_file(&path).unwrap();
        Weights::of_tensors(tensors).write(&path).unwrap();
        seal(&checkpoint);
        let error = failed(&config, &resume());
        let last = keys.last().unwrap();
        has(&error, format!("{last} has weights that are not finite"));
        ends(&error, "--step 1 goes on from it");
    }
}
