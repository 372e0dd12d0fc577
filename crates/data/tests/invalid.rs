//! Errors of invalid files name the file and contain no terminal escape sequences from it.

#![allow(clippy::unwrap_used)]

#[path = "../src/test_files.rs"]
#[allow(dead_code, reason = "the crate's own tests use all of it")]
mod test_files;

use std::path::{Path, PathBuf};

use test_files::Folder;
use zoo_data::{DataError, LabelledText, Labels, Tokenizer, plain_text};

/// Sets the title, clears the screen, reorders what follows.
const HOSTILE: &str = "\u{1b}]0;t\u{7}\u{1b}[2J\u{9b}31m\u{202e}";

fn labelled(path: &Path) -> Result<(), DataError> {
    let read = match path.extension().and_then(|it| it.to_str()) {
        Some("csv") => LabelledText::csv(path, "y", "x").read()?,
        Some("jsonl") => LabelledText::json_lines(path, "y", "x").read()?,
        Some("tsv") => LabelledText::tsv(path).read()?,
        _ => LabelledText::folders(path).read()?,
    };
    Labels::from_examples(&read.examples).map(|_| ())
}

#[test]
fn errors_name_the_file_and_are_printable() {
    let folder = Folder::new();
    let files = [
        (
            "header.csv",
            format!("{HOSTILE},x\n1,2\n"),
            "unknown column",
        ),
        (
            "one label.csv",
            format!("y,x\n{HOSTILE}a,1\n"),
            "all examples have the label",
        ),
        (
            "short.csv",
            format!("y,x\n{HOSTILE}\n"),
            "columns instead of 2",
        ),
        (
            "quote.csv",
            "y,x\n1,\"stray\n2,b\n".to_owned(),
            "line 2: the quote opened here",
        ),
        ("not.jsonl", format!("{{\"{HOSTILE}\n"), "not JSON"),
        (
            "field.jsonl",
            format!("{{\"a\\u001b[2J{}\": 1}}\n", '\u{202e}'),
            "unknown field",
        ),
        (
            "tab.tsv",
            format!("{HOSTILE}\n"),
            "no tab between label and text",
        ),
        (
            "one label.tsv",
            format!("{HOSTILE}a\t1\n"),
            "all examples have the label",
        ),
    ];
    let mut cases: Vec<(PathBuf, Result<(), DataError>, &str)> = vec![];
    for (name, text, expected) in files {
        let path = folder.file(name, text);
        let outcome = labelled(&path);
        cases.push((path, outcome, expected));
    }
    let hostile = format!("{HOSTILE}.txt");
    let traversal = format!("../{HOSTILE}");
    for (name, other, entry, expected) in [
        ("several.zip", &hostile, "", "has several files"),
        ("traversal.zip", &traversal, "", "outside of its folder"),
        ("two.zip", &hostile, "#none", "unknown entry"),
    ] {
        let path = folder.zip(name, &[("a.txt", "a"), (other.as_str(), "b")]);
        let read = PathBuf::from(format!("{}{entry}", path.display()));
        cases.push((path, plain_text(&read).map(|_| ()), expected));
    }
    let tokenizer = folder.file("tokenizer.json", format!("[\"{HOSTILE}"));
    let outcome = Tokenizer::load(&tokenizer).map(|_| ());
    cases.push((tokenizer, outcome, "the file is not JSON"));

    for (path, outcome, expected) in cases {
        let error = outcome.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
        let name = path.file_name().unwrap().to_str().unwrap();
        // Label errors name the training data instead of the file.
        let is_named = error.contains(name) || expected.starts_with("all examples");
        assert!(is_named, "{name}: {error}");
        let is_unsafe = |it: char| it != '\n' && (it.is_control() || it == '\u{202e}');
        assert!(!error.contains(is_unsafe), "{name}: {error:?}");
    }
}
