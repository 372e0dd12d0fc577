//! The mechanisms of a stack of layers.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Mechanism, MechanismConfig};

/// The mechanism of each layer of a model. In a file, one mechanism for all layers, or a list that
/// repeats: with `["gated-delta", "gated-delta", "gated-delta", "flash"]`, every fourth layer is `flash`.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerMechanisms(Vec<MechanismConfig>);

impl LayerMechanisms {
    /// A list that repeats; `None` if it is empty.
    pub fn repeating(mechanisms: Vec<MechanismConfig>) -> Option<Self> {
        (!mechanisms.is_empty()).then_some(Self(mechanisms))
    }

    /// The mechanism of a layer, counted from 0.
    pub fn of_layer(&self, layer: usize) -> &MechanismConfig {
        &self.0[layer % self.0.len()]
    }

    /// The list, without its repetitions.
    pub fn list(&self) -> &[MechanismConfig] {
        &self.0
    }

    /// The longest sequence that all of them support, if that is limited.
    pub fn max_length(&self) -> Option<usize> {
        let lengths = self.0.iter();
        lengths
            .filter_map(|config| config.capabilities().max_length)
            .min()
    }

    /// The distinct names in the order of the layers, such as `gated-delta and flash`.
    pub fn names(&self) -> String {
        let mut names: Vec<&str> = vec![];
        for config in &self.0 {
            let name = config.mechanism().name();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(" and ")
    }
}

impl From<MechanismConfig> for LayerMechanisms {
    fn from(mechanism: MechanismConfig) -> Self {
        Self(vec![mechanism])
    }
}

impl From<Mechanism> for LayerMechanisms {
    fn from(mechanism: Mechanism) -> Self {
        Self(vec![mechanism.into()])
    }
}

impl Serialize for LayerMechanisms {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(serializer),
            list => list.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for LayerMechanisms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Parsed by hand, because an untagged enum would hide the error of an element.
        let value = serde_json::Value::deserialize(deserializer)?;
        let read = |value| serde_json::from_value(value).map_err(serde::de::Error::custom);
        let list = match value {
            serde_json::Value::Array(list) => {
                list.into_iter().map(read).collect::<Result<_, _>>()?
            }
            one => vec![read(one)?],
        };
        let empty = || serde::de::Error::custom("a list of mechanisms must not be empty");
        Self::repeating(list).ok_or_else(empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_repeat_and_round_trip() {
        let read = |text: &str| serde_json::from_str::<LayerMechanisms>(text);
        let one = read("\"flash\"").expect("a mechanism");
        assert_eq!(one, Mechanism::Flash.into());
        let text = r#"["gated-delta",{"kind":"sink","window":3}]"#;
        let list = read(text).expect("a list");
        let kinds = [0, 1, 2, 5].map(|layer| list.of_layer(layer).mechanism().name());
        assert_eq!(kinds, ["gated-delta", "sink", "gated-delta", "sink"]);
        assert_eq!(list.names(), "gated-delta and sink");
        for mechanisms in [one, list] {
            let text = serde_json::to_string(&mechanisms).expect("plain data");
            assert_eq!(read(&text).expect("written"), mechanisms);
        }
        for (text, part) in [
            ("[]", "must not be empty"),
            (r#"["flash", "flahs"]"#, "did you mean flash"),
            (r#"["flash", 3]"#, "the name of a mechanism, or a table"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
