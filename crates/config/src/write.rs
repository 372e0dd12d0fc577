//! Writing a config as TOML.

use std::fmt::Write;

use toml::{Table, Value};

use crate::Config;
use crate::keys::{Body, Key, Presence, Section, Values, Variant};
use crate::sections::SECTIONS;

impl Config {
    /// The config as TOML with every default; parsing it gives the same config.
    pub fn to_toml(&self) -> String {
        let write_key = |text: &mut String, key: &Key, value: Option<&Value>, _: &Table| {
            let name = key.name;
            let _ = match (value, key.presence) {
                (Some(value), _) => writeln!(text, "{name} = {}", inline(value, &key.values)),
                (None, Presence::Optional(meaning)) => {
                    writeln!(text, "# {name} is not set (default: {meaning})")
                }
                (None, Presence::Default | Presence::Required) => Ok(()),
            };
        };
        sections(self, self, |_, _, _| {}, write_key)
    }
}

/// The config with a comment for each key. Keys that only `resolved` sets are commented out.
pub(crate) fn commented(config: &Config, resolved: &Config) -> String {
    let write_key = |text: &mut String, key: &Key, value: Option<&Value>, filled: &Table| {
        let mut about = key.about.trim().to_owned();
        if let Presence::Optional(meaning) = key.presence {
            let _ = write!(about, " Default: {meaning}.");
        }
        let _ = write!(text, "\n{}", comment(&about));
        if let Values::Names(variants) = key.values {
            *text += &comment(&format!("One of {}.", listed(variants)));
        }
        let _ = match (value, filled.get(key.name)) {
            (Some(value), _) => writeln!(text, "{} = {}", key.name, inline(value, &key.values)),
            (None, Some(value)) => {
                writeln!(text, "# {} = {}", key.name, inline(value, &key.values))
            }
            (None, None) => writeln!(text, "# {} =", key.name),
        };
    };
    let about = |text: &mut String, section: &Section, kind: Option<&Variant>| {
        let lines = match (kind, &section.body) {
            (Some(kind), Body::Kinds(kinds, _)) => {
                comment(kind.about) + &comment(&format!("One of {}.", listed(kinds)))
            }
            _ => comment(section.about),
        };
        *text += &lines;
    };
    sections(config, resolved, about, write_key)
}

/// Lines of a comment, at most 100 columns wide.
fn comment(text: &str) -> String {
    let mut lines = String::new();
    let mut line = "#".to_owned();
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > 100 && line.len() > 1 {
            lines += &line;
            lines.push('\n');
            line.truncate(1);
        }
        line.push(' ');
        line += word;
    }
    lines + &line + "\n"
}

fn listed(variants: &[Variant]) -> String {
    let names: Vec<_> = variants.iter().map(|variant| variant.name).collect();
    names.join(", ")
}

/// Every section of `resolved`, with its keys in order of declaration.
fn sections(
    config: &Config,
    resolved: &Config,
    about: impl Fn(&mut String, &Section, Option<&Variant>),
    write_key: impl Fn(&mut String, &Key, Option<&Value>, &Table),
) -> String {
    // Serializing plain data to a table cannot fail.
    let [written, filled] =
        [config, resolved].map(|config| Table::try_from(config).unwrap_or_default());
    let mut text = String::new();
    for section in SECTIONS {
        let tables = (written.get(section.name), filled.get(section.name));
        let (Some(Value::Table(table)), Some(Value::Table(filled))) = tables else {
            continue;
        };
        if !text.is_empty() {
            text.push('\n');
        }
        about(&mut text, section, None);
        let _ = writeln!(text, "[{}]", section.name);
        let keys = match section.body {
            Body::Keys(keys) => keys,
            Body::Kinds(kinds, _) => {
                let name = table.get("kind").and_then(Value::as_str);
                let Some(kind) = name.and_then(|name| Variant::named(kinds, name)) else {
                    continue;
                };
                about(&mut text, section, Some(kind));
                let _ = writeln!(text, "kind = \"{}\"", kind.name);
                kind.keys
            }
        };
        for key in keys {
            write_key(&mut text, key, table.get(key.name), filled);
        }
    }
    text
}

/// A variant as a value with its default keys: `"flash"`, `{ kind = "block", block_size = 256 }`.
pub(crate) fn with_defaults(variant: &Variant) -> String {
    inline_table(variant, |key| (key.default)())
}

/// An inline table with a kind; just its name without keys.
fn inline_table(variant: &Variant, value: impl Fn(&Key) -> Option<Value>) -> String {
    let kind = variant.name;
    let set = |key: &Key| {
        let value = inline(&value(key)?, &key.values);
        Some(format!("{} = {value}", key.name))
    };
    let keys: Vec<String> = variant.keys.iter().filter_map(set).collect();
    if keys.is_empty() {
        return format!("\"{kind}\"");
    }
    format!("{{ kind = \"{kind}\", {} }}", keys.join(", "))
}

/// A value on one line; a choice without keys is just its name.
pub(crate) fn inline(value: &Value, values: &Values) -> String {
    let kind = value.get("kind").and_then(Value::as_str);
    match (values, value) {
        (Values::Choices(choice), Value::Array(list)) => {
            let item = |value| inline(value, &Values::Choice(*choice));
            let items: Vec<String> = list.iter().map(item).collect();
            format!("[{}]", items.join(", "))
        }
        (Values::Choice(choice) | Values::Choices(choice), Value::Table(table)) => kind
            .and_then(|kind| Variant::named(choice.variants, kind))
            .map(|variant| inline_table(variant, |key| table.get(key.name).cloned()))
            .unwrap_or_default(),
        (_, Value::Float(small)) if *small != 0.0 && small.abs() < 1e-4 => format!("{small:e}"),
        _ => value.to_string(),
    }
}
