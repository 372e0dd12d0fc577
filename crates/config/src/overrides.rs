//! Keys that are set on the command line.

use zoo_spec::Printable;

use crate::error::ConfigError;
use crate::tree::Node;

/// A key and the value that a flag gives it.
#[derive(Debug, Clone)]
pub struct Override {
    path: Vec<String>,
    node: Node,
}

impl Override {
    /// Reads what follows `--set`: `model.layers=4`. The value is TOML; what is none is text.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Refused`] if there is no key, or no `=` after it.
    pub fn set(text: &str) -> Result<Self, ConfigError> {
        let flag = format!("--set {text}");
        let refused = |why: &str| {
            let flag = Printable(&flag);
            let help = "write for example --set model.layers=4";
            ConfigError::Refused(format!("{flag}: {why}; {help}"))
        };
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| refused("there is no = between a key and its value"))?;
        let names = key.trim().split('.').map(str::trim);
        let path: Vec<_> = names.map(str::to_owned).collect();
        if path.len() < 2 || path.iter().any(String::is_empty) {
            return Err(refused("a key is a section and a name with a dot between"));
        }
        let node = Node::parse_flag(&flag, value.trim());
        Ok(Self { path, node })
    }

    /// What another flag, named as it was written, says of a key: `--backend wgpu` of
    /// `backend.word`.
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
    fn a_flag_without_a_key_is_told_what_to_write() {
        for (text, part) in [
            ("model.layers", "there is no ="),
            ("layers=4", "a section and a name"),
            ("=4", "a section and a name"),
            ("model.=4", "a section and a name"),
        ] {
            let said = Override::set(text).expect_err(text).to_string();
            assert!(said.starts_with(&format!("--set {text}: ")), "{said}");
            assert!(said.contains(part), "{said}");
            assert!(said.ends_with("--set model.layers=4"), "{said}");
        }
    }
}
