//! Checkpoints with one arbitrary file: they are read, or reported as damaged with their folder and
//! the older intact checkpoint.

#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use burn::tensor::TensorData;
use libfuzzer_sys::fuzz_target;
use zoo_fuzz::{choice, temp_file};
use zoo_models::weights::Weights;
use zoo_train::{RunFolder, TrainError};

const FILES: [&str; 4] = [
    "weights.safetensors",
    "optimizer.bpk",
    "state.json",
    "checksums.json",
];

const STATE: &str = r#"{"step":1,"position":{"epoch":0,"batch":3},"best":null,"waited":0,
    "falls":{"count":0,"waited":0},"scale":null,"seconds":1.5,"parameters":{"a":7}}"#;

/// Writes the files of a checkpoint, with matching checksums unless they are among the files.
fn write(folder: &Path, files: &BTreeMap<&str, Vec<u8>>) {
    fs::create_dir_all(folder).expect("a folder");
    let mut sums = BTreeMap::new();
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).expect("a file");
        sums.insert(*name, format!("{:08x}", crc32fast::hash(bytes)));
    }
    if !files.contains_key(FILES[3]) {
        let text = serde_json::to_string(&sums).expect("text");
        fs::write(folder.join(FILES[3]), text).expect("a file");
    }
}

/// A run with an intact checkpoint at step 1, and the files of that checkpoint.
fn intact() -> &'static (RunFolder, BTreeMap<&'static str, Vec<u8>>) {
    static INTACT: OnceLock<(RunFolder, BTreeMap<&'static str, Vec<u8>>)> = OnceLock::new();
    INTACT.get_or_init(|| {
        let config = temp_file("config.toml", b"");
        let path = temp_file("intact.safetensors", b"");
        let data = TensorData::new(vec![1.0_f32, 2.0], [2]);
        let weights = Weights::from_tensors([("a".to_owned(), data)]);
        weights.replace(&path).expect("weights");
        let run = RunFolder::open(config.parent().expect("a folder")).expect("a run");
        let files = BTreeMap::from([
            (FILES[0], fs::read(path).expect("weights")),
            (FILES[1], b"arbitrary".to_vec()),
            (FILES[2], STATE.into()),
        ]);
        write(&run.checkpoints().checkpoint_dir(1), &files);
        run.checkpoints().read(1).expect("an intact checkpoint");
        (run, files)
    })
}

fuzz_target!(|input: &[u8]| {
    let Some((which, bytes)) = choice(input) else {
        return;
    };
    let (run, files) = intact();
    let mut files = files.clone();
    files.insert(FILES[which % 4], bytes.to_vec());
    let folder = run.checkpoints().checkpoint_dir(2);
    write(&folder, &files);
    match run.checkpoints().read(2) {
        Ok(_) => {}
        Err(TrainError::Damaged {
            folder: damaged,
            reason,
            fallback,
        }) => {
            assert_eq!(damaged, folder);
            assert!(!reason.is_empty());
            assert_eq!(fallback.map(|it| it.step), Some(1));
        }
        Err(other) => panic!("{other}"),
    }
});
