//! The classes that documents can be of, by number.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use zoo_spec::Printable;

use crate::{DataError, Labelled};

/// Labels that are listed in an error; a wrong column may have as many as there are examples.
const SHOWN: usize = 50;

/// Names of classes, in their order: by number if all are numbers, else by letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(Vec<String>);

impl Labels {
    /// The classes of the training data.
    ///
    /// # Errors
    ///
    /// [`DataError::Empty`] if there are no examples, [`DataError::Refused`] if all have the same
    /// label.
    pub fn of(train: &[Labelled]) -> Result<Self, DataError> {
        let names: BTreeSet<&str> = train.iter().map(|it| it.label.as_str()).collect();
        let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let what = "the training data";
        match names.as_slice() {
            [] => {
                let what = what.to_owned();
                return Err(DataError::Empty { what });
            }
            [label] => return Err(one_label(what, label)),
            _ => {}
        }
        if names.iter().all(|name| name.parse::<i64>().is_ok()) {
            names.sort_by_key(|name| name.parse::<i64>().unwrap_or(0));
        }
        Ok(Self(names))
    }

    /// The number of each example's class.
    pub fn numbers(&self, part: &str, examples: &[Labelled]) -> Result<Vec<usize>, DataError> {
        // A wrong column may have as many labels as there are examples.
        let numbers: HashMap<&str, usize> = self.0.iter().map(String::as_str).zip(0..).collect();
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
            DataError::Refused(format!(
                "the label \"{}\" is in the {part} data and not in the training data, which has: \
                 {shown}{more}",
                Printable(label)
            ))
        };
        let number = |example: &Labelled| {
            let label = example.label.as_str();
            numbers.get(label).copied().ok_or_else(|| unseen(label))
        };
        examples.iter().map(number).collect()
    }

    /// The name of a class.
    pub fn name(&self, index: usize) -> Option<&str> {
        self.0.get(index).map(String::as_str)
    }

    /// All names, in the order of their numbers.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

/// What is said of data in which everything has the same label.
pub(crate) fn one_label(what: &str, label: &str) -> DataError {
    DataError::Refused(format!(
        "{}: all examples have the label \"{}\": there is nothing to tell apart",
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
    fn numbers_are_sorted_as_numbers_and_words_as_words() {
        let labels = Labels::of(&documents(&["10", "9", "-1", "9"])).unwrap();
        assert_eq!(labels.names(), ["-1", "9", "10"]);
        let labels = Labels::of(&documents(&["pos", "neg", "10", "9"])).unwrap();
        assert_eq!(labels.names(), ["10", "9", "neg", "pos"]);
        assert_eq!((labels.name(3), labels.name(4)), (Some("pos"), None));
    }

    #[test]
    fn a_label_that_was_not_learned_is_named_and_there_is_something_to_tell_apart() {
        let labels = Labels::of(&documents(&["neg", "pos"])).unwrap();
        let numbers = labels.numbers("validation", &documents(&["pos", "neg"]));
        assert_eq!(numbers.unwrap(), [1, 0]);
        let unseen = labels.numbers("validation", &documents(&["pos", "neutral"]));
        for (error, message) in [
            (
                unseen.unwrap_err(),
                "the label \"neutral\" is in the validation data and not in the training data, \
                 which has: neg, pos",
            ),
            (
                Labels::of(&[]).unwrap_err(),
                "the training data has no examples",
            ),
            (
                Labels::of(&documents(&["a", "a"])).unwrap_err(),
                "the training data: all examples have the label \"a\": there is nothing to tell \
                 apart",
            ),
        ] {
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn they_are_a_list_in_a_file() {
        let labels = Labels::of(&documents(&["neg", "pos"])).unwrap();
        let json = serde_json::to_string(&labels).unwrap();
        assert_eq!(json, "[\"neg\",\"pos\"]");
        assert_eq!(serde_json::from_str::<Labels>(&json).unwrap(), labels);
    }
}
