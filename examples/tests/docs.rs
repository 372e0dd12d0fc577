//! Consistency of `docs/`: every mechanism has a chapter, and every Rust block is a doctest.

use std::fs;
use std::path::Path;

use zoo_attention::Mechanism;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn read(page: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(page)).expect(page)
}

/// The chapter is in the index, names the mechanism in its title, and cites its paper.
#[test]
fn every_mechanism_has_a_chapter() {
    let index = read("docs/mechanisms/README.md");
    for mechanism in Mechanism::ALL {
        let name = format!("`{mechanism}`");
        let row = index
            .lines()
            .find(|line| line.starts_with("| [") && line.contains(&name));
        let row = row.unwrap_or_else(|| panic!("no chapter for {mechanism} in the index"));
        let page = row.split(['(', ')']).nth(1).expect("a link");
        let text = read(&format!("docs/mechanisms/{page}"));
        let title = text.lines().next().unwrap_or_default();
        assert!(title.contains(&name), "{page} is not about {mechanism}");
        for alias in mechanism.aliases() {
            assert!(text.contains(&format!("`{alias}`")), "{mechanism}: {alias}");
        }
        let (_, paper) = mechanism.about().paper;
        assert!(text.contains(paper), "{page} does not cite {paper}");
    }
}

/// A mechanism's file that is missing from `for_each_mechanism!` would not be compiled.
#[test]
fn every_mechanism_file_is_listed() {
    let list = read("crates/spec/src/mechanisms/mod.rs");
    for package in ["spec", "attention", "oracle"] {
        let folder = format!("crates/{package}/src/mechanisms");
        let declared = read(&format!("{folder}/mod.rs"));
        for entry in fs::read_dir(Path::new(ROOT).join(&folder)).expect(&folder) {
            let path = entry.expect(&folder).path();
            let module = path.file_stem().expect("a name").to_string_lossy();
            assert!(
                module == "mod"
                    || list.contains(&format!(" {module}::"))
                    || declared.contains(&format!("mod {module};")),
                "{folder}/{module} is neither a listed mechanism nor a module"
            );
        }
    }
}

#[test]
fn every_page_with_rust_is_a_doctest() {
    let tested = include_str!("../src/pages.rs");
    for folder in [".", "docs", "docs/design", "docs/mechanisms", "docs/theory"] {
        for entry in fs::read_dir(Path::new(ROOT).join(folder)).expect(folder) {
            let path = entry.expect(folder).path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let page = path.strip_prefix(ROOT).expect("below the root");
            let page = page.to_string_lossy().replace("./", "");
            assert!(
                !read(&page).contains("```rust") || tested.contains(&format!("\"{page}\"")),
                "{page} is not in examples/src/pages.rs"
            );
        }
    }
}
