//! Dependencies that no code names, in the manner of cargo-machete.
//!
//! A `Cargo.toml` is believed to need what its package's sources name in a path (`csv::Reader`)
//! or a `use`. What everybody needs must be named outside of `tests/`: otherwise it is for
//! tests alone. Comments do not count, but for the examples of documentation, which are tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::metadata::{Dependency, Metadata};

/// Dependencies that are needed though no code names them: package, dependency, why.
const NEEDED: [(&str, &str, &str); 0] = [];

/// What has to be done something about.
pub(super) fn check(metadata: &Metadata) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for package in metadata.ours() {
        let folder = package.manifest_path.parent().unwrap_or(Path::new(""));
        let sources = Sources::read(folder)?;
        for dependency in &package.dependencies {
            let name = &dependency.name;
            let excused = |(of, on, _): &(&str, &str, &str)| *of == package.name && on == name;
            if NEEDED.iter().any(excused) || sources.name(dependency) {
                continue;
            }
            let (section, place) = match dependency.kind.as_deref() {
                None => ("dependencies", "outside of its tests"),
                Some("build") => ("build-dependencies", "in its build script"),
                Some(_) => ("dev-dependencies", "in it"),
            };
            wrong.push(format!(
                "{} has {name} under [{section}], and nothing {place} names it\n  do: remove it from \
                 {}, move it to where it is used, or add it with a reason to NEEDED in \
                 xtask/src/dependencies/unused.rs",
                package.name,
                package.manifest_path.display()
            ));
        }
    }
    Ok(wrong)
}

/// The code of a package.
#[derive(Default)]
struct Sources {
    /// What is compiled for those who use it, without comments.
    library: String,
    /// All of it, with the comments that are documentation.
    all: String,
    /// The build script.
    build: String,
}

impl Sources {
    fn read(folder: &Path) -> Result<Self> {
        let mut sources = Self::default();
        for path in rust_files(folder)? {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("{} cannot be read", path.display()))?;
            sources.add(path.strip_prefix(folder).unwrap_or(&path), &text);
        }
        Ok(sources)
    }

    /// Takes in a file by its place in the package.
    fn add(&mut self, path: &Path, text: &str) {
        for line in text.lines() {
            let code = line.trim_start();
            let comment = code.starts_with("//");
            if !comment && path == Path::new("build.rs") {
                self.build.extend([code, "\n"]);
            } else if !comment && !path.starts_with("tests") {
                self.library.extend([code, "\n"]);
            }
            let documented = code.starts_with("///") || code.starts_with("//!");
            if !comment || documented {
                let code = code.trim_start_matches(['/', '!']).trim_start();
                self.all.extend([code, "\n"]);
            }
        }
    }

    /// Whether they name a dependency where it may be used.
    fn name(&self, dependency: &Dependency) -> bool {
        let code = match dependency.kind.as_deref() {
            None => &self.library,
            Some("build") => &self.build,
            Some(_) => &self.all,
        };
        let name = dependency.rename.as_ref().unwrap_or(&dependency.name);
        names(code, &name.replace('-', "_"))
    }
}

/// Whether a crate is named: at the beginning of a path, or alone after `use` or
/// `extern crate`.
fn names(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let of_a_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        // `a::serde::b` is a module of that name, `::serde::b` is the crate.
        let within = before
            .strip_suffix("::")
            .is_some_and(|before| before.ends_with(|letter| of_a_word(letter) || letter == '>'));
        if before.ends_with(of_a_word) || within {
            return false;
        }
        let imported = before.ends_with("use ") || before.ends_with("extern crate ");
        after.starts_with("::") || (imported && !after.starts_with(of_a_word))
    })
}

/// The Rust files in a folder, those of other packages within it left out.
fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let unread = || format!("{} cannot be read", next.display());
        for entry in fs::read_dir(&next).with_context(unread)? {
            let path = entry.with_context(unread)?.path();
            if path.is_dir() {
                if !path.ends_with("target") && !path.join("Cargo.toml").is_file() {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_named_by_a_path_or_an_import() {
        for (code, named) in [
            ("let x = serde_json::json!(1);", true),
            ("use serde_json as json;", true),
            ("use serde_json;", true),
            ("pub use serde_json::{Value, from_str};", true),
            ("extern crate serde_json;", true),
            ("type X = Vec<::serde_json::Value>;", true),
            ("let serde_json = 1;", false),
            ("use my_serde_json::Value;", false),
            ("use serde_json_lines::Value;", false),
            ("use crate::serde_json::Value;", false),
            ("use serde_jsonl;", false),
        ] {
            assert_eq!(names(code, "serde_json"), named, "{code}");
        }
    }

    /// A package as cargo describes it, and sources that stand in for its files.
    #[test]
    fn dependencies_are_named_where_they_may_be_used() {
        let mut sources = Sources::default();
        sources.add(
            Path::new("src/lib.rs"),
            "//! let x = png::Encoder::new();\n// zip::read()\nuse csv::Reader;\n",
        );
        sources.add(Path::new("tests/all.rs"), "use proptest::prelude::*;\n");
        sources.add(Path::new("build.rs"), "fn main() { cc::Build::new(); }\n");
        for (name, kind, named) in [
            ("csv", None, true),
            // In the documentation, which is a test.
            ("png", None, false),
            ("png", Some("dev"), true),
            // In a comment.
            ("zip", None, false),
            ("zip", Some("dev"), false),
            // In tests alone.
            ("proptest", None, false),
            ("proptest", Some("dev"), true),
            ("cc", Some("build"), true),
            ("cc", None, false),
        ] {
            let dependency = Dependency {
                name: name.to_owned(),
                rename: None,
                kind: kind.map(str::to_owned),
            };
            assert_eq!(sources.name(&dependency), named, "{name}, {kind:?}");
        }
        let renamed = Dependency {
            name: "burn-csv".to_owned(),
            rename: Some("csv".to_owned()),
            kind: None,
        };
        assert!(sources.name(&renamed));
    }

    #[test]
    fn an_unused_dependency_is_told_with_its_package_and_what_to_do() {
        let folder = std::env::temp_dir().join(format!("zoo-unused-{}", std::process::id()));
        fs::create_dir_all(folder.join("src")).expect("a temporary folder");
        fs::write(folder.join("src/lib.rs"), "use csv::Reader;\n").expect("a file in it");
        let metadata = serde_json::json!({ "packages": [{
            "name": "made-up", "version": "0.1.0", "source": null, "license": "MIT",
            "manifest_path": folder.join("Cargo.toml"),
            "dependencies": [
                { "name": "csv", "rename": null, "kind": null },
                { "name": "serde-json", "rename": null, "kind": "dev" },
            ],
        }]});
        let metadata = serde_json::from_value(metadata).expect("as cargo writes it");
        let wrong = check(&metadata).expect("the sources can be read");
        fs::remove_dir_all(&folder).expect("the test's own folder");
        let [wrong] = wrong.as_slice() else {
            panic!("{wrong:?}")
        };
        assert!(
            wrong.starts_with("made-up has serde-json under [dev-dependencies], and nothing in it"),
            "{wrong}"
        );
        assert!(wrong.contains("\n  do: remove it from "), "{wrong}");
    }
}
