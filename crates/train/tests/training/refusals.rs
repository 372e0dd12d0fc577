//! What cannot be trained is said before anything slow starts, and leaves nothing behind.

use std::io::Write;

use libtest_mimic::Trial;
use zoo_backend::Opened;
use zoo_train::train;

use crate::shared::has;
use crate::support::{
    Folder, config, config_of, config_text, failed, overwrite, quiet, resume, said, trials, zoo,
};

pub(crate) fn trials(opened: &Opened) -> Vec<Trial> {
    trials!(
        opened,
        "refusals",
        [
            a_run_that_is_there_is_left_alone,
            files_that_are_wrong_are_named,
            a_config_that_cannot_be_is_told_in_lines,
        ]
    )
}

fn a_run_that_is_there_is_left_alone(opened: &Opened) {
    let folder = Folder::new();
    let config = config(opened, &folder, &["training.steps = 1"]);
    let error = failed(&config, &resume());
    has(
        &error,
        "is no folder of a run: there is no config.toml in it",
    );
    train(&config, &quiet()).unwrap();
    let mark = folder.write("runs/small/mark", "mine");
    let error = failed(&config, &quiet());
    has(
        &error,
        "is there already\n  do: --resume goes on with it, --set run.name=OTHER",
    );
    let error = failed(&config, &overwrite());
    has(&error, "mark was not written by zoo");
    assert!(mark.is_file());
    std::fs::remove_file(mark).unwrap();
    let error = failed(&config, &quiet());
    has(&error, "--overwrite deletes it");
    train(&config, &overwrite()).unwrap();
    // A folder of something else is nobody's to remove.
    std::fs::remove_file(folder.join("runs/small/config.toml")).unwrap();
    for options in [quiet(), overwrite()] {
        let error = failed(&config, &options);
        has(&error, "so it is not overwritten");
    }
}

fn files_that_are_wrong_are_named(opened: &Opened) {
    let folder = Folder::new();
    let refused = |data: &str, model: &str, expected: &str| {
        let sections = format!("data = {data}\nmodel.kind = \"{model}\"");
        let config = config_of(opened, &folder, "wrong", &sections);
        let error = failed(&config, &quiet());
        has(&error, expected);
        assert!(
            !folder.join("runs").exists(),
            "a run that never was has no folder"
        );
    };
    let path = |name: &str| folder.join(name).display().to_string();
    let plain = |name: &str| format!("{{ kind = \"plain\", train = {:?} }}", path(name));
    refused(&plain("nowhere.txt"), "gpt", "nowhere.txt");
    folder.write("latin.txt", b"caf\xe9 au lait");
    refused(&plain("latin.txt"), "gpt", "latin.txt");
    folder.write("empty.txt", "");
    refused(&plain("empty.txt"), "gpt", "empty.txt");
    folder.write("short.txt", "too short");
    refused(&plain("short.txt"), "gpt", "a window of 128 needs 129");

    folder.write("train.tsv", "good\tfine film\nbad\tdull film\n".repeat(4));
    folder.write("valid.tsv", "ugly\tno film\n");
    let unseen = format!(
        "{{ kind = \"labelled\", train = {:?}, valid = {:?} }}",
        path("train.tsv"),
        path("valid.tsv")
    );
    refused(&unseen, "classifier", "ugly");
    folder.write("broken.tsv", "good\tfine film\nno tab here\n".repeat(4));
    let broken = format!(
        "{{ kind = \"labelled\", train = {:?} }}",
        path("broken.tsv")
    );
    refused(&broken, "classifier", "broken.tsv, line 2");

    folder.write(
        "long.tsv",
        format!("a b\tc d\n{}\tx\n", "a ".repeat(40)).repeat(6),
    );
    let long = format!("{{ kind = \"parallel\", train = {:?} }}", path("long.tsv"));
    let sections = format!(
        "data = {long}\ntokenizer.kind = \"word\"\n\
         model = {{ kind = \"transformer\", positions = {{ kind = \"learned\", longest = 8 }} }}"
    );
    let config = config_of(opened, &folder, "long", &sections);
    let error = failed(&config, &quiet());
    has(
        &error,
        "has an example of 40 tokens, and the model has 8 places",
    );

    let archive = folder.join("slip.zip");
    std::fs::write(&archive, zip_with("../../outside.txt", "text")).unwrap();
    let slip = format!(
        "{{ kind = \"labelled\", train = {:?}, format = \"folders\" }}",
        path("slip.zip")
    );
    refused(&slip, "classifier", "outside.txt");
}

/// An archive of one stored file of any name, byte by byte: libraries refuse to write such ones.
fn zip_with(name: &str, text: &str) -> Vec<u8> {
    let crc = crc32fast::hash(text.as_bytes()).to_le_bytes();
    let [size, length] = [text.len() as u32, name.len() as u32];
    let mut bytes = trials!(opened, "refusals", []);
    let common = |bytes: &mut Vec<u8>| {
        // Version 2.0, no flags, stored, no time.
        bytes.extend([20, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(crc);
        bytes.extend(size.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend((length as u16).to_le_bytes());
        bytes.extend([0, 0]);
    };
    bytes.extend(b"PK\x03\x04");
    common(&mut bytes);
    bytes.write_all(name.as_bytes()).unwrap();
    bytes.write_all(text.as_bytes()).unwrap();
    let directory = bytes.len() as u32;
    bytes.extend(b"PK\x01\x02\x14\x00");
    common(&mut bytes);
    bytes.extend([0; 14]);
    bytes.write_all(name.as_bytes()).unwrap();
    let of_directory = bytes.len() as u32 - directory;
    bytes.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    bytes.extend(of_directory.to_le_bytes());
    bytes.extend(directory.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

fn a_config_that_cannot_be_is_told_in_lines(opened: &Opened) {
    let folder = Folder::new();
    let text = config_text(opened, &folder, &[]).replace("\"transformer\"", "\"gpt\"");
    let path = folder.write("wrong.toml", text);
    let output = zoo(&["train", path.to_str().unwrap()]).output().unwrap();
    let text = said(&output);
    assert!(!output.status.success(), "{text}");
    has(&text, "wrong.toml:");
    assert!(!folder.join("runs").exists());

    let text = "[data]\nkind = \"plain\"\ntrain = \"no/play.txt\"\n[model]\nkind = \"gpt\"\n";
    let path = folder.write("missing.toml", text);
    let output = zoo(&["train", path.to_str().unwrap()]).output().unwrap();
    let text = said(&output);
    let here = std::env::current_dir().unwrap();
    let expected = format!(
        "{}:3:9: data.train: there is no no/play.txt in {}\n  do: put the data there",
        path.display(),
        here.display()
    );
    has(&text, &expected);
    assert!(!text.contains("device:"), "none is opened: {text}");

    let path = folder.write("small.toml", config_text(opened, &folder, &[]));
    let path = path.to_str().unwrap();
    let output = zoo(&["train", path, "--set", "model.layrs=4"])
        .output()
        .unwrap();
    assert!(
        said(&output).contains("layers"),
        "the nearest key: {}",
        said(&output)
    );
    let output = zoo(&["train", path, "--set", "model.layers=4", "--print-config"])
        .output()
        .unwrap();
    assert!(output.status.success());
    has(&said(&output), "layers = 4");
    assert!(
        said(&output).contains("label_smoothing = 0.0"),
        "every default: {}",
        said(&output)
    );
}
