//! The vocabulary of everything a user reads: documentation, help, messages, doc comments and names.

use std::path::Path;
use std::process::Command;

/// Phrases of an older vocabulary, with the standard terms. A phrase matches whole words, in prose
/// and in identifiers.
const PHRASES: &[(&str, &str)] = &[
    ("places", "positions, tokens, hidden states"),
    ("way back", "backward pass"),
    ("goes back", "backward pass, truncates"),
    ("what arrives", "output gradient"),
    ("sight", "visibility, mask, coverage"),
    ("blind", "fully masked"),
    ("level with", "aligned with"),
    ("stands for all", "broadcast"),
    ("seats", "sorted slots, chunks"),
    ("nobody", "padding sentinel"),
    ("forgotten", "dropped, decayed, evicted"),
    ("forgets", "drops, decays, evicts"),
    ("weighing", "attention weights"),
    ("weighed", "weighted"),
    ("anew", "again"),
    ("gone on with", "resumed"),
    ("goes on with", "resumes, continues"),
    ("redraw", "resample"),
    ("by waves", "sinusoidal"),
    ("products that fade", "exponential decay"),
    ("a fourth of", "a quarter of"),
    ("share of numbers", "dropout probability"),
    ("numbers of each", "dimension"),
    ("numbers in a head", "head dimension"),
    ("nothing to learn from", "no training data"),
    ("to learn from", "train"),
    ("do:", "help:"),
    ("wanted", "expected, reference"),
    ("judged", "evaluated"),
    ("told", "reported, configured"),
    ("room", "buffer, capacity, module"),
    ("rooms", "buffers, modules"),
    ("seating", "chunk layout"),
    ("so many", "a number"),
    ("weighs", "weights"),
    ("whoever", "the caller, the user"),
];

/// Lines that may contain a phrase: the end of the path, and a part of the line.
const EXCEPTIONS: &[(&str, &str)] = &[
    // This list.
    ("xtask/tests/language.rs", ""),
    // They name what was renamed.
    ("CHANGELOG.md", ""),
    ("crates/config/src/renamed.rs", "redraw"),
    ("crates/config/tests/mistakes.txt", "redraw"),
    // Texts that are tokenized or shown, and an ordinary word.
    ("crates/data/src/sentences.rs", "Nobody knows."),
    ("crates/viz/tests/browser.rs", "nobody around us"),
    ("crates/viz/src/plot/mod.rs", "Colour-blind"),
];

#[test]
fn text_uses_standard_vocabulary() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let listed = Command::new("git")
        .args([
            "ls-files", "*.rs", "*.md", "*.toml", "*.py", "*.txt", "*.html", "*.css", "*.js",
        ])
        .current_dir(&root)
        .output()
        .expect("git lists the files");
    let listed = String::from_utf8(listed.stdout).expect("paths are UTF-8");
    let mut findings = Vec::new();
    for path in listed.lines() {
        // A deleted file is listed until the deletion is staged.
        let Ok(text) = std::fs::read_to_string(root.join(path)) else {
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            let phrase = PHRASES.iter().find(|(phrase, _)| contains(&lower, phrase));
            let is_allowed = EXCEPTIONS
                .iter()
                .any(|(file, part)| path.ends_with(file) && line.contains(part));
            if let (Some((phrase, terms)), false) = (phrase, is_allowed) {
                let line = line.trim();
                findings.push(format!("{path}:{}: {phrase} ({terms}): {line}", index + 1));
            }
        }
    }
    assert!(
        findings.is_empty(),
        "{} lines with phrases that readers must translate:\n{}",
        findings.len(),
        findings.join("\n")
    );
}

/// Whether the line contains the phrase as whole words. An underscore separates words.
fn contains(line: &str, phrase: &str) -> bool {
    line.match_indices(phrase).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + phrase.len()..].chars().next();
        [before, after]
            .into_iter()
            .flatten()
            .all(|next| !next.is_alphanumeric())
    })
}

#[test]
fn phrases_match_whole_words() {
    assert!(contains("the places_of a row", "places"));
    assert!(contains("level with", "level with"));
    assert!(!contains("replaces", "places"));
    assert!(!contains("undo: nothing", "do:"));
}
