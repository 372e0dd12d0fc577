//! Whether the keys, the structs that are read and the document agree.

use serde::Deserialize;
use toml::{Table, Value};

use super::{Key, Presence, Values, Variant};
use crate::check::check_shape;
use crate::sections::SECTIONS;
use crate::tree::Node;
use crate::{Config, docs};

/// The parts of a file that choose each kind of each section.
fn kinds() -> Vec<(&'static str, Option<&'static Variant>, &'static [Key])> {
    let of = |section: &'static super::Section| {
        let tables = section.tables().into_iter();
        tables.map(|(kind, keys)| (section.name, kind, keys))
    };
    SECTIONS.iter().flat_map(of).collect()
}

/// A file with one section of this kind, and this line in it. What fits together is not asked.
fn file(section: &str, kind: Option<&Variant>, line: &str) -> String {
    let mut sections = vec![("data", "reverse"), ("model", "transformer")];
    sections.retain(|(name, _)| *name != section);
    let mut text = format!("[{section}]\n{line}\n");
    let needed = |key: &&Key| matches!(key.presence, Presence::Required);
    if let Some(kind) = kind {
        text += &format!("kind = \"{}\"\n", kind.word);
        for key in kind.keys.iter().filter(needed) {
            if !line.starts_with(key.name) {
                text += &format!("{} = \"a\"\n", key.name);
            }
        }
    }
    for (name, kind) in sections {
        text += &format!("[{name}]\nkind = \"{kind}\"\n");
    }
    text
}

/// The file as the structs have it.
fn read(text: &str) -> Table {
    let tree = Node::parse_file("a.toml", text).expect(text);
    let (table, mistakes) = check_shape(&tree);
    assert!(mistakes.is_empty(), "{text}\n{mistakes:?}");
    let config = Config::deserialize(Value::Table(table)).expect(text);
    Table::try_from(config).expect("plain data")
}

/// Values that a key may have, none of them its default.
fn samples(key: &Key) -> Vec<String> {
    let default = (key.default)();
    let samples = match &key.values {
        Values::Count { least } => vec![(least + 1).to_string(), (least + 37).to_string()],
        Values::Number(range) => [0.125, 0.75, 1.0, 12.5]
            .into_iter()
            .filter(|number| range.contains(*number))
            .map(|number| format!("{number:?}"))
            .collect(),
        Values::Flag => vec!["true".to_owned(), "false".to_owned()],
        Values::Text | Values::Path => vec!["\"other\"".to_owned()],
        Values::Paths => vec!["\"other\"".to_owned(), "[\"one\", \"two\"]".to_owned()],
        Values::Words(variants) => {
            let words = variants.iter().map(|variant| variant.word);
            words.map(|word| format!("\"{word}\"")).collect()
        }
        Values::Choice(choice) => {
            let tables = choice.variants.iter().flat_map(|variant| {
                let of_key = |key: &'static Key| {
                    let samples = samples(key).into_iter();
                    samples.map(|value| {
                        format!("{{ kind = \"{}\", {} = {value} }}", variant.word, key.name)
                    })
                };
                let word = format!("{{ kind = \"{}\" }}", variant.word);
                std::iter::once(word).chain(variant.keys.iter().flat_map(of_key))
            });
            tables.collect()
        }
        Values::Backend => vec!["\"wgpu:1\"".to_owned()],
        Values::Devices => vec!["[0, 1]".to_owned()],
    };
    let is_other = |text: &String| Some(value(text)) != default;
    let samples: Vec<_> = samples.into_iter().filter(is_other).collect();
    assert!(!samples.is_empty(), "{}", key.name);
    samples
}

fn value(text: &str) -> Value {
    let table: Table = toml::from_str(&format!("value = {text}")).expect(text);
    table["value"].clone()
}

#[test]
fn every_key_is_read_into_its_field() {
    let mut count = 0;
    for (section, kind, keys) in kinds() {
        for key in keys {
            for sample in samples(key) {
                let text = file(section, kind, &format!("{} = {sample}", key.name));
                let read = &read(&text)[section][key.name];
                match (value(&sample), read) {
                    // Sizes that were not said are there, too.
                    (Value::Table(said), Value::Table(read)) => {
                        for (name, value) in said {
                            assert_eq!(read.get(&name), Some(&value), "{text}");
                        }
                    }
                    (said, read) => assert_eq!(*read, said, "{text}"),
                }
                count += 1;
            }
        }
    }
    assert!(count > 500, "{count}");
}

#[test]
fn every_field_is_a_key_and_in_the_document() {
    let docs = docs();
    for (section, kind, keys) in kinds() {
        let read = read(&file(section, kind, ""));
        let table = read[section].as_table().expect("a section");
        for field in table.keys().filter(|field| *field != "kind") {
            let key = keys.iter().find(|key| key.name == field);
            assert!(key.is_some(), "{section}.{field} is not documented");
        }
        for key in keys {
            let is_read = table.contains_key(key.name);
            let is_said = !matches!(key.presence, Presence::Optional(_));
            assert_eq!(is_read, is_said, "{section}.{}", key.name);
            let about = key.about.trim();
            assert!(about.ends_with('.'), "{section}.{}: {about}", key.name);
            assert!(docs.contains(about), "{section}.{}: {about}", key.name);
            assert!(
                docs.contains(&format!("| `{}` |", key.name)),
                "{}",
                key.name
            );
        }
        if let Some(kind) = kind {
            assert!(docs.contains(&format!("- `{}`: {}", kind.word, kind.about.trim())));
        }
    }
}

#[test]
fn defaults_are_those_of_the_structs() {
    for (section, kind, keys) in kinds() {
        let read = read(&file(section, kind, ""));
        for key in keys {
            if let (Presence::Usual, Some(default)) = (key.presence, (key.default)()) {
                assert_eq!(read[section][key.name], default, "{section}.{}", key.name);
            }
        }
    }
}

#[test]
fn every_default_is_allowed() {
    for (section, kind, keys) in kinds() {
        for key in keys {
            if let (Presence::Usual, Some(default)) = (key.presence, (key.default)()) {
                read(&file(section, kind, &format!("{} = {default}", key.name)));
            }
        }
    }
}
