//! What the documentation writes in TOML is read as a run's file would be.
//!
//! A block of a page is part of a `Cargo.toml` or of a run's file, by the tables it has; keys
//! outside of any table are those of `[model]`. What a block leaves out is filled in with the
//! least that trains. Alternatives in comments are tried in their place.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};
use zoo_config::{Config, DOCS_PATH, Override, docs};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page, by its place in the workspace.
fn pages() -> BTreeMap<String, String> {
    let root = workspace();
    let crates = fs::read_dir(root.join("crates")).expect("the folder of crates");
    let mut folders: Vec<PathBuf> = crates
        .map(|entry| entry.expect("an entry").path())
        .collect();
    let others = [
        "",
        "configs",
        "docs",
        "docs/mechanisms",
        "docs/theory",
        "fuzz",
    ];
    folders.extend(others.map(|folder| root.join(folder)));
    let mut pages = BTreeMap::new();
    for folder in folders {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(&root).expect("below it").display();
                let text = fs::read_to_string(&path).expect("text");
                pages.insert(name.to_string(), text);
            }
        }
    }
    pages
}

fn toml_blocks(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split("```toml\n").skip(1);
    blocks.filter_map(|rest| rest.split("```").next())
}

/// What a block is a part of, with its tables.
#[derive(Debug, PartialEq, Clone, Copy)]
enum Part {
    Manifest,
    Run,
}

/// The tables of a `Cargo.toml` that a page may show.
const OF_MANIFESTS: [&str; 5] = [
    "dependencies",
    "dev-dependencies",
    "features",
    "package",
    "profile",
];

fn part(block: &str) -> Result<(Part, Table), String> {
    let table: Table = block
        .parse()
        .map_err(|error| format!("no TOML: {error}\n{block}"))?;
    let sections = docs();
    let is_section_of_run = |key: &String| sections.contains(&format!("\n## `[{key}]`\n"));
    if table.keys().all(|key| OF_MANIFESTS.contains(&key.as_str())) {
        Ok((Part::Manifest, table))
    } else if table.keys().all(is_section_of_run) {
        Ok((Part::Run, table))
    } else if table.values().all(|value| !is_section(value)) {
        let model = Table::from_iter([("model".to_owned(), Value::Table(table))]);
        Ok((Part::Run, model))
    } else {
        Err(format!("neither of a Cargo.toml nor of a run:\n{block}"))
    }
}

/// Whether a value is a table that is not one of a word and its sizes.
fn is_section(value: &Value) -> bool {
    value.is_table() && value.get("kind").is_none()
}

/// The least that trains each model.
const LEAST: [(&str, &str); 5] = [
    ("transformer", "kind = \"reverse\""),
    ("seq2seq", "kind = \"reverse\""),
    ("han", "kind = \"documents\""),
    ("classifier", "kind = \"listops\""),
    ("gpt", "kind = \"plain\"\ntrain = \"a.txt\""),
];

/// Reads a part of a file, filled up for each model: one of them must take it.
fn read(part: &Table) -> Result<Config, String> {
    let mut refused = String::new();
    for (model, data) in LEAST {
        let mut whole = part.clone();
        let data: Table = data.parse().expect("TOML");
        whole.entry("data").or_insert(Value::Table(data));
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
            Err(error) => refused += &format!("as {model}: {error}\n"),
        }
    }
    Err(format!("{refused}\n{part}"))
}

/// A block as it stands, and with each alternative that its comments name: `# key = value` for
/// a line above it, and `key = "a" # or "b", "c"`.
fn alternatives(block: &str) -> Vec<String> {
    let key = |line: &str| line.split('=').next().map(|key| key.trim().to_owned());
    let lines: Vec<&str> = block.lines().collect();
    let with = |at: usize, line: &str| {
        let mut lines = lines.clone();
        lines[at] = line;
        lines.join("\n")
    };
    let mut all = vec![block.to_owned()];
    for (at, line) in lines.iter().enumerate() {
        if let Some(commented) = line.strip_prefix("# ")
            && commented.parse::<Table>().is_ok()
            && let Some(above) = lines.iter().position(|line| key(line) == key(commented))
        {
            all.push(with(above, commented));
        }
        if let Some((set, words)) = line.split_once("# or ")
            && let Some(key) = key(set)
        {
            let words = words.split('"').skip(1).step_by(2);
            all.extend(words.map(|word| with(at, &format!("{key} = \"{word}\""))));
        }
    }
    all
}

/// A page with what it does not say rightly.
fn wrong(name: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for block in toml_blocks(text) {
        for block in alternatives(block) {
            let told = part(&block).and_then(|(part, table)| match part {
                Part::Run => read(&table).map(|_| ()),
                Part::Manifest => check_manifest(&table),
            });
            let told = told.err();
            wrong.extend(told.map(|told| format!("{name}: {told}")));
        }
    }
    // Tables of a mechanism and its sizes in the middle of a sentence. The list of keys has
    // others, too, and is written from the code.
    if name != DOCS_PATH {
        for rest in text.split("{ kind = ").skip(1) {
            let rest = rest.split('}').next().unwrap_or_default();
            let attention = format!("attention = {{ kind = {rest}}}");
            let read = part(&attention).and_then(|(_, table)| read(&table));
            wrong.extend(read.err().map(|told| format!("{name}: {told}")));
        }
    }
    wrong
}

/// Our own crates in a `Cargo.toml` exist, with the version and the features asked for.
fn check_manifest(table: &Table) -> Result<(), String> {
    let dependencies = ["dependencies", "dev-dependencies"]
        .iter()
        .filter_map(|section| table.get(*section)?.as_table())
        .flatten();
    for (name, asked) in dependencies {
        let Some(folder) = name.strip_prefix("zoo-") else {
            continue;
        };
        let path = workspace().join("crates").join(folder).join("Cargo.toml");
        let manifest = fs::read_to_string(path).map_err(|_| format!("there is no {name}"))?;
        let manifest: Table = manifest.parse().map_err(|error| format!("{error}"))?;
        if let Some(version) = asked.get("version").unwrap_or(asked).as_str() {
            let ours = env!("CARGO_PKG_VERSION");
            if !ours.starts_with(version) {
                return Err(format!("{name} is of version {ours}, not {version}"));
            }
        }
        let features = asked.get("features").and_then(Value::as_array);
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
fn what_pages_write_in_toml_can_be_read() {
    let wrong: Vec<String> = (pages().iter())
        .flat_map(|(name, text)| wrong(name, text))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn there_are_pages_of_every_sort() {
    let pages = pages();
    for (name, expected) in [
        ("crates/attention/README.md", Part::Manifest),
        ("docs/mechanisms/scores.md", Part::Run),
        (DOCS_PATH, Part::Run),
    ] {
        let parts = toml_blocks(&pages[name]).map(|block| part(block).expect("a part").0);
        assert_eq!(parts.collect::<Vec<_>>(), [expected], "{name}");
    }
    let linear = toml_blocks(&pages["docs/mechanisms/linear.md"]).next();
    assert_eq!(alternatives(linear.expect("a block")).len(), 2);
}

#[test]
fn commands_name_files_that_are_there_and_keys_that_they_have() {
    let mut seen = 0;
    for (name, text) in pages() {
        let commands = text.lines().filter(|line| {
            line.starts_with("cargo xtask train configs/") && !line.contains("NAME.toml")
        });
        for command in commands {
            let command = command.split(" #").next().unwrap_or_default();
            let words: Vec<&str> = command.split_whitespace().collect();
            let values = words.windows(2).filter(|pair| pair[0] == "--set");
            let overrides: Result<Vec<Override>, _> =
                values.map(|pair| Override::set(pair[1])).collect();
            let read = overrides
                .and_then(|overrides| Config::read(&workspace().join(words[3]), &overrides));
            assert!(read.is_ok(), "{name}: {command}\n{}", read.unwrap_err());
            seen += 1;
        }
    }
    assert!(seen >= 5, "{seen}");
}

#[test]
fn what_went_stale_is_told() {
    for (page, told) in [
        (
            "```toml\nattention = \"flsh\"\n```",
            "unknown word \"flsh\"",
        ),
        (
            "```toml\nattention = { kind = \"linear\", width = 3 }\n```",
            "width",
        ),
        (
            "```toml\n[model]\nkind = \"seq2seq\"\nattention = \"dot\" # or \"genral\"\n```",
            "genral",
        ),
        (
            "```toml\nattention = \"flash\"\n# attention = \"lnear\"\n```",
            "lnear",
        ),
        ("```toml\n[training]\nstepps = 3\n```", "stepps"),
        ("```toml\n[wheels]\nround = true\n```", "neither"),
        ("```toml\n[model\n```", "no TOML"),
        (
            "```toml\n[dependencies]\nzoo-attention = { version = \"0.1\", features = [\"flux\"] }\n```",
            "zoo-attention has no feature \"flux\"",
        ),
        (
            "```toml\n[dependencies]\nzoo-attention = \"7\"\n```",
            "zoo-attention is of version",
        ),
        (
            "```toml\n[dependencies]\nzoo-atention = \"0.1\"\n```",
            "there is no zoo-atention",
        ),
        ("such as `{ kind = \"lsh\", rouns = 3 }`.", "rouns"),
    ] {
        let wrong = wrong("a.md", page).join("\n");
        assert!(wrong.contains(told), "{page}\n{wrong}");
    }
}
