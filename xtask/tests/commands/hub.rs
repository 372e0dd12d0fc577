//! `cargo xtask hub`: its Python tests, and reading its output for training. A fake module replaces
//! the package `datasets`.

use std::path::{Path, PathBuf};
use std::process::Command;

use zoo_config::{Config, Data, Files};
use zoo_data::{LabelledText, ParallelText};

use crate::{Folder, Output};

/// The folder of hub.py and the fake module.
pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hub")
}

impl Folder {
    /// Downloads into this folder, and parses the printed section with a model.
    fn download(&self, arguments: &str, model: &str) -> Data {
        let to = self.file_path("data");
        let output = self.run(&format!("hub reviews --to {to} {arguments}"));
        output.assert(0, "[data]");
        let text = format!("{}\n[model]\nkind = \"{model}\"\n", output.stdout);
        let config = Config::parse("a.toml", &text, &[]);
        let config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
        config.data
    }
}

#[test]
fn python_tests_pass() {
    let mut command = Command::new("python3");
    command.arg(scripts().join("test_hub.py"));
    Output::from_command(command.env("PYTHONDONTWRITEBYTECODE", "1")).assert(0, "");
}

#[test]
fn labelled_text() {
    let folder = Folder::new();
    let flags = "--text text --label label --split test=test.hard";
    let Data::Labelled(data) = folder.download(flags, "classifier") else {
        panic!("not labelled")
    };
    let (good, bad) = ("A good film.\nReally\tgood.", "Not \"good\".");
    for (path, expected) in [
        (Some(&data.train), &[("1", good), ("0", bad)][..]),
        (data.valid.as_ref(), &[("0", bad), ("1", good)]),
        (data.test.as_ref(), &[("1", good)]),
    ] {
        let path = path.expect("a split");
        let text = LabelledText::json_lines(path, &data.label_field, &data.text_field);
        let read = text.with_max_malformed(0.0).read().expect("written data");
        let examples: Vec<_> = (read.examples.iter())
            .map(|example| (example.label.as_str(), example.text.as_str()))
            .collect();
        assert_eq!(examples, expected);
    }
}

#[test]
fn parallel_text() {
    let folder = Folder::new();
    let flags = "--source translation_zh --target translation_en --split valid=";
    let Data::Parallel(data) = folder.download(flags, "transformer") else {
        panic!("not parallel")
    };
    assert!(data.valid.is_none());
    let Files::One(train) = &data.train else {
        panic!("{:?}", data.train)
    };
    let text = ParallelText::tsv(train).with_max_malformed(0.0);
    let read = text.read().expect("written data").examples;
    let pairs: Vec<_> = (read.iter())
        .map(|pair| (pair.source.as_str(), pair.target.as_str()))
        .collect();
    assert_eq!(pairs, [("好久不见", "long time no see"), ("你好", "hello")]);
}

#[test]
fn plain_text() {
    let folder = Folder::new();
    let Data::Plain(data) = folder.download("--text text", "gpt") else {
        panic!("not plain")
    };
    let text = zoo_data::plain_text(&data.train).expect("written data");
    assert_eq!(text, "A good film.\nReally\tgood.\nNot \"good\".\n");
}

#[test]
fn existing_files_are_not_overwritten_by_default() {
    let folder = Folder::new();
    let command = "hub reviews --subset s --to data";
    let section = "[data]\nkind = \"labelled\"\ntrain = \"data/train.jsonl\"\n\
                   valid = \"data/valid.jsonl\"\n\
                   label_field = \"label\"\ntext_field = \"text\"\n";
    assert_eq!(folder.run(command).stdout, section);
    let output = folder.run(command);
    output.assert(1, "data/train.jsonl already exists");
    folder.run(&format!("{command} --overwrite")).assert(0, "");
}
