//! Keys set on the command line.

use zoo_spec::Printable;

use crate::error::ConfigError;
use crate::tree::Node;

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

    /// Sets a key by another flag: `--backend wgpu` sets `backend.name`.
    pub fn flag(flag: &str, key: &str, value: &str) -> Self {
        Self {
            path: key.split('.').map(str::to_owned).collect(),
            node: Node::parse_flag(flag, value),
        }
    }

    pub(crate) fn apply(&self, tree: &mut Node) {
        tree.set(&self.path, self.node.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
