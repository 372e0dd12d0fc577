//! `cargo xtask hub`: its Python tests, and that training reads what it writes. A module stands
//! in for the package `datasets`.

use std::path::{Path, PathBuf};
use std::process::Command;

use zoo_config::{Config, Data, Files};
use zoo_data::{LabelledText, ParallelText};

use crate::{Folder, Said};

/// Where the script and its stand-in are.
pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hub")
}

impl Folder {
    /// The config that the printed section makes with a model. Its files are in this folder.
    fn config(&self, arguments: &str, model: &str) -> Data {
        let to = self.at("data");
        let said = self.says(&format!("hub reviews --to {to} {arguments}"));
        said.is(0, "[data]");
        let text = format!("{}\n[model]\nkind = \"{model}\"\n", said.stdout);
        let config = Config::parse("a.toml", &text, &[]);
        config
            .unwrap_or_else(|error| panic!("{error}\n{text}"))
            .data
    }
}

#[test]
fn the_tests_in_python_pass() {
    let mut command = Command::new("python3");
    command.arg(scripts().join("test_hub.py"));
    Said::of(command.env("PYTHONDONTWRITEBYTECODE", "1")).is(0, "");
}

#[test]
fn texts_and_classes_are_read_by_training() {
    let folder = Folder::new();
    let flags = "--text text --label label --split test=test.hard";
    let data = folder.config(flags, "classifier");
    let Data::Labelled(data) = data else {
        panic!("{data:?}")
    };
    let read = |path: &Path| {
        let text = LabelledText::json_lines(path, &data.label_field, &data.text_field);
        let read = text.with_allowed_bad(0.0).read().expect("it was written");
        let examples = read.examples.into_iter();
        examples
            .map(|example| (example.label, example.text))
            .collect::<Vec<_>>()
    };
    let good = ("1".to_owned(), "A good film.\nReally\tgood.".to_owned());
    let bad = ("0".to_owned(), "Not \"good\".".to_owned());
    assert_eq!(read(&data.train), [good.clone(), bad.clone()]);
    assert_eq!(
        read(data.valid.as_deref().expect("a split")),
        [bad, good.clone()]
    );
    assert_eq!(read(data.test.as_deref().expect("a split")), [good]);
}

#[test]
fn translations_are_read_by_training() {
    let folder = Folder::new();
    let flags = "--source translation_zh --target translation_en --split valid=";
    let data = folder.config(flags, "transformer");
    let Data::Parallel(data) = data else {
        panic!("{data:?}")
    };
    assert!(data.valid.is_none());
    let Files::One(train) = &data.train else {
        panic!("{:?}", data.train)
    };
    let text = ParallelText::tsv(train).with_allowed_bad(0.0);
    let read = text.read().expect("it was written").examples;
    let pairs: Vec<_> = (read.iter())
        .map(|pair| (pair.source.as_str(), pair.target.as_str()))
        .collect();
    assert_eq!(pairs, [("好久不见", "long time no see"), ("你好", "hello")]);
}

#[test]
fn running_text_is_read_by_training() {
    let folder = Folder::new();
    let data = folder.config("--text text", "gpt");
    let Data::Plain(data) = data else {
        panic!("{data:?}")
    };
    let text = zoo_data::plain_text(&data.train).expect("it was written");
    assert_eq!(text, "A good film.\nReally\tgood.\nNot \"good\".\n");
}

#[test]
fn what_was_written_stays_unless_it_may_be_replaced() {
    let folder = Folder::new();
    let command = "hub reviews --subset s --to data";
    let section = "[data]\nkind = \"labelled\"\ntrain = \"data/train.jsonl\"\n\
                   valid = \"data/valid.jsonl\"\n\
                   label_field = \"label\"\ntext_field = \"text\"\n";
    assert_eq!(folder.says(command).stdout, section);
    let there = "data/train.jsonl is there already";
    folder.says(command).is(1, there);
    folder.says(&format!("{command} --overwrite")).is(0, "");
}
