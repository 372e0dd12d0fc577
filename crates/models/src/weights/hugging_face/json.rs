//! JSON objects whose keys are each read once, so that a key that has no meaning here is noticed.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::ModelError;

/// Keys of a JSON object.
#[derive(Debug)]
pub(super) struct Keys {
    path: PathBuf,
    /// Name of the object in the file, such as `rope_parameters.`; empty for the whole file.
    prefix: String,
    values: Map<String, Value>,
}

const INVALID_JSON: &str = "get the file again, or save the model again with `save_pretrained`";

impl Keys {
    pub(super) fn read(path: &Path) -> Result<Self, ModelError> {
        let bytes = std::fs::read(path).map_err(ModelError::file(path))?;
        let invalid = |reason: String| ModelError::Folder {
            path: path.into(),
            reason,
            help: INVALID_JSON,
        };
        let value = serde_json::from_slice(&bytes);
        let value = value.map_err(|error| invalid(format!("invalid JSON: {error}")))?;
        let Value::Object(values) = value else {
            return Err(invalid(format!(
                "expected a JSON object, got {}",
                shown(&value)
            )));
        };
        Ok(Self {
            path: path.into(),
            prefix: String::new(),
            values,
        })
    }

    /// An error about the value of a key.
    pub(super) fn error(
        &self,
        key: &str,
        expected: &str,
        got: &str,
        help: &'static str,
    ) -> ModelError {
        ModelError::Folder {
            path: self.path.clone(),
            reason: format!("{}{key} must be {expected}, got {got}", self.prefix),
            help,
        }
    }

    fn invalid(&self, key: &str, expected: &str, got: &Value) -> ModelError {
        self.error(key, expected, &shown(got), INVALID_JSON)
    }

    pub(super) fn unsupported(&self, key: &str, supported: &str, got: &str) -> ModelError {
        let help = "this would be another model; it cannot be loaded";
        self.error(key, supported, got, help)
    }

    /// The value of a key, also if it is null.
    pub(super) fn take_or_null(&mut self, key: &str) -> Option<Value> {
        self.values.remove(key)
    }

    /// The value of a key; `None` if it is missing or null.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.take_or_null(key).filter(|value| !value.is_null())
    }

    /// Converts the value of a key; `None` if it is missing or null.
    fn take_as<T>(
        &mut self,
        key: &str,
        expected: &str,
        convert: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        match convert(&value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(self.invalid(key, expected, &value)),
        }
    }

    pub(super) fn count(&mut self, key: &str) -> Result<Option<usize>, ModelError> {
        self.take_as(key, "an integer of at least 0", |value| {
            usize::try_from(value.as_u64()?).ok()
        })
    }

    pub(super) fn number(&mut self, key: &str) -> Result<Option<f64>, ModelError> {
        self.take_as(key, "a number", Value::as_f64)
    }

    pub(super) fn boolean(&mut self, key: &str) -> Result<Option<bool>, ModelError> {
        self.take_as(key, "true or false", Value::as_bool)
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, ModelError> {
        self.take_as(key, "a string", |value| Some(value.as_str()?.to_owned()))
    }

    pub(super) fn texts(&mut self, key: &str) -> Result<Option<Vec<String>>, ModelError> {
        let text = |value: &Value| Some(value.as_str()?.to_owned());
        self.take_as(key, "a list of strings", |value| {
            value.as_array()?.iter().map(text).collect()
        })
    }

    /// A number or a list of numbers.
    pub(super) fn ids(&mut self, key: &str) -> Result<Option<Vec<u64>>, ModelError> {
        self.take_as(key, "a token id or a list of them", |value| match value {
            Value::Array(list) => list.iter().map(Value::as_u64).collect(),
            one => Some(vec![one.as_u64()?]),
        })
    }

    /// The keys of an object; `None` if it is missing or null.
    pub(super) fn object(&mut self, key: &str) -> Result<Option<Self>, ModelError> {
        let values = self.take_as(key, "an object", |value| Some(value.as_object()?.clone()))?;
        Ok(values.map(|values| Self {
            path: self.path.clone(),
            prefix: format!("{}{key}.", self.prefix),
            values,
        }))
    }

    /// A count that must be given.
    pub(super) fn required_count(&mut self, key: &str) -> Result<usize, ModelError> {
        let found = self.count(key)?;
        found.ok_or_else(|| self.missing(key))
    }

    /// A number that must be given.
    pub(super) fn required_number(&mut self, key: &str) -> Result<f64, ModelError> {
        let found = self.number(key)?;
        found.ok_or_else(|| self.missing(key))
    }

    pub(super) fn missing(&self, key: &str) -> ModelError {
        ModelError::Folder {
            path: self.path.clone(),
            reason: format!("{}{key} is missing", self.prefix),
            help: INVALID_JSON,
        }
    }

    /// Checks a key of which only one value is supported, also the one of a missing key.
    pub(super) fn only(&mut self, key: &str, supported: &Value) -> Result<(), ModelError> {
        let equals = |value: &Value| match (value.as_f64(), supported.as_f64()) {
            (Some(got), Some(supported)) => got == supported,
            _ => value == supported,
        };
        match self.take(key) {
            Some(value) if !equals(&value) => {
                Err(self.unsupported(key, &shown(supported), &shown(&value)))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no key is left, except those without an effect on the model's output.
    pub(super) fn finish(self, ignored: &[&str]) -> Result<(), ModelError> {
        let mut rest = self.values.iter();
        match rest.find(|(key, _)| !ignored.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, value)) => Err(ModelError::Folder {
                path: self.path.clone(),
                reason: format!("unknown key {}{key} = {}", self.prefix, shown(value)),
                help: "its meaning is not implemented; remove it only if it has no effect on the model",
            }),
        }
    }
}

/// A value in an error message, shortened.
fn shown(value: &Value) -> String {
    const MAX_LENGTH: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MAX_LENGTH) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
