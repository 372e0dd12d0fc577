//! A config as a file, every default written out.

use std::fmt::Write;

use toml::{Table, Value};

use crate::Config;
use crate::keys::{Body, Key, Presence, Section, Values, Variant};
use crate::sections::SECTIONS;

/// What stands beside keys.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Comments {
    /// What keys are that are not set.
    Few,
    /// What every key is.
    All,
}

/// The config as a file that reads back to the same.
pub(crate) fn config(config: &Config) -> String {
    sections(config, Comments::Few)
}

/// Every section of the config.
pub(crate) fn sections(config: &Config, comments: Comments) -> String {
    // Plain data: nothing in it can fail to be a table.
    let tables = Table::try_from(config).unwrap_or_default();
    let mut text = String::new();
    for section in SECTIONS {
        let Some(Value::Table(table)) = tables.get(section.name) else {
            continue;
        };
        if !text.is_empty() {
            text.push('\n');
        }
        write_section(&mut text, section, table, comments);
    }
    text
}

fn write_section(text: &mut String, section: &Section, table: &Table, comments: Comments) {
    if comments == Comments::All {
        let _ = writeln!(text, "# {}", section.about.trim());
    }
    let _ = writeln!(text, "[{}]", section.name);
    let keys = match section.body {
        Body::Keys(keys) => keys,
        Body::Kinds(kinds, _) => {
            let word = table.get("kind").and_then(Value::as_str);
            let Some(kind) = word.and_then(|word| Variant::named(kinds, word)) else {
                return;
            };
            if comments == Comments::All {
                let _ = writeln!(text, "# {}", kind.about.trim());
                let others = kinds.iter().map(|kind| kind.word).collect::<Vec<_>>();
                let _ = writeln!(text, "# One of {}.", others.join(", "));
            }
            let _ = writeln!(text, "kind = \"{}\"", kind.word);
            kind.keys
        }
    };
    for key in keys {
        write_key(text, key, table.get(key.name), comments);
    }
}

fn write_key(text: &mut String, key: &Key, value: Option<&Value>, comments: Comments) {
    if comments == Comments::All {
        let _ = writeln!(text, "# {}", key.about.trim());
        if let Values::Words(variants) = key.values {
            let words: Vec<_> = variants.iter().map(|variant| variant.word).collect();
            let _ = writeln!(text, "# One of {}.", words.join(", "));
        }
    }
    match (value, key.presence) {
        (Some(value), _) => {
            let _ = writeln!(text, "{} = {}", key.name, inline(value, &key.values));
        }
        (None, Presence::Optional(meaning)) => {
            let _ = writeln!(text, "# {} is not set: {meaning}", key.name);
        }
        (None, Presence::Usual | Presence::Required) => {}
    }
}

/// A value on one line; of a choice without sizes the word alone.
pub(crate) fn inline(value: &Value, values: &Values) -> String {
    let (Values::Choice(choice), Value::Table(table)) = (values, value) else {
        return value.to_string();
    };
    let word = table
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let keys = Variant::named(choice.variants, word).map_or(&[][..], |variant| variant.keys);
    let mut parts = vec![format!("kind = \"{word}\"")];
    for key in keys {
        if let Some(value) = table.get(key.name) {
            parts.push(format!("{} = {}", key.name, inline(value, &key.values)));
        }
    }
    match parts.len() {
        1 => format!("\"{word}\""),
        _ => format!("{{ {} }}", parts.join(", ")),
    }
}
