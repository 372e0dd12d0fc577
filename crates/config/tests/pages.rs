//! Validates the TOML examples of the documentation.
//!
//! A block is part of a `Cargo.toml` or of a config, depending on its tables; keys outside of any
//! table belong to `[model]`. Missing sections are completed with a minimal config. Alternatives in
//! comments are checked, too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};
use zoo_config::{Config, DOCS_PATH, Override, TEMPLATES, docs, template};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Markdown page by its path in the workspace.
fn pages() -> BTreeMap<String, String> {
    let root = workspace();
    let mut folders = vec![root.clone()];
    folders.extend(["configs", "crates", "docs", "fuzz"].map(|name| root.join(name)));
    let mut pages = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(&root).expect("below it").display();
                let text = fs::read_to_string(&path).expect("text");
                pages.insert(name.to_string(), text);
            } else if path.is_dir() && folder != root && !path.ends_with("target") {
                folders.push(path);
            }
        }
    }
    pages
}

fn toml_blocks(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split("```toml\n").skip(1);
    blocks.filter_map(|rest| rest.split("```").next())
}

/// What a block is part of.
#[derive(Debug, PartialEq, Clone, Copy)]
enum Part {
    Manifest,
    Config,
}

/// Tables of a `Cargo.toml` in the documentation.
const MANIFEST_TABLES: [&str; 5] = [
    "dependencies",
    "dev-dependencies",
    "features",
    "package",
    "profile",
];

fn part(block: &str) -> Result<(Part, Table), String> {
    let table: Table = block
        .parse()
        .map_err(|error| format!("invalid TOML: {error}\n{block}"))?;
    let sections = docs();
    let is_config_section = |key: &String| sections.contains(&format!("\n## `[{key}]`\n"));
    if table
        .keys()
        .all(|key| MANIFEST_TABLES.contains(&key.as_str()))
    {
        Ok((Part::Manifest, table))
    } else if table.keys().all(is_config_section) {
        Ok((Part::Config, table))
    } else if table.values().all(|value| !is_section(value)) {
        let model = Table::from_iter([("model".to_owned(), Value::Table(table))]);
        Ok((Part::Config, model))
    } else {
        Err(format!(
            "neither part of a Cargo.toml nor of a config:\n{block}"
        ))
    }
}

/// Whether a value is a table, but not a choice with its keys.
fn is_section(value: &Value) -> bool {
    value.is_table() && value.get("kind").is_none()
}

/// Parses a part of a config, completed with the data of each template: one of them must accept it.
fn read(part: &Table) -> Result<Config, String> {
    let mut errors = String::new();
    for model in TEMPLATES {
        let mut whole = part.clone();
        let template: Table = template(model).expect(model).parse().expect(model);
        whole.entry("data").or_insert(template["data"].clone());
        let section = whole.entry("model").or_insert(Value::Table(Table::new()));
        let section = section
            .as_table_mut()
            .ok_or("model must be a table".to_owned())?;
        let kind = section.entry("kind").or_insert(model.into());
        if kind.as_str() != Some(model) {
            continue;
        }
        match Config::parse("page.toml", &whole.to_string(), &[]) {
            Ok(config) => return Ok(config),
            Err(error) => errors += &format!("as {model}: {error}\n"),
        }
    }
    Err(format!("{errors}\n{part}"))
}

/// A block, and the block with each alternative of its comments: `# key = value` for a line above it,
/// and `key = "a" # or "b", "c"`.
fn alternatives(block: &str) -> Vec<String> {
    let key = |line: &str| line.split('=').next().map(|key| key.trim().to_owned());
    let lines: Vec<&str> = block.lines().collect();
    let with = |index: usize, line: &str| {
        let mut lines = lines.clone();
        lines[index] = line;
        lines.join("\n")
    };
    let mut all = vec![block.to_owned()];
    for (index, line) in lines.iter().enumerate() {
        if let Some(commented) = line.strip_prefix("# ")
            && commented.parse::<Table>().is_ok()
            && let Some(above) = lines.iter().position(|line| key(line) == key(commented))
        {
            all.push(with(above, commented));
        }
        if let Some((set, names)) = line.split_once("# or ")
            && let Some(key) = key(set)
        {
            let names = names.split('"').skip(1).step_by(2);
            all.extend(names.map(|name| with(index, &format!("{key} = \"{name}\""))));
        }
    }
    all
}

/// The errors of a page.
fn page_errors(name: &str, text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    for block in toml_blocks(text) {
        for block in alternatives(block) {
            let checked = part(&block).and_then(|(part, table)| match part {
                Part::Config => read(&table).map(|_| ()),
                Part::Manifest => check_manifest(&table),
            });
            errors.extend(checked.err().map(|error| format!("{name}: {error}")));
        }
    }
    // Inline tables of mechanisms in the text. docs/config.md is generated, and has other tables,
    // too.
    if name != DOCS_PATH {
        for rest in text.split("{ kind = ").skip(1) {
            let rest = rest.split('}').next().unwrap_or_default();
            let attention = format!("attention = {{ kind = {rest}}}");
            let read = part(&attention).and_then(|(_, table)| read(&table));
            errors.extend(read.err().map(|error| format!("{name}: {error}")));
        }
    }
    errors
}

/// Checks that the workspace's crates in a `Cargo.toml` exist, with that version and those features.
fn check_manifest(table: &Table) -> Result<(), String> {
    let dependencies = ["dependencies", "dev-dependencies"]
        .iter()
        .filter_map(|section| table.get(*section)?.as_table())
        .flatten();
    for (name, dependency) in dependencies {
        let Some(folder) = name.strip_prefix("zoo-") else {
            continue;
        };
        let path = workspace().join("crates").join(folder).join("Cargo.toml");
        let manifest = fs::read_to_string(path).map_err(|_| format!("no such crate: {name}"))?;
        let manifest: Table = manifest.parse().map_err(|error| format!("{error}"))?;
        if let Some(version) = dependency.get("version").unwrap_or(dependency).as_str() {
            let ours = env!("CARGO_PKG_VERSION");
            if !ours.starts_with(version) {
                return Err(format!("{name} has version {ours}, not {version}"));
            }
        }
        let features = dependency.get("features").and_then(Value::as_array);
        for feature in features.into_iter().flatten() {
            let feature = feature.as_str().unwrap_or_default();
            if manifest["features"].get(feature).is_none() {
                return Err(format!("{name} has no feature {feature:?}"));
            }
        }
    }
    Ok(())
}

#[test]
fn toml_examples_are_valid() {
    let errors: Vec<String> = (pages().iter())
        .flat_map(|(name, text)| page_errors(name, text))
        .collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn parts_and_alternatives_are_recognised() {
    let pages = pages();
    for (name, expected) in [
        ("crates/attention/README.md", Part::Manifest),
        ("docs/mechanisms/scores.md", Part::Config),
        (DOCS_PATH, Part::Config),
    ] {
        let parts = toml_blocks(&pages[name]).map(|block| part(block).expect("a part").0);
        assert_eq!(parts.collect::<Vec<_>>(), [expected], "{name}");
    }
    let linear = toml_blocks(&pages["docs/mechanisms/linear.md"]).next();
    assert_eq!(alternatives(linear.expect("a block")).len(), 2);
}

#[test]
fn train_commands_are_valid() {
    let mut count = 0;
    for (name, text) in pages() {
        let commands = text.lines().filter(|line| {
            line.starts_with("cargo xtask train configs/") && !line.contains("NAME.toml")
        });
        for command in commands {
            let command = command.split(" #").next().unwrap_or_default();
            let arguments: Vec<&str> = command.split_whitespace().collect();
            let values = arguments.windows(2).filter(|pair| pair[0] == "--set");
            let overrides: Result<Vec<Override>, _> =
                values.map(|pair| Override::set(pair[1])).collect();
            let read = overrides
                .and_then(|overrides| Config::read(&workspace().join(arguments[3]), &overrides));
            assert!(read.is_ok(), "{name}: {command}\n{}", read.unwrap_err());
            count += 1;
        }
    }
    assert!(count >= 5, "{count}");
}

#[test]
fn invalid_examples_are_found() {
    for (block, expected) in [
        ("attention = \"flsh\"", "unknown value \"flsh\""),
        ("attention = { kind = \"linear\", width = 3 }", "width"),
        (
            "[model]\nkind = \"seq2seq\"\nattention = \"dot\" # or \"genral\"",
            "genral",
        ),
        ("attention = \"flash\"\n# attention = \"lnear\"", "lnear"),
        ("[training]\nstepps = 3", "stepps"),
        ("[wheels]\nround = true", "neither"),
        ("[model", "invalid TOML"),
        (
            "[dependencies]\nzoo-attention = { version = \"0.1\", features = [\"flux\"] }",
            "zoo-attention has no feature \"flux\"",
        ),
        (
            "[dependencies]\nzoo-attention = \"7\"",
            "zoo-attention has version",
        ),
        (
            "[dependencies]\nzoo-atention = \"0.1\"",
            "no such crate: zoo-atention",
        ),
    ] {
        let errors = page_errors("a.md", &format!("```toml\n{block}\n```")).join("\n");
        assert!(errors.contains(expected), "{block}\n{errors}");
    }
    let errors = page_errors("a.md", "such as `{ kind = \"lsh\", n_hashs = 3 }`.");
    assert!(errors.join("\n").contains("n_hashs"), "{errors:?}");
}
