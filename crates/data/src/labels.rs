//! Class names and their indices.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use zoo_spec::Printable;

use crate::{DataError, Labelled};

/// Labels listed in an error. If a wrong column is read, there may be as many labels as examples.
const SHOWN: usize = 50;

/// Class names in index order: sorted as numbers if all of them are integers, otherwise as strings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(Vec<String>);

impl Labels {
    /// Collects the classes of the training data.
    ///
    /// # Errors
    ///
    /// [`DataError::Empty`] if there are no examples, [`DataError::Invalid`] if all have the same
    /// label.
    pub fn from_examples(train: &[Labelled]) -> Result<Self, DataError> {
        let names: BTreeSet<&str> = train.iter().map(|it| it.label.as_str()).collect();
        let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let what = "the training data";
        match names.as_slice() {
            [] => return Err(DataError::empty(what)),
            [label] => return Err(one_label(what, label)),
            _ => {}
        }
        if names.iter().all(|name| name.parse::<i64>().is_ok()) {
            names.sort_by_key(|name| name.parse::<i64>().unwrap_or(0));
        }
        Ok(Self(names))
    }

    /// Class index of each example. `split` names the data in errors.
    pub fn indices(&self, split: &str, examples: &[Labelled]) -> Result<Vec<usize>, DataError> {
        let indices: HashMap<&str, usize> = self.0.iter().map(String::as_str).zip(0..).collect();
        let unseen = |label: &str| {
            let printable = |name: &String| Printable(name).to_string();
            let shown: Vec<String> = self.0.iter().take(SHOWN).map(printable).collect();
            let more = match self.0.len().saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            DataError::Invalid(format!(
                "the label \"{}\" of the {split} data is not in the training data, which has: {}{more}",
                Printable(label),
                shown.join(", ")
            ))
        };
        let index = |example: &Labelled| {
            let label = example.label.as_str();
            indices.get(label).copied().ok_or_else(|| unseen(label))
        };
        examples.iter().map(index).collect()
    }

    /// Name of a class.
    pub fn name(&self, index: usize) -> Option<&str> {
        self.0.get(index).map(String::as_str)
    }

    /// All class names, in index order.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

/// Error for data with a single class.
pub(crate) fn one_label(what: &str, label: &str) -> DataError {
    DataError::Invalid(format!(
        "{}: all examples have the label \"{}\"\n  help: a classifier needs at least two classes",
        Printable(what),
        Printable(label)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(labels: &[&str]) -> Vec<Labelled> {
        let document = |label: &&str| Labelled::new(*label, "x");
        labels.iter().map(document).collect()
    }

    fn labels(labels: &[&str]) -> Result<Labels, String> {
        Labels::from_examples(&documents(labels)).map_err(|error| error.to_string())
    }

    #[test]
    fn integer_labels_are_sorted_as_numbers() {
        let integers = labels(&["10", "9", "-1", "9"]).unwrap();
        assert_eq!(integers.names(), ["-1", "9", "10"]);
        let labels = labels(&["pos", "neg", "10", "9"]).unwrap();
        assert_eq!(labels.names(), ["10", "9", "neg", "pos"]);
        assert_eq!((labels.name(3), labels.name(4)), (Some("pos"), None));
        let json = serde_json::to_string(&integers).unwrap();
        assert_eq!(json, "[\"-1\",\"9\",\"10\"]");
        assert_eq!(serde_json::from_str::<Labels>(&json).unwrap(), integers);
    }

    #[test]
    fn unknown_labels_and_single_classes_are_rejected() {
        let two = labels(&["neg", "pos"]).unwrap();
        let indices = |labels: &[&str]| two.indices("validation", &documents(labels));
        assert_eq!(indices(&["pos", "neg"]).unwrap(), [1, 0]);
        assert_eq!(
            indices(&["pos", "neutral"]).unwrap_err().to_string(),
            "the label \"neutral\" of the validation data is not in the training data, which has: \
             neg, pos"
        );
        let none = labels(&[]).unwrap_err();
        assert_eq!(none, "the training data has no examples");
        assert_eq!(
            labels(&["a", "a"]).unwrap_err(),
            "the training data: all examples have the label \"a\"\n  help: a classifier needs at \
             least two classes"
        );
    }
}
