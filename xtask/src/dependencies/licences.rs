//! The licences of everything in `Cargo.lock`, held against a list of those we take.
//!
//! A crate says its licence as an SPDX expression, `(MIT OR Apache-2.0) AND Unicode-3.0`. Of
//! what `OR` joins we take the one that comes first in our list; what `AND` joins must all be
//! in it.

use std::collections::{BTreeMap, BTreeSet};

use comfy_table::{ContentArrangement, Table, presets};

use crate::metadata::{Metadata, Package};

/// The licences we take, those that ask for least first, and what they ask for.
const TAKEN: [(&str, &str); 15] = [
    ("MIT", "its text with copies"),
    ("Apache-2.0", "its text and notices with copies"),
    ("Apache-2.0 WITH LLVM-exception", "less than Apache-2.0"),
    ("BSD-2-Clause", "its text with copies"),
    ("BSD-3-Clause", "its text with copies"),
    ("ISC", "its text with copies"),
    ("NCSA", "its text with copies"),
    ("Zlib", "its text with its source"),
    ("BSL-1.0", "its text with its source"),
    ("CC0-1.0", "nothing"),
    ("WTFPL", "nothing"),
    ("Unicode-3.0", "its text with copies"),
    ("Unicode-DFS-2016", "its text with copies"),
    ("CDLA-Permissive-2.0", "its text with the data"),
    // We change none of its files.
    ("MPL-2.0", "its files, where changed"),
];

/// Crates that have a file of their own instead of an expression: somebody has read it.
const READ: [(&str, &str); 1] = [("cfg_block", "Apache-2.0")];

/// What was found.
pub(super) struct Licences {
    /// Which crates we take under which licence.
    taken: BTreeMap<String, BTreeSet<String>>,
    /// What has to be done something about.
    pub(super) wrong: Vec<String>,
}

pub(super) fn check(metadata: &Metadata) -> Licences {
    let mut found = Licences {
        taken: BTreeMap::new(),
        wrong: Vec::new(),
    };
    for package in &metadata.packages {
        match chosen(package) {
            Ok(licences) => {
                for licence in licences {
                    let crates = found.taken.entry(licence).or_default();
                    crates.insert(package.name.clone());
                }
            }
            Err(wrong) => found.wrong.push(wrong),
        }
    }
    found
}

/// The licences we take a crate under, or what to do about it.
fn chosen(package: &Package) -> Result<Vec<String>, String> {
    let name = format!("{} {}", package.name, package.version);
    let read = || READ.iter().find(|(name, _)| *name == package.name);
    let expression = match (&package.license, read()) {
        (Some(expression), _) => expression.as_str(),
        (None, Some((_, expression))) => expression,
        (None, None) => {
            return Err(format!(
                "{name} does not say its licence in Cargo.toml\n  do: read the licence in the crate \
                 and add both to READ in xtask/src/dependencies/licences.rs, or take another crate"
            ));
        }
    };
    let parsed = Expression::parse(expression).ok_or_else(|| {
        format!(
            "the licence of {name} is no SPDX expression: {expression:?}\n  do: take another \
             version of it, or another crate"
        )
    })?;
    parsed.choose().ok_or_else(|| {
        format!(
            "the licence of {name} is not among those we take: {expression}\n  do: find out who \
             brings it with `cargo tree --workspace --all-features --target all --invert {}` and do \
             without, or add the licence to TAKEN in xtask/src/dependencies/licences.rs if it asks \
             for nothing we do not do",
            package.name
        )
    })
}

/// An SPDX expression. The older `/` of crates.io is an `OR`.
#[derive(Debug, PartialEq)]
enum Expression {
    Licence(String),
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

impl Expression {
    fn parse(text: &str) -> Option<Self> {
        let spaced = text
            .replace('/', " OR ")
            .replace('(', " ( ")
            .replace(')', " ) ");
        let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
        let expression = Self::any(&mut words)?;
        words.is_empty().then_some(expression)
    }

    /// `a OR b`, from the words that are left, the next one last.
    fn any(words: &mut Vec<&str>) -> Option<Self> {
        let mut parts = vec![Self::all(words)?];
        while words.pop_if(|word| *word == "OR").is_some() {
            parts.push(Self::all(words)?);
        }
        Some(Self::joined(parts, Self::Or))
    }

    /// `a AND b`, which binds closer.
    fn all(words: &mut Vec<&str>) -> Option<Self> {
        let mut parts = vec![Self::one(words)?];
        while words.pop_if(|word| *word == "AND").is_some() {
            parts.push(Self::one(words)?);
        }
        Some(Self::joined(parts, Self::And))
    }

    /// A licence, with its exception if it has one, or something in parentheses.
    fn one(words: &mut Vec<&str>) -> Option<Self> {
        match words.pop()? {
            "(" => {
                let within = Self::any(words)?;
                (words.pop()? == ")").then_some(within)
            }
            ")" | "AND" | "OR" | "WITH" => None,
            licence if words.pop_if(|word| *word == "WITH").is_some() => {
                Some(Self::Licence(format!("{licence} WITH {}", words.pop()?)))
            }
            licence => Some(Self::Licence(licence.to_owned())),
        }
    }

    fn joined(mut parts: Vec<Self>, join: fn(Vec<Self>) -> Self) -> Self {
        match parts.len() {
            1 => parts.remove(0),
            _ => join(parts),
        }
    }

    /// The licences to take, or none if there is no way that has only such as we take.
    fn choose(&self) -> Option<Vec<String>> {
        match self {
            Self::Licence(licence) => rank(licence).map(|_| vec![licence.clone()]),
            Self::And(parts) => {
                let parts: Option<Vec<_>> = parts.iter().map(Self::choose).collect();
                parts.map(|parts| parts.concat())
            }
            // Judged by what asks for most.
            Self::Or(parts) => (parts.iter().filter_map(Self::choose))
                .min_by_key(|licences| licences.iter().filter_map(|name| rank(name)).max()),
        }
    }
}

/// The place of a licence in our list.
fn rank(licence: &str) -> Option<usize> {
    TAKEN.iter().position(|(taken, _)| *taken == licence)
}

impl Licences {
    /// Licences on our list that nothing is taken under, so that the list stays what somebody
    /// thought about.
    pub(super) fn left_over(&self) -> Vec<String> {
        let licences = TAKEN.iter().map(|(licence, _)| licence);
        licences
            .filter(|licence| !self.taken.contains_key(**licence))
            .map(|licence| {
                format!(
                    "no crate needs the licence {licence} any more\n  do: remove it from TAKEN in \
                     xtask/src/dependencies/licences.rs"
                )
            })
            .collect()
    }

    /// A line for each licence, the most frequent first.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new();
        table
            .load_preset(presets::UTF8_BORDERS_ONLY)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(110)
            .set_header(["licence", "asks for", "crates", ""]);
        let mut rows: Vec<_> = self.taken.iter().collect();
        rows.sort_by_key(|(_, crates)| std::cmp::Reverse(crates.len()));
        for (licence, crates) in rows {
            let asks = rank(licence).map_or("", |place| TAKEN[place].1);
            // Few enough to be worth naming.
            let names = match crates.len() {
                1..=4 => crates.iter().cloned().collect::<Vec<_>>().join(", "),
                _ => String::new(),
            };
            table.add_row([licence, asks, &crates.len().to_string(), &names]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up(crates: &[(&str, Option<&str>)]) -> Metadata {
        let package = |(name, license): &(&str, Option<&str>)| {
            serde_json::json!({
                "name": name, "version": "1.2.3", "source": "registry", "license": license,
                "manifest_path": "Cargo.toml", "dependencies": [],
            })
        };
        let packages: Vec<_> = crates.iter().map(package).collect();
        serde_json::from_value(serde_json::json!({ "packages": packages }))
            .expect("as cargo writes it")
    }

    #[test]
    fn the_licence_that_asks_for_least_is_taken() {
        for (expression, taken) in [
            ("MIT", "MIT"),
            ("Apache-2.0/MIT", "MIT"),
            ("Apache-2.0 / MIT", "MIT"),
            ("MIT OR Apache-2.0 OR LGPL-2.1-or-later", "MIT"),
            ("GPL-3.0-only OR Zlib", "Zlib"),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", "MIT Unicode-3.0"),
            ("MIT OR Apache-2.0 AND ISC", "MIT"),
            ("MPL-2.0 AND MIT OR Apache-2.0", "Apache-2.0"),
            (
                "Apache-2.0 WITH LLVM-exception",
                "Apache-2.0 WITH LLVM-exception",
            ),
        ] {
            let chosen = Expression::parse(expression).and_then(|parsed| parsed.choose());
            assert_eq!(chosen.unwrap_or_default().join(" "), taken, "{expression}");
        }
    }

    #[test]
    fn what_is_no_expression_is_not_taken_for_one() {
        for text in ["", "MIT OR", "(MIT", "MIT)", "MIT Apache-2.0", "MIT WITH"] {
            assert_eq!(Expression::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_licence_that_we_do_not_take_is_named_with_its_crate_and_what_to_do() {
        let found = check(&made_up(&[
            ("fine", Some("MIT")),
            ("strict", Some("MIT AND GPL-3.0-only")),
            ("silent", None),
            ("odd", Some("see the file")),
            ("cfg_block", None),
        ]));
        let [strict, silent, odd] = found.wrong.as_slice() else {
            panic!("{:?}", found.wrong)
        };
        assert!(strict.starts_with(
            "the licence of strict 1.2.3 is not among those we take: MIT AND GPL-3.0-only\n  do: "
        ));
        assert!(strict.contains("--invert strict`"), "{strict}");
        assert!(silent.starts_with("silent 1.2.3 does not say its licence"));
        assert!(odd.contains("no SPDX expression: \"see the file\""));
        let table = found.table().to_string();
        assert!(table.contains("fine"), "{table}");
        assert!(table.contains("cfg_block"), "{table}");
    }

    #[test]
    fn what_no_crate_needs_any_more_leaves_the_list() {
        let left_over = check(&made_up(&[("fine", Some("MIT OR ISC"))])).left_over();
        let named = |licence: &str| {
            let start = format!("no crate needs the licence {licence} any more");
            left_over.iter().any(|line| line.starts_with(&start))
        };
        assert!(!named("MIT"));
        assert!(named("ISC"), "{left_over:?}");
    }
}
