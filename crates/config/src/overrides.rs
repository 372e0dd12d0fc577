//! Keys set on the command line.

use std::ops::Range;
use std::sync::Arc;

use zoo_spec::Mechanism;

use crate::error::{ConfigError, Diagnostic, Diagnostics, Location, Source};
use crate::tree::{Node, Value};

/// Keys of which a config has at most one.
const ALTERNATIVES: [[&str; 2]; 3] = [
    ["training.steps", "training.epochs"],
    ["data.valid", "data.valid_fraction"],
    ["data.test", "data.test_fraction"],
];

/// A key and value from a flag.
#[derive(Debug, Clone)]
pub struct Override {
    path: Vec<String>,
    /// Location of the key; the value has another.
    location: Location,
    node: Node,
    /// Whether it is one of the mechanisms of `all`.
    is_from_all: bool,
}

/// The value of an attention key that stands for every mechanism.
const ALL: &str = "all";

impl Override {
    /// Parses the argument of `--set`, for example `model.layers=4`. A value that is not TOML is a
    /// string.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Diagnostics`] without a full key and `=`.
    pub fn set(text: &str) -> Result<Self, ConfigError> {
        let flag = Flag::parse("--set", text, "--set model.layers=4")?;
        let value = trimmed(text, flag.values.clone());
        Ok(flag.with_value(value))
    }

    /// Parses the argument of `--sweep`, for example `model.layers=2,4`: a key with several values.
    /// A comma in brackets or quotes is part of a value. For keys that end with `attention`, `all` is
    /// every mechanism with default keys, except those that are listed as well:
    /// `model.attention=all,{ kind = "linformer", length = 4096 }`.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Diagnostics`] without a full key and `=`, and for an empty value.
    pub fn sweep(text: &str) -> Result<Vec<Self>, ConfigError> {
        let flag = Flag::parse("--sweep", text, "--sweep model.layers=2,4")?;
        let values = split_values(text, flag.values.clone());
        if let Some(empty) = values.iter().find(|value| value.is_empty()) {
            return Err(flag.invalid(empty.clone(), "expected a value"));
        }
        let is_attention = flag.path.last().is_some_and(|it| it.ends_with("attention"));
        let is_all = |value: &Range<usize>| is_attention && &text[value.clone()] == ALL;
        let listed = values.iter().filter(|it| !is_all(it));
        let listed = listed.filter_map(|it| flag.with_value(it.clone()).mechanism());
        let listed: Vec<Mechanism> = listed.collect();
        let mut swept = vec![];
        for value in values {
            if is_all(&value) {
                let others = Mechanism::ALL.iter().filter(|it| !listed.contains(it));
                swept.extend(others.map(|it| flag.with_mechanism(*it)));
            } else {
                swept.push(flag.with_value(value));
            }
        }
        Ok(swept)
    }

    /// Whether it is one of the mechanisms of `all`, a value of [`sweep`](Self::sweep).
    pub fn is_from_all(&self) -> bool {
        self.is_from_all
    }

    /// The mechanism that the value names, without or with keys.
    fn mechanism(&self) -> Option<Mechanism> {
        let name = match (&self.node.value, self.node.get("kind")) {
            (Value::Text(name), _) => name,
            (_, Some(kind)) => match &kind.node.value {
                Value::Text(name) => name,
                _ => return None,
            },
            _ => return None,
        };
        name.parse().ok()
    }

    /// Sets a key by another flag: `--steps 100` sets `training.steps`.
    pub fn flag(flag: &str, key: &str, value: &str) -> Self {
        let source = Arc::new(Source::Flag(format!("{flag} {value}")));
        let value = Location::new(&source, flag.len() + 1..source.text().len());
        Self {
            path: key.split('.').map(str::to_owned).collect(),
            location: Location::new(&source, 0..flag.len()),
            node: Node::parse_flag(value),
            is_from_all: false,
        }
    }

    /// Sets a key to a text that is not parsed: `--name 2` sets `run.name`.
    pub fn text(flag: &str, key: &str, value: &str) -> Self {
        let mut text = Self::flag(flag, key, value);
        text.node.value = Value::Text(value.to_owned());
        text
    }

    /// The key with its section.
    pub fn key(&self) -> String {
        self.path.join(".")
    }

    /// The value as it was written.
    pub fn value(&self) -> &str {
        self.node.location.text()
    }

    /// The flag, such as `--set model.layers=4`.
    pub fn flag_text(&self) -> String {
        self.location.to_string()
    }

    /// An error about the key.
    pub fn error(&self, message: String, help: String) -> ConfigError {
        let location = self.location.clone();
        ConfigError::Diagnostics(Diagnostics {
            list: vec![Diagnostic { location, message }],
            help: vec![help],
        })
    }

    /// Sets the key. An alternative key of the file is removed, one of another flag is not.
    pub(crate) fn apply(&self, tree: &mut Node) {
        tree.set(&self.path, &self.location, self.node.clone());
        let key = self.key();
        for [one, other] in ALTERNATIVES {
            if key == one {
                tree.remove_from_file(other);
            } else if key == other {
                tree.remove_from_file(one);
            }
        }
    }
}

/// The argument of a flag `KEY=...`.
struct Flag<'a> {
    name: &'a str,
    text: &'a str,
    help: &'a str,
    path: Vec<String>,
    /// Bytes of the key and of the rest.
    key: Range<usize>,
    values: Range<usize>,
}

impl<'a> Flag<'a> {
    fn parse(name: &'a str, text: &'a str, help: &'a str) -> Result<Self, ConfigError> {
        let end = text.find('=');
        let key = trimmed(text, 0..end.unwrap_or(text.len()));
        let path = text[key.clone()].split('.').map(str::trim);
        let flag = Self {
            name,
            text,
            help,
            path: path.map(str::to_owned).collect(),
            values: end.map_or(0, |end| end + 1)..text.len(),
            key,
        };
        if end.is_none() {
            return Err(flag.invalid(0..text.len(), "expected KEY=VALUE"));
        }
        if flag.path.len() < 2 || flag.path.iter().any(String::is_empty) {
            return Err(flag.invalid(flag.key.clone(), "expected a key with its section"));
        }
        Ok(flag)
    }

    fn location(&self, span: Range<usize>) -> Location {
        let Self { name, text, .. } = self;
        let source = Arc::new(Source::Flag(format!("{name} {text}")));
        let start = name.len() + 1;
        Location::new(&source, start + span.start..start + span.end)
    }

    fn with_value(&self, value: Range<usize>) -> Override {
        Override {
            path: self.path.clone(),
            location: self.location(self.key.clone()),
            node: Node::parse_flag(self.location(value)),
            is_from_all: false,
        }
    }

    /// One of the mechanisms of `all`, located in a flag of its own.
    fn with_mechanism(&self, mechanism: Mechanism) -> Override {
        let key = self.path.join(".");
        let text = format!("{key}={mechanism}");
        let flag = Flag {
            text: &text,
            path: self.path.clone(),
            key: 0..key.len(),
            values: key.len() + 1..text.len(),
            ..*self
        };
        Override {
            is_from_all: true,
            ..flag.with_value(flag.values.clone())
        }
    }

    fn invalid(&self, span: Range<usize>, why: &str) -> ConfigError {
        ConfigError::Diagnostics(Diagnostics {
            list: vec![Diagnostic {
                location: self.location(span),
                message: why.to_owned(),
            }],
            help: vec![format!("for example {}", self.help)],
        })
    }
}

/// A span without the spaces around its text.
fn trimmed(text: &str, span: Range<usize>) -> Range<usize> {
    let inside = &text[span.clone()];
    let start = span.start + (inside.len() - inside.trim_start().len());
    start..start + inside.trim().len()
}

/// The values between commas that are not in brackets or quotes.
fn split_values(text: &str, span: Range<usize>) -> Vec<Range<usize>> {
    let (mut start, mut depth, mut quote) = (span.start, 0_usize, None);
    let mut values = vec![];
    for (at, character) in text[span.clone()].char_indices() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                values.push(trimmed(text, start..span.start + at));
                start = span.start + at + 1;
            }
            (None, _) => {}
        }
    }
    values.push(trimmed(text, start..span.end));
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_other_than_set() {
        let text = "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\n";
        let parse = |flags: &[Override]| crate::Config::parse("a.toml", text, flags);
        let steps = Override::flag("--steps", "training.steps", "3");
        let name = Override::text("--name", "run.name", "2");
        let config = parse(&[name, steps]).expect("a valid config");
        assert_eq!(config.run.name.as_deref(), Some("2"));
        assert_eq!(config.training.steps, Some(3));
        let steps = Override::flag("--steps", "training.steps", "0");
        let error = parse(&[steps]).expect_err("no steps").to_string();
        assert!(error.starts_with("--steps 0: training.steps"), "{error}");
    }

    #[test]
    fn malformed_flags() {
        for (text, part) in [
            ("model.layers", "expected KEY=VALUE"),
            ("layers=4", "expected a key with its section"),
            ("=4", "expected a key with its section"),
            ("model.=4", "expected a key with its section"),
        ] {
            let message = Override::set(text).expect_err(text).to_string();
            let start = format!("--set {text}: {part}\n  help: ");
            assert!(message.starts_with(&start), "{message}");
        }
    }

    #[test]
    fn swept_values() {
        let values = |text: &str| {
            let swept = Override::sweep(text).map_err(|error| error.to_string())?;
            let keys = swept.iter().all(|it| it.key() == "model.attention");
            assert!(keys, "{text}");
            Ok(swept.iter().map(|it| it.value().to_owned()).collect())
        };
        for (text, expected) in [
            ("model.attention=flash", &["flash"][..]),
            (" model . attention = flash , linear", &["flash", "linear"]),
            (
                "model.attention={ kind = \"lsh\", n_hashes = 2 },[1, 2],'a,b'",
                &["{ kind = \"lsh\", n_hashes = 2 }", "[1, 2]", "'a,b'"],
            ),
            ("model.attention=}x,[y", &["}x", "[y"]),
            ("model.attention=a\nb", &["a\nb"]),
        ] {
            let expected = expected.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(values(text), Ok::<Vec<String>, String>(expected), "{text}");
        }
        // Without the listed ones, by any of their names.
        let all = |text: &str| {
            let swept = Override::sweep(text).unwrap_or_else(|error| panic!("{error}"));
            let key = |it: &Override| (it.key(), it.value().to_owned(), it.is_from_all());
            swept.iter().map(key).collect::<Vec<_>>()
        };
        let attention = all("model.attention=all");
        assert_eq!(attention.len(), Mechanism::ALL.len());
        for (one, mechanism) in attention.iter().zip(Mechanism::ALL) {
            let key = "model.attention".to_owned();
            assert_eq!(*one, (key, mechanism.name().to_owned(), true));
        }
        let text = "model.encoder_attention=ssd,all,{ kind = \"lsh\", n_hashes = 2 },linear";
        let some = all(text);
        assert_eq!(some.len(), Mechanism::ALL.len());
        let names: Vec<&str> = some.iter().map(|it| it.1.as_str()).collect();
        let listed = some.iter().filter(|it| !it.2).map(|it| it.1.as_str());
        let expected = ["ssd", "{ kind = \"lsh\", n_hashes = 2 }", "linear"];
        assert!(listed.eq(expected), "{names:?}");
        for name in ["mamba2", "lsh"] {
            assert!(!names.contains(&name), "{names:?}");
        }
        assert_eq!(names.iter().filter(|it| **it == "linear").count(), 1);
        assert_eq!(all("model.layers=all").len(), 1, "not a key of mechanisms");
        for text in ["model.attention=", "model.attention=a,,b", "model.a=a,"] {
            let message = Override::sweep(text).expect_err(text).to_string();
            let expected = format!(
                "--sweep {text}: expected a value\n  help: for example --sweep model.layers=2,4"
            );
            assert_eq!(message, expected);
        }
    }
}
