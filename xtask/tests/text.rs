//! The text files of the repository: vocabulary of everything a user reads (documentation, help,
//! messages, doc comments and names), and links of Markdown pages.

use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Path and text of the files of the repository with these extensions.
fn files(extensions: &str) -> Vec<(String, String)> {
    let patterns = extensions
        .split(' ')
        .map(|extension| format!("*.{extension}"));
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .args(patterns)
        .current_dir(ROOT)
        .output()
        .expect("git lists the files");
    let listed = String::from_utf8(listed.stdout).expect("paths are UTF-8");
    // A deleted file is listed until the deletion is staged.
    let read = |path: &str| std::fs::read_to_string(Path::new(ROOT).join(path)).ok();
    let files = listed
        .lines()
        .filter_map(|path| Some((path.to_owned(), read(path)?)));
    files.collect()
}

/// Lines that may contain a phrase: the end of the path, and a part of the line.
const EXCEPTIONS: &[(&str, &str)] = &[
    // The list, and its test.
    ("xtask/tests/phrases.txt", ""),
    ("xtask/tests/text.rs", ""),
    // They name what was renamed.
    ("CHANGELOG.md", ""),
    ("crates/config/src/renamed.rs", "redraw"),
    ("crates/config/tests/mistakes.txt", "redraw"),
    // Copied unchanged.
    ("crates/viz/vendor/uplot/uPlot.iife.min.js", ""),
    ("docs/benchmarks/h200-mechanisms/report.html", "var uPlot="),
    // Texts that are tokenized or shown, and an ordinary word.
    ("crates/data/src/sentences.rs", "Nobody knows."),
    ("crates/viz/tests/browser.rs", "nobody around us"),
    ("crates/viz/src/plot/mod.rs", "Colour-blind"),
];

#[test]
fn text_uses_standard_vocabulary() {
    let phrases = include_str!("phrases.txt").lines();
    let phrases: Vec<_> = phrases.filter_map(|line| line.split_once(" => ")).collect();
    assert!(phrases.len() > 30);
    let mut findings = Vec::new();
    for (path, text) in files("rs md toml py txt html css js") {
        for (number, line) in (1..).zip(text.lines()) {
            let lower = line.to_lowercase();
            let phrase = phrases.iter().find(|(phrase, _)| contains(&lower, phrase));
            let mut exceptions = EXCEPTIONS.iter();
            let is_allowed =
                exceptions.any(|(file, part)| path.ends_with(file) && line.contains(part));
            if let (Some((phrase, terms)), false) = (phrase, is_allowed) {
                let line = line.trim();
                findings.push(format!("{path}:{number}: {phrase} ({terms}): {line}"));
            }
        }
    }
    let text = findings.join("\n");
    assert!(
        text.is_empty(),
        "phrases that readers must translate:\n{text}"
    );
}

/// Whether the line contains the phrase as whole words. An underscore separates words.
fn contains(line: &str, phrase: &str) -> bool {
    line.match_indices(phrase).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + phrase.len()..].chars().next();
        let mut neighbours = before.into_iter().chain(after);
        neighbours.all(|next| !next.is_alphanumeric())
    })
}

#[test]
fn phrases_match_whole_words() {
    assert!(contains("the places_of a row", "places"));
    assert!(contains("level with", "level with"));
    assert!(!contains("replaces", "places"));
    assert!(!contains("undo: nothing", "do:"));
}

/// The relative links of a page.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let behind = text.split("](").skip(1);
    let links = behind.filter_map(|rest| rest.split(')').next());
    links.filter(|link| !link.contains("://") && !link.contains(char::is_whitespace))
}

fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let anchor = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter => letter.is_alphanumeric().then_some(letter),
    });
    anchor.collect()
}

/// Relative links point to existing files and headings.
#[test]
fn links_are_valid() {
    let mut count = 0;
    for (path, text) in files("md") {
        let page = Path::new(ROOT).join(&path);
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let to = match file {
                "" => page.clone(),
                file => page.with_file_name(file),
            };
            assert!(to.exists(), "{path}: {link}");
            if !heading.is_empty() {
                let target = std::fs::read_to_string(&to).expect("text");
                let mut headings = target.lines().filter(|line| line.starts_with('#'));
                let exists = headings.any(|line| anchor(line) == heading);
                assert!(exists, "{path}: {link}");
            }
            count += 1;
        }
    }
    assert!(count >= 50, "only {count} links were found");
}
