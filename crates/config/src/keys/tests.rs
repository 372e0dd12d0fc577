//! Tests that keys, structs and documentation agree.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde::Deserialize;
use toml::{Table, Value};

use super::{Key, Presence, Values, Variant};
use crate::check::check_schema;
use crate::sections::SECTIONS;
use crate::tree::Node;
use crate::{Config, ConfigError, docs};

/// Every kind of every section, with its keys.
fn kinds() -> Vec<(&'static str, Option<&'static Variant>, &'static [Key])> {
    let tables = |section: &'static super::Section| {
        let tables = section.tables().into_iter();
        tables.map(|(kind, keys)| (section.name, kind, keys))
    };
    SECTIONS.iter().flat_map(tables).collect()
}

/// A config with a section of this kind and this line, and a matching model and dataset.
fn file(section: &str, kind: Option<&Variant>, line: &str) -> String {
    let name = kind.map_or("", |kind| kind.name);
    let (data, model) = match (section, name) {
        ("data", "listops" | "documents" | "labelled") => (name, "classifier"),
        ("data", "plain") => (name, "gpt"),
        ("data", name) => (name, "transformer"),
        ("model", "han") => ("documents", name),
        ("model", "classifier") => ("listops", name),
        ("model", "gpt") => ("plain", name),
        ("model", name) => ("reverse", name),
        _ => ("reverse", "transformer"),
    };
    let own = |name: &str| if name == section { line } else { "" };
    let train = match data {
        "plain" | "parallel" | "labelled" if !line.starts_with("train =") => "train = \"a\"\n",
        _ => "",
    };
    let mut text = format!("[data]\nkind = \"{data}\"\n{train}{}\n", own("data"));
    text += &format!("[model]\nkind = \"{model}\"\n{}\n", own("model"));
    if !matches!(section, "data" | "model") {
        let kind = kind.map_or(String::new(), |kind| format!("kind = \"{}\"\n", kind.name));
        text += &format!("[{section}]\n{kind}{line}\n");
    }
    text
}

/// Parses a config and serializes it again.
fn read(text: &str) -> Table {
    let tree = Node::parse_file("a.toml", text).expect(text);
    let (table, diagnostics) = check_schema(&tree);
    assert!(diagnostics.is_empty(), "{text}\n{diagnostics:?}");
    let config = Config::deserialize(Value::Table(table)).expect(text);
    Table::try_from(config).expect("plain data")
}

/// TOML strings.
const TEXTS: [&str; 5] = [
    "\"a.txt\"",
    "\"é \\\"b\\\" # c\"",
    "\"好\\n久\\u0007\"",
    "\"a.zip#b/c.tsv\"",
    "\"'''\"",
];

/// Valid values of a key other than its default.
fn samples(key: &Key) -> Vec<String> {
    let default = (key.default)();
    let samples = match &key.values {
        Values::Count { min, max } => [1, 2, 3, 37, 64, 1 << 20, i64::MAX - 8]
            .map(|offset| min.saturating_add(offset).min(*max).to_string())
            .to_vec(),
        Values::Number(range) => [0.125, 0.75, 1.0, 12.5, 1e-6, 1e6, 1e300, 5e-324, 0.1 + 0.2]
            .into_iter()
            .filter(|value| range.contains(*value))
            .map(|value| format!("{value:?}"))
            .collect(),
        Values::Bool => vec!["true".to_owned(), "false".to_owned()],
        Values::Text | Values::Path => TEXTS.map(str::to_owned).to_vec(),
        Values::Paths => {
            let two = format!("[{}, {}]", TEXTS[0], TEXTS[1]);
            TEXTS.map(str::to_owned).into_iter().chain([two]).collect()
        }
        Values::Names(variants) => {
            let names = variants.iter().map(|variant| variant.name);
            names.map(|name| format!("\"{name}\"")).collect()
        }
        Values::Choice(choice) | Values::Choices(choice) => {
            let names = choice.variants.iter().map(|variant| variant.name);
            let items = names.take(3).map(|name| format!("{{ kind = \"{name}\" }}"));
            let list = format!("[{}]", items.collect::<Vec<_>>().join(", "));
            let list = matches!(key.values, Values::Choices(_)).then_some(list);
            let tables = choice.variants.iter().flat_map(|variant| {
                let with_key = |key: &'static Key| {
                    let samples = samples(key).into_iter();
                    samples.map(|value| inline_table(variant, Some((key, &value))))
                };
                let alone = inline_table(variant, None);
                std::iter::once(alone).chain(variant.keys.iter().flat_map(with_key))
            });
            tables.chain(list).collect()
        }
        Values::Backend => ["\"wgpu:1\"", "\"tch-cuda\""].map(str::to_owned).to_vec(),
        Values::Devices => ["[0]", "[0, 1]", "[1, 1]"].map(str::to_owned).to_vec(),
    };
    let differs = |text: &String| Some(value(text)) != default;
    let samples: Vec<_> = samples.into_iter().filter(differs).collect();
    assert!(!samples.is_empty(), "{}", key.name);
    samples
}

/// A table with a kind, one key and the required ones.
fn inline_table(variant: &Variant, set: Option<(&Key, &str)>) -> String {
    let mut text = format!("{{ kind = \"{}\"", variant.name);
    for key in variant.keys {
        let is_required = matches!(key.presence, Presence::Required);
        text += &match set {
            Some((set, value)) if set.name == key.name => format!(", {} = {value}", key.name),
            _ if is_required => format!(", {} = {}", key.name, samples(key)[0]),
            _ => String::new(),
        };
    }
    text + " }"
}

/// Checks that a value has everything that was written; the other keys of a table have defaults.
fn assert_contains(read: &Value, written: &Value, text: &str) {
    match (read, written) {
        (Value::Table(read), Value::Table(written)) => {
            for (name, value) in written {
                let read = read
                    .get(name)
                    .unwrap_or_else(|| panic!("no {name}: {text}"));
                assert_contains(read, value, text);
            }
        }
        _ => assert_eq!(read, written, "{text}"),
    }
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
                assert_contains(read, &value(&sample), &text);
                count += 1;
            }
        }
    }
    assert!(count > 500, "{count}");
}

#[test]
fn every_field_is_documented() {
    let docs = docs();
    for (section, kind, keys) in kinds() {
        let defaults = read(&file(section, kind, ""));
        let table = defaults[section].as_table().expect("a section");
        for field in table.keys().filter(|field| *field != "kind") {
            let key = keys.iter().find(|key| key.name == field);
            assert!(key.is_some(), "{section}.{field} is not documented");
        }
        for key in keys {
            let has_value = table.contains_key(key.name);
            let has_default = !matches!(key.presence, Presence::Optional(_));
            assert_eq!(has_value, has_default, "{section}.{}", key.name);
            let about = key.about.trim();
            assert!(about.ends_with('.'), "{section}.{}: {about}", key.name);
            assert!(docs.contains(about), "{section}.{}: {about}", key.name);
            let row = format!("| `{}` |", key.name);
            assert!(docs.contains(&row), "{row}");
            // The declared default is the struct's, and valid.
            if let (Presence::Default, Some(default)) = (key.presence, (key.default)()) {
                assert_eq!(table[key.name], default, "{section}.{}", key.name);
                let line = format!("{} = {default}", key.name);
                read(&file(section, kind, &line));
            }
        }
        if let Some(kind) = kind {
            assert!(docs.contains(&format!("- `{}`: {}", kind.name, kind.about.trim())));
        }
    }
}

/// The integers of a key, also of tables within it: the name of each, a value of the key with the
/// placeholder `VALUE`, and the upper bound.
fn integers(key: &'static Key) -> Vec<(&'static str, String, i64)> {
    match &key.values {
        Values::Count { max, .. } => vec![(key.name, "VALUE".to_owned(), *max)],
        Values::Devices => vec![(key.name, "[VALUE]".to_owned(), i64::MAX)],
        Values::Choice(choice) | Values::Choices(choice) => {
            let keys =
                |variant: &'static Variant| variant.keys.iter().map(move |key| (variant, key));
            let keys = choice.variants.iter().flat_map(keys);
            let tables = keys.flat_map(|(variant, key)| {
                let integers = integers(key).into_iter();
                integers.map(move |(name, value, max)| {
                    (name, inline_table(variant, Some((key, &value))), max)
                })
            });
            tables.collect()
        }
        _ => vec![],
    }
}

/// Calls `each` for every integer key with its section and kind, the names of the key and its parent,
/// a line with the placeholder `VALUE`, and the upper bound.
fn for_each_integer(
    mut each: impl FnMut(&'static str, Option<&'static Variant>, [&str; 2], &str, i64),
) {
    for (section, kind, keys) in kinds() {
        for key in keys {
            for (name, value, max) in integers(key) {
                let line = format!("{} = {value}", key.name);
                each(section, kind, [name, key.name], &line, max);
            }
        }
    }
}

/// Extreme values and upper bounds are either rejected by name or can be estimated, without an
/// overflow.
#[test]
fn extreme_values_are_rejected_or_estimated() {
    let extremes = [
        "0",
        "1",
        "-1",
        "2147483648",
        "4294967296",
        "2305843009213693952",
        "1000000000000000000",
        "9223372036854775807",
        "18446744073709551615",
        "MAX",
    ];
    let large = crate::DataSizes {
        vocabulary: 1 << 21,
        target_vocabulary: None,
        examples: usize::MAX,
        shortest: 1 << 30,
    };
    let start = std::time::Instant::now();
    let (mut rejected, mut accepted, mut accepted_max) = (0, 0, 0);
    for_each_integer(|section, kind, names, line, max| {
        for value in extremes {
            let max = max.to_string();
            let value_or_max = if value == "MAX" { &max } else { value };
            let text = file(section, kind, &line.replace("VALUE", value_or_max));
            match Config::parse("a.toml", &text, &[]) {
                Ok(config) => {
                    for sizes in [large, crate::DataSizes::default()] {
                        assert!(config.estimate(sizes).total() > 0, "{text}");
                    }
                    accepted += 1;
                    accepted_max += usize::from(value == "MAX");
                }
                Err(error) => {
                    let message = error.to_string();
                    let is_named = names.iter().any(|name| message.contains(name));
                    assert!(is_named, "{text}\n{message}");
                    rejected += 1;
                }
            }
        }
    });
    let elapsed = start.elapsed();
    assert!(rejected > 500 && accepted > 100, "{rejected}, {accepted}");
    assert!(accepted_max > 50, "{accepted_max}");
    assert!(elapsed < std::time::Duration::from_secs(60), "{elapsed:?}");
}

/// Random choices from a sequence of integers; zeros after its end.
struct Choices(std::vec::IntoIter<u32>);

impl Choices {
    fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.0.next().unwrap_or(0) as usize % items.len()]
    }

    /// A config with a kind for each section and some of its keys.
    fn file(&mut self) -> String {
        let mut text = String::new();
        for section in SECTIONS {
            text += &format!("[{}]\n", section.name);
            let tables = section.tables();
            let (kind, keys) = self.choose(&tables);
            if let Some(kind) = kind {
                text += &format!("kind = \"{}\"\n", kind.name);
            }
            for key in *keys {
                let is_required = matches!(key.presence, Presence::Required);
                if is_required || *self.choose(&[false, true, false, false]) {
                    text += &format!("{} = {}\n", key.name, self.choose(&samples(key)));
                }
            }
        }
        text
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        // Reproducible on every machine.
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    /// Random configs of valid keys pass the schema check; a consistent one round-trips.
    #[test]
    fn random_configs_round_trip_or_are_inconsistent(
        integers in prop::collection::vec(any::<u32>(), 0..200),
    ) {
        let text = Choices(integers.into_iter()).file();
        let tree = Node::parse_file("a.toml", &text).unwrap();
        let (_, diagnostics) = check_schema(&tree);
        prop_assert!(diagnostics.is_empty(), "{:?}\n{}", diagnostics, text);
        match Config::parse("a.toml", &text, &[]) {
            Ok(config) => {
                let printed = config.to_toml();
                let again = Config::parse("a.toml", &printed, &[]);
                prop_assert_eq!(again.as_ref().ok(), Some(&config), "\n{}\n{:?}", printed, again);
            }
            Err(ConfigError::Diagnostics(_)) => {}
            Err(other) => prop_assert!(false, "{}\n{}", other, text),
        }
    }
}
