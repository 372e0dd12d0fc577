//! Whether the keys, the structs that are read and the document agree.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde::Deserialize;
use toml::{Table, Value};

use super::{Key, Presence, Values, Variant};
use crate::check::check_shape;
use crate::sections::SECTIONS;
use crate::tree::Node;
use crate::{Config, ConfigError, docs};

/// The parts of a file that choose each kind of each section.
fn kinds() -> Vec<(&'static str, Option<&'static Variant>, &'static [Key])> {
    let of = |section: &'static super::Section| {
        let tables = section.tables().into_iter();
        tables.map(|(kind, keys)| (section.name, kind, keys))
    };
    SECTIONS.iter().flat_map(of).collect()
}

/// A file with one section of this kind and this line in it, whose model and data are of one kind.
fn file(section: &str, kind: Option<&Variant>, line: &str) -> String {
    let word = kind.map_or("", |kind| kind.word);
    let (data, model) = match (section, word) {
        ("data", "listops" | "documents" | "labelled") => (word, "classifier"),
        ("data", "plain") => (word, "gpt"),
        ("data", word) => (word, "transformer"),
        ("model", "han") => ("documents", word),
        ("model", "classifier") => ("listops", word),
        ("model", "gpt") => ("plain", word),
        ("model", word) => ("reverse", word),
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
        let kind = kind.map_or(String::new(), |kind| format!("kind = \"{}\"\n", kind.word));
        text += &format!("[{section}]\n{kind}{line}\n");
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

/// Texts as TOML writes them.
const TEXTS: [&str; 5] = [
    "\"a.txt\"",
    "\"é \\\"b\\\" # c\"",
    "\"好\\n久\\u0007\"",
    "\"a.zip#b/c.tsv\"",
    "\"'''\"",
];

/// Values that a key may have, none of them its default.
fn samples(key: &Key) -> Vec<String> {
    let default = (key.default)();
    let samples = match &key.values {
        Values::Count { least, most } => [1, 2, 3, 37, 64, 1 << 20, i64::MAX - 8]
            .map(|more| least.saturating_add(more).min(*most).to_string())
            .to_vec(),
        Values::Number(range) => [0.125, 0.75, 1.0, 12.5, 1e-6, 1e6, 1e300, 5e-324, 0.1 + 0.2]
            .into_iter()
            .filter(|number| range.contains(*number))
            .map(|number| format!("{number:?}"))
            .collect(),
        Values::Flag => vec!["true".to_owned(), "false".to_owned()],
        Values::Text | Values::Path => TEXTS.map(str::to_owned).to_vec(),
        Values::Paths => {
            let two = format!("[{}, {}]", TEXTS[0], TEXTS[1]);
            TEXTS.map(str::to_owned).into_iter().chain([two]).collect()
        }
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
        Values::Backend => ["\"wgpu:1\"", "\"tch-cuda\""].map(str::to_owned).to_vec(),
        Values::Devices => ["[0]", "[0, 1]", "[1, 1]"].map(str::to_owned).to_vec(),
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
        let defaults = read(&file(section, kind, ""));
        let table = defaults[section].as_table().expect("a section");
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
            let row = format!("| `{}` |", key.name);
            assert!(docs.contains(&row), "{row}");
            // Its default is that of the struct, and allowed.
            if let (Presence::Usual, Some(default)) = (key.presence, (key.default)()) {
                assert_eq!(table[key.name], default, "{section}.{}", key.name);
                let line = format!("{} = {default}", key.name);
                read(&file(section, kind, &line));
            }
        }
        if let Some(kind) = kind {
            assert!(docs.contains(&format!("- `{}`: {}", kind.word, kind.about.trim())));
        }
    }
}

/// Calls `each` for every whole number that a file can say, with its section and kind, the names of
/// the key and of the one it is part of, a line with `VALUE` for the number, and its upper bound.
fn for_each_integer(
    mut each: impl FnMut(&'static str, Option<&'static Variant>, [&str; 2], &str, i64),
) {
    for (section, kind, keys) in kinds() {
        for key in keys {
            let name = key.name;
            let mut add = |inner: &str, value: &str, most: i64| {
                let line = format!("{name} = {value}");
                each(section, kind, [inner, name], &line, most);
            };
            match &key.values {
                Values::Count { most, .. } => add(name, "VALUE", *most),
                Values::Devices => add(name, "[VALUE]", i64::MAX),
                Values::Choice(choice) => {
                    for variant in choice.variants {
                        for inner in variant.keys {
                            if let Values::Count { most, .. } = inner.values {
                                let (kind, inner) = (variant.word, inner.name);
                                let table = format!("{{ kind = \"{kind}\", {inner} = VALUE }}");
                                add(inner, &table, most);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// What is absurd, or the upper bound of its key, is refused by name, or fits and can be counted:
/// at once, and without an overflow or a panic.
#[test]
fn absurd_and_largest_sizes_are_refused_by_name_or_counted() {
    let absurd = [
        "0",
        "1",
        "-1",
        "2147483648",
        "4294967296",
        "2305843009213693952",
        "1000000000000000000",
        "9223372036854775807",
        "18446744073709551615",
        "MOST",
    ];
    let all = crate::DataSizes {
        vocabulary: 1 << 21,
        target_vocabulary: None,
        examples: usize::MAX,
        shortest: 1 << 30,
    };
    let start = std::time::Instant::now();
    let (mut refused, mut counted, mut counted_at_most) = (0, 0, 0);
    for_each_integer(|section, kind, names, line, most| {
        for value in absurd {
            let most = most.to_string();
            let value_or_most = if value == "MOST" { &most } else { value };
            let text = file(section, kind, &line.replace("VALUE", value_or_most));
            match Config::parse("a.toml", &text, &[]) {
                Ok(config) => {
                    for sizes in [all, crate::DataSizes::default()] {
                        assert!(config.estimate(sizes).total() > 0, "{text}");
                    }
                    counted += 1;
                    counted_at_most += usize::from(value == "MOST");
                }
                Err(error) => {
                    let said = error.to_string();
                    let is_named = names.iter().any(|name| said.contains(name));
                    assert!(is_named, "{text}\n{said}");
                    refused += 1;
                }
            }
        }
    });
    let took = start.elapsed();
    assert!(refused > 500 && counted > 100, "{refused}, {counted}");
    assert!(counted_at_most > 50, "{counted_at_most}");
    assert!(took < std::time::Duration::from_secs(60), "{took:?}");
}

/// Numbers that decide, one after the other; zeros when there are no more.
struct Dice(std::vec::IntoIter<u32>);

impl Dice {
    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.0.next().unwrap_or(0) as usize % of.len()]
    }

    /// A file with a kind for each section, and any of its keys.
    fn file(&mut self) -> String {
        let mut text = String::new();
        for section in SECTIONS {
            text += &format!("[{}]\n", section.name);
            let tables = section.tables();
            let (kind, keys) = self.one(&tables);
            if let Some(kind) = kind {
                text += &format!("kind = \"{}\"\n", kind.word);
            }
            for key in *keys {
                let is_needed = matches!(key.presence, Presence::Required);
                if is_needed || *self.one(&[false, true, false, false]) {
                    text += &format!("{} = {}\n", key.name, self.one(&samples(key)));
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
        // The same on every machine: what fails here fails there.
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    /// Files drawn from the list of keys: what is allowed key by key is refused only for what it
    /// does not go together with, and what is right reads back to the same.
    #[test]
    fn what_is_allowed_is_right_or_does_not_go_together(
        numbers in prop::collection::vec(any::<u32>(), 0..200),
    ) {
        let text = Dice(numbers.into_iter()).file();
        let tree = Node::parse_file("a.toml", &text).unwrap();
        let (_, mistakes) = check_shape(&tree);
        prop_assert!(mistakes.is_empty(), "{:?}\n{}", mistakes, text);
        match Config::parse("a.toml", &text, &[]) {
            Ok(config) => {
                let printed = config.to_toml();
                let again = Config::parse("a.toml", &printed, &[]);
                prop_assert_eq!(again.as_ref().ok(), Some(&config), "\n{}\n{:?}", printed, again);
            }
            // What does not go together.
            Err(ConfigError::Mistakes(_)) => {}
            Err(other) => prop_assert!(false, "{}\n{}", other, text),
        }
    }
}
