//! What a reader of `docs/` relies on: every mechanism has a chapter, and every Rust block is run.

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
        let word = format!("`{mechanism}`");
        let row = index
            .lines()
            .find(|line| line.starts_with("| [") && line.contains(&word));
        let row = row.unwrap_or_else(|| panic!("no chapter for {mechanism} in the index"));
        let page = row.split(['(', ')']).nth(1).expect("a link");
        let text = read(&format!("docs/mechanisms/{page}"));
        let title = text.lines().next().unwrap_or_default();
        assert!(title.contains(&word), "{page} is not about {mechanism}");
        for name in mechanism.aliases() {
            assert!(text.contains(&format!("`{name}`")), "{mechanism}: {name}");
        }
        let (_, paper) = mechanism.about().paper;
        assert!(text.contains(paper), "{page} does not cite {paper}");
    }
}

/// A file of a mechanism that is missing in the list of `for_each_mechanism!` would not be
/// compiled.
#[test]
fn every_file_of_a_mechanism_is_in_the_list() {
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
                "{folder}/{module} is neither a mechanism of the list nor a module"
            );
        }
    }
}

/// A page with a Rust block is one of the documentation tests of this package.
#[test]
fn every_page_with_rust_is_a_documentation_test() {
    let tested = include_str!("../src/pages.rs");
    for folder in [".", "docs", "docs/design", "docs/mechanisms", "docs/theory"] {
        for entry in fs::read_dir(Path::new(ROOT).join(folder)).expect(folder) {
            let path = entry.expect(folder).path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let page = path.strip_prefix(ROOT).expect("it is below the root");
            let page = page.to_string_lossy().replace("./", "");
            assert!(
                !read(&page).contains("```rust") || tested.contains(&format!("\"{page}\"")),
                "{page} is not in examples/src/pages.rs"
            );
        }
    }
}
