//! Keys set on the command line.

use zoo_spec::Printable;

use crate::error::ConfigError;
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
    node: Node,
}

impl Override {
    /// Parses the argument of `--set`, for example `model.layers=4`. A value that is not TOML is a
    /// string.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidInput`] without a full key and `=`.
    pub fn set(text: &str) -> Result<Self, ConfigError> {
        let flag = format!("--set {text}");
        let invalid = |why: &str| {
            let flag = Printable(&flag);
            let help = "for example --set model.layers=4";
            ConfigError::InvalidInput(format!("{flag}: {why}\n  help: {help}"))
        };
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| invalid("expected KEY=VALUE"))?;
        let names = key.trim().split('.').map(str::trim);
        let path: Vec<_> = names.map(str::to_owned).collect();
        if path.len() < 2 || path.iter().any(String::is_empty) {
            return Err(invalid("expected a key with its section"));
        }
        let node = Node::parse_flag(&flag, value.trim());
        Ok(Self { path, node })
    }

    /// Sets a key by another flag: `--steps 100` sets `training.steps`.
    pub fn flag(flag: &str, key: &str, value: &str) -> Self {
        Self {
            path: key.split('.').map(str::to_owned).collect(),
            node: Node::parse_flag(flag, value),
        }
    }

    /// Sets a key to a text that is not parsed: `--name 2` sets `run.name`.
    pub fn text(flag: &str, key: &str, value: &str) -> Self {
        let mut text = Self::flag(flag, key, "");
        text.node.value = Value::Text(value.to_owned());
        text
    }

    /// Sets the key. An alternative key of the file is removed, one of another flag is not.
    pub(crate) fn apply(&self, tree: &mut Node) {
        tree.set(&self.path, self.node.clone());
        let key = self.path.join(".");
        for [one, other] in ALTERNATIVES {
            if key == one {
                tree.remove_from_file(other);
            } else if key == other {
                tree.remove_from_file(one);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_other_than_set() {
        let text = "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\n";
        let parse = |flags: &[Override]| crate::Config::parse("a.toml", text, flags);
        let steps = Override::flag("--steps 3", "training.steps", "3");
        let name = Override::text("--name 2", "run.name", "2");
        let config = parse(&[name, steps]).expect("a valid config");
        assert_eq!(config.run.name.as_deref(), Some("2"));
        assert_eq!(config.training.steps, Some(3));
        let steps = Override::flag("--steps 0", "training.steps", "0");
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
}
