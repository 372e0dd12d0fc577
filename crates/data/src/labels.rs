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
            let shown = self
                .0
                .iter()
                .take(SHOWN)
                .map(|it| Printable(it).to_string());
            let shown = shown.collect::<Vec<_>>().join(", ");
            let more = match self.0.len().saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            DataError::Invalid(format!(
                "the label \"{}\" of the {split} data is not in the training data, which has: \
                 {shown}{more}",
                Printable(label)
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
        labels
            .iter()
            .map(|label| Labelled::new(*label, "x"))
            .collect()
    }

    #[test]
    fn integer_labels_are_sorted_as_numbers() {
        let labels = Labels::from_examples(&documents(&["10", "9", "-1", "9"])).unwrap();
        assert_eq!(labels.names(), ["-1", "9", "10"]);
        let labels = Labels::from_examples(&documents(&["pos", "neg", "10", "9"])).unwrap();
        assert_eq!(labels.names(), ["10", "9", "neg", "pos"]);
        assert_eq!((labels.name(3), labels.name(4)), (Some("pos"), None));
    }

    #[test]
    fn unknown_labels_and_single_classes_are_rejected() {
        let labels = Labels::from_examples(&documents(&["neg", "pos"])).unwrap();
        let indices = labels.indices("validation", &documents(&["pos", "neg"]));
        assert_eq!(indices.unwrap(), [1, 0]);
        let unseen = labels.indices("validation", &documents(&["pos", "neutral"]));
        for (error, message) in [
            (
                unseen.unwrap_err(),
                "the label \"neutral\" of the validation data is not in the training data, which \
                 has: neg, pos",
            ),
            (
                Labels::from_examples(&[]).unwrap_err(),
                "the training data has no examples",
            ),
            (
                Labels::from_examples(&documents(&["a", "a"])).unwrap_err(),
                "the training data: all examples have the label \"a\"\n  help: a classifier needs at \
                 least two classes",
            ),
        ] {
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn labels_serialize_as_a_list() {
        let labels = Labels::from_examples(&documents(&["neg", "pos"])).unwrap();
        let json = serde_json::to_string(&labels).unwrap();
        assert_eq!(json, "[\"neg\",\"pos\"]");
        assert_eq!(serde_json::from_str::<Labels>(&json).unwrap(), labels);
    }
}
