//! From the database that Python leaves to examples that training reads. `golden/reviews.py`
//! made the database, with burn-dataset's own importer.

use std::fs;
use std::path::{Path, PathBuf};

use zoo_config::{Config, Data, Files};
use zoo_data::{LabelledText, ParallelText};
use zoo_hub::section::section;
use zoo_hub::write::{Written, refuse_existing, write};
use zoo_hub::{Cell, Database, Form, Part, choose};

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("zoo-hub-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        Self(folder)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect("it was written")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("it is there").flatten();
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn reviews() -> Database {
    Database::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/reviews.db"))
}

fn pairs() -> Form {
    Form::Pairs {
        source: "translation_zh".to_owned(),
        target: "translation_en".to_owned(),
    }
}

fn written(form: &Form, choices: &[&str], folder: &Folder) -> Vec<Written> {
    let choices: Vec<_> = choices
        .iter()
        .map(|text| text.parse().expect("a choice"))
        .collect();
    let splits =
        choose(&choices, &reviews().splits().expect("a database")).expect("they are there");
    write(&reviews(), &splits, form, &folder.0).expect("it can be written")
}

/// The config that the section makes with a model.
fn config(form: &Form, written: &[Written], model: &str) -> Config {
    let text = format!("{}\n[model]\nkind = \"{model}\"\n", section(form, written));
    Config::parse("a.toml", &text, &[]).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn splits_and_rows_are_found() {
    let mut splits = reviews().splits().unwrap();
    splits.sort();
    assert_eq!(splits, ["test.hard", "train", "validation"]);
    // A name that is no word of SQL as it stands.
    assert_eq!(reviews().rows("test.hard").unwrap().len(), 1);
    let rows: Vec<_> = reviews()
        .rows("train")
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(rows.len(), 3);
    let cells = [
        ("text", Cell::Text("Not \"good\".".to_owned())),
        ("label", Cell::Whole(0)),
        ("score", Cell::Missing),
        ("checked", Cell::Whole(0)),
        ("photo", Cell::Bytes(1)),
        ("translation_en", Cell::Text("hello".to_owned())),
        ("translation_zh", Cell::Text("你好".to_owned())),
    ];
    assert_eq!(rows[1].0, cells.map(|(name, cell)| (name.to_owned(), cell)));
}

#[test]
fn texts_and_classes_are_read_by_training() {
    let folder = Folder::new("labelled");
    let form = Form::Labelled {
        label: "label".to_owned(),
        text: "text".to_owned(),
    };
    let files = written(&form, &["test=test.hard"], &folder);
    assert_eq!(folder.names(), ["test.jsonl", "train.jsonl", "valid.jsonl"]);
    let summary = files[0].summary();
    for part in [
        "train.jsonl: 2 rows",
        "1 row left out: a field has nothing in it",
        "score (number), checked (whole number), photo (bytes, left out)",
        "classes: 0, 1",
    ] {
        assert!(summary.contains(part), "{part} in {summary}");
    }

    let config = config(&form, &files, "classifier");
    let Data::Labelled(data) = &config.data else {
        panic!("{:?}", config.data)
    };
    let read = |path: &Path| {
        let text = LabelledText::json_lines(path, &data.label_field, &data.text_field);
        let read = text.with_allowed_bad(0.0).read().unwrap();
        let examples = read.examples.into_iter();
        examples
            .map(|example| (example.label, example.text))
            .collect::<Vec<_>>()
    };
    let good = ("1".to_owned(), "A good film.\nReally\tgood.".to_owned());
    let bad = ("0".to_owned(), "Not \"good\".".to_owned());
    assert_eq!(read(&data.train), [good.clone(), bad.clone()]);
    assert_eq!(read(data.valid.as_deref().unwrap()), [bad, good.clone()]);
    assert_eq!(read(data.test.as_deref().unwrap()), [good]);
}

#[test]
fn translations_are_read_by_training() {
    let folder = Folder::new("pairs");
    let files = written(&pairs(), &["valid="], &folder);
    assert_eq!(folder.names(), ["train.tsv"]);
    assert_eq!(
        folder.text("train.tsv"),
        "好久不见\tlong time no see\n你好\thello\n"
    );
    assert_eq!(
        (files[0].rows, files[0].blank, files[0].smoothed),
        (2, 1, 1)
    );

    let config = config(&pairs(), &files, "transformer");
    let Data::Parallel(data) = &config.data else {
        panic!("{:?}", config.data)
    };
    let Files::One(train) = &data.train else {
        panic!("{:?}", data.train)
    };
    let read = ParallelText::tsv(train)
        .with_allowed_bad(0.0)
        .read()
        .unwrap();
    assert_eq!(read.examples.len(), 2);
    assert_eq!(read.examples[1].source, "你好");
    assert_eq!(read.examples[1].target, "hello");
}

#[test]
fn running_text_is_read_by_training() {
    let folder = Folder::new("plain");
    let form = Form::Text {
        text: "text".to_owned(),
    };
    let files = written(&form, &[], &folder);
    let config = config(&form, &files, "gpt");
    let Data::Plain(data) = &config.data else {
        panic!("{:?}", config.data)
    };
    let text = zoo_data::plain_text(&data.train).unwrap();
    assert_eq!(text, "A good film.\nReally\tgood.\nNot \"good\".\n");
}

#[test]
fn every_field_is_kept_where_none_is_chosen() {
    let folder = Folder::new("fields");
    let files = written(&Form::Fields, &[], &folder);
    let text = folder.text("train.jsonl");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        r#"{"text":"A good film.\nReally\tgood.","label":1,"score":4.5,"checked":1,"translation_en":"long time\nno see","translation_zh":"好久不见"}"#
    );
    assert_eq!(lines.len(), 3);
    let section = section(&Form::Fields, &files);
    assert!(section.contains("label_field = \"label\"\ntext_field = \"text\"\n"));
}

#[test]
fn what_is_there_stays_and_a_failure_leaves_nothing() {
    let folder = Folder::new("stays");
    refuse_existing(&folder.0, &pairs()).unwrap();
    fs::write(folder.0.join("valid.tsv"), "mine").unwrap();
    let said = refuse_existing(&folder.0, &pairs())
        .unwrap_err()
        .to_string();
    assert!(said.contains("valid.tsv is there already"), "{said}");
    assert!(said.contains("--overwrite"), "{said}");
    // Files of another form are not in the way.
    refuse_existing(&folder.0, &Form::Fields).unwrap();

    // The first split can be written, the second has no such name: neither is.
    let splits = [(Part::Train, "train"), (Part::Valid, "vaildation")];
    let splits = splits.map(|(part, name)| (part, name.to_owned()));
    write(&reviews(), &splits, &pairs(), &folder.0).unwrap_err();
    assert_eq!(folder.names(), ["valid.tsv"]);
    assert_eq!(folder.text("valid.tsv"), "mine");
}

#[test]
fn what_is_no_database_is_told() {
    let folder = Folder::new("none");
    let path = folder.0.join("a.db");
    fs::write(
        &path,
        "Here is no table, and there is none in all of these words.",
    )
    .unwrap();
    let said = Database::new(&path).splits().unwrap_err().to_string();
    assert!(said.contains("a.db cannot be read as a data set"), "{said}");
    assert!(said.contains("do: remove it"), "{said}");
}
