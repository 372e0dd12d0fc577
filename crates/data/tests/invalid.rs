//! Errors of invalid files name the file and contain no terminal escape sequences from it.

#![allow(clippy::unwrap_used)]

#[path = "../src/test_files.rs"]
#[allow(dead_code, reason = "the crate's own tests use all of it")]
mod test_files;

use std::path::Path;

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
    Labels::from_examples(&read.examples).map(drop)
}

#[test]
fn errors_name_the_file_and_are_printable() {
    let folder = Folder::new();
    let check = |name: &str, outcome: Result<(), DataError>, expected: &str| {
        let error = outcome.expect_err(expected).to_string();
        assert!(error.contains(expected), "{name}: {error}");
        // Label errors name the training data instead of the file.
        let is_named = error.contains(name) || expected.starts_with("all examples");
        assert!(is_named, "{name}: {error}");
        let is_unsafe = |it: char| it != '\n' && (it.is_control() || it == '\u{202e}');
        assert!(!error.contains(is_unsafe), "{name}: {error:?}");
    };
    // `$` stands for the hostile text.
    for (name, text, expected) in [
        ("header.csv", "$,x\n1,2\n", "unknown column"),
        ("one.csv", "y,x\n$a,1\n", "all examples have the label"),
        ("short.csv", "y,x\n$\n", "columns instead of 2"),
        ("quote.csv", "y,x\n1,\"$\n2,b\n", "line 2: the quote"),
        ("not.jsonl", "{\"$\n", "not JSON"),
        (
            "field.jsonl",
            "{\"a\\u001b[2J\u{202e}\": 1}\n",
            "unknown field",
        ),
        ("tab.tsv", "$\n", "no tab between label and text"),
        ("one.tsv", "$a\t1\n", "all examples have the label"),
    ] {
        let path = folder.file(name, text.replace('$', HOSTILE));
        check(name, labelled(&path), expected);
    }
    for (name, other, entry, expected) in [
        ("several.zip", "$.txt", "", "has several files"),
        ("traversal.zip", "../$", "", "outside of its folder"),
        ("two.zip", "$.txt", "#none", "unknown entry"),
    ] {
        let path = folder.zip(name, &[("a.txt", "a"), (&other.replace('$', HOSTILE), "b")]);
        let path = format!("{}{entry}", path.display());
        check(name, plain_text(Path::new(&path)).map(drop), expected);
    }
    let tokenizer = folder.file("tokenizer.json", format!("[\"{HOSTILE}"));
    let outcome = Tokenizer::load(&tokenizer).map(drop);
    check("tokenizer.json", outcome, "the file is not JSON");
}
