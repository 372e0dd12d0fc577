//! `cargo xtask hub`: its Python tests, and that training reads what it writes. A module stands
//! in for the package `datasets`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use zoo_config::{Config, Data, Files};
use zoo_data::{LabelledText, ParallelText};

use crate::{Folder, fails, stderr, stdout, xtask};

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hub")
}

impl Folder {
    fn hub(&self, arguments: &[&str]) -> Output {
        xtask(&[&["hub"], arguments].concat())
            .current_dir(&self.0)
            .env("PYTHONPATH", scripts().join("fake"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .expect("it starts")
    }

    /// The config that the printed section makes with a model. Its files are in this folder.
    fn config(&self, arguments: &[&str], model: &str) -> Data {
        let to = self.0.join("data").display().to_string();
        let output = self.hub(&[&["reviews", "--to", &to], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        let section = stdout(&output);
        let text = format!("{section}\n[model]\nkind = \"{model}\"\n");
        let config = Config::parse("a.toml", &text, &[]);
        config
            .unwrap_or_else(|error| panic!("{error}\n{text}"))
            .data
    }
}

#[test]
fn the_tests_in_python_pass() {
    let output = Command::new("python3")
        .arg(scripts().join("test_hub.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 starts");
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn texts_and_classes_are_read_by_training() {
    let folder = Folder::new("labelled");
    let flags = ["--text", "text", "--label", "label"];
    let data = folder.config(
        &[&flags[..], &["--split", "test=test.hard"]].concat(),
        "classifier",
    );
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
    let folder = Folder::new("pairs");
    let fields = ["--source", "translation_zh", "--target", "translation_en"];
    let data = folder.config(
        &[&fields[..], &["--split", "valid="]].concat(),
        "transformer",
    );
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
    let folder = Folder::new("plain");
    let data = folder.config(&["--text", "text"], "gpt");
    let Data::Plain(data) = data else {
        panic!("{data:?}")
    };
    let text = zoo_data::plain_text(&data.train).expect("it was written");
    assert_eq!(text, "A good film.\nReally\tgood.\nNot \"good\".\n");
}

#[test]
fn what_was_written_stays_unless_it_may_be_replaced() {
    let folder = Folder::new("stays");
    let arguments = ["reviews", "--subset", "s", "--to", "data"];
    let output = folder.hub(&arguments);
    let section = "[data]\nkind = \"labelled\"\ntrain = \"data/train.jsonl\"\n\
                   valid = \"data/valid.jsonl\"\n\
                   label_field = \"label\"\ntext_field = \"text\"\n";
    assert_eq!(stdout(&output), section);
    let output = folder.hub(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("data/train.jsonl is there already"), "{said}");
    let output = folder.hub(&[&arguments[..], &["--overwrite"]].concat());
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn mistakes_are_errors_that_say_what_to_do() {
    let folder = Folder::new("mistakes");
    for (arguments, hints) in [
        (
            &["reviews", "--text", "txt"][..],
            &["unknown field \"txt\": did you mean text?"][..],
        ),
        (
            &["reviews", "--split", "test=test.hrad"],
            &["did you mean test.hard?"],
        ),
        (
            &["reviews", "--split", "tset=test.hard"],
            &["did you mean test?"],
        ),
        (
            &["reviews", "--text", "photo"],
            &["split train, row 1: photo is 3 bytes"],
        ),
        (&["reviews", "--source", "text"], &["--target FIELD"]),
        (&["reviews", "--label", "label"], &["--text FIELD"]),
        (
            &["missing", "--subset", "s"],
            &[
                "missing with subset s could not be loaded",
                "--subset",
                "HF_ENDPOINT",
                "HF_TOKEN",
            ],
        ),
    ] {
        let output = folder.hub(&[arguments, &["--to", "data"]].concat());
        assert!(!output.status.success(), "{output:?}");
        let said = stderr(&output);
        for hint in hints {
            assert!(said.contains(hint), "{hint} in {said}");
        }
    }
    let left = fs::read_dir(folder.0.join("data")).into_iter().flatten();
    assert_eq!(left.count(), 0);
}

#[test]
fn help_is_that_of_the_script_and_a_missing_python_is_an_error() {
    let folder = Folder::new("python");
    let output = folder.hub(&["--help"]);
    let said = stdout(&output);
    assert!(
        output.status.success() && said.contains("--split PART=NAME"),
        "{said}"
    );
    let mut command = xtask(&["hub", "reviews", "--to", "data"]);
    let said = fails(command.env("PATH", &folder.0));
    assert!(
        said.contains("apt-get install python3 python3-venv"),
        "{said}"
    );
}
