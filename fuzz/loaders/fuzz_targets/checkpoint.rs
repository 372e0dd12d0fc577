//! Checkpoints of which one file is anything: it is read, or an error says where it lies and
//! that it is damaged; and if it is, the older one is named as whole.

#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use burn::tensor::TensorData;
use libfuzzer_sys::fuzz_target;
use zoo_fuzz::{choice, file};
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

/// Writes the files of a checkpoint, and checksums that fit, unless these are given.
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

/// The files of one that is whole, and the run it is the older one of.
fn whole() -> &'static (RunFolder, BTreeMap<&'static str, Vec<u8>>) {
    static WHOLE: OnceLock<(RunFolder, BTreeMap<&'static str, Vec<u8>>)> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let config = file("config.toml", b"");
        let path = file("whole.safetensors", b"");
        let numbers = TensorData::new(vec![1.0_f32, 2.0], [2]);
        let weights = Weights::of_tensors([("a".to_owned(), numbers)]);
        weights.replace(&path).expect("weights");
        let run = RunFolder::existing(config.parent().expect("a folder")).expect("a run");
        let files = BTreeMap::from([
            (FILES[0], fs::read(path).expect("weights")),
            (FILES[1], b"whatever Burn wrote".to_vec()),
            (FILES[2], STATE.into()),
        ]);
        write(&run.checkpoints().folder_of(1), &files);
        run.checkpoints().read(1).expect("a whole one");
        (run, files)
    })
}

fuzz_target!(|input: &[u8]| {
    let Some((which, bytes)) = choice(input) else {
        return;
    };
    let (run, files) = whole();
    let mut files = files.clone();
    files.insert(FILES[which % 4], bytes.to_vec());
    let folder = run.checkpoints().folder_of(2);
    write(&folder, &files);
    match run.checkpoints().read(2) {
        Ok(_) => {}
        Err(TrainError::Damaged {
            folder: said,
            why,
            instead,
        }) => {
            assert_eq!(said, folder);
            assert!(!why.is_empty());
            assert_eq!(instead.map(|it| it.whole), Some(1));
        }
        Err(other) => panic!("{other}"),
    }
});
