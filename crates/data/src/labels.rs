//! The classes that documents can be of, by number.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::{DataError, Labelled};

/// Names of classes, in their order: by number if all are numbers, else by letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(Vec<String>);

impl Labels {
    /// The classes of the training data.
    ///
    /// # Errors
    ///
    /// [`DataError::Empty`] if there are no examples, [`DataError::OneLabel`] if all have the
    /// same label.
    pub fn of(train: &[Labelled]) -> Result<Self, DataError> {
        let names: BTreeSet<&str> = train.iter().map(|it| it.label.as_str()).collect();
        let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let what = "the training data".to_owned();
        match names.as_slice() {
            [] => return Err(DataError::Empty { what }),
            [label] => {
                let label = label.clone();
                return Err(DataError::OneLabel { what, label });
            }
            _ => {}
        }
        if names.iter().all(|name| name.parse::<i64>().is_ok()) {
            names.sort_by_key(|name| name.parse::<i64>().unwrap_or(0));
        }
        Ok(Self(names))
    }

    /// The number of each example's class.
    ///
    /// # Errors
    ///
    /// [`DataError::UnseenLabel`] with the first that has none.
    pub fn numbers(&self, part: &str, examples: &[Labelled]) -> Result<Vec<usize>, DataError> {
        // A wrong column may have as many labels as there are examples.
        let numbers: HashMap<&str, usize> = self.0.iter().map(String::as_str).zip(0..).collect();
        let number = |example: &Labelled| {
            numbers
                .get(example.label.as_str())
                .copied()
                .ok_or_else(|| DataError::UnseenLabel {
                    label: example.label.clone(),
                    part: part.to_owned(),
                    known: self.0.clone(),
                })
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
    fn a_label_that_was_not_learned_is_named() {
        let labels = Labels::of(&documents(&["neg", "pos"])).unwrap();
        let numbers = labels.numbers("validation", &documents(&["pos", "neg"]));
        assert_eq!(numbers.unwrap(), [1, 0]);
        let error = labels.numbers("validation", &documents(&["pos", "neutral"]));
        assert_eq!(
            error.unwrap_err().to_string(),
            "the label \"neutral\" is in the validation data and not in the training data, which \
             has: neg, pos"
        );
    }

    #[test]
    fn there_is_something_to_tell_apart() {
        assert_eq!(
            Labels::of(&[]).unwrap_err().to_string(),
            "the training data has no examples"
        );
        assert_eq!(
            Labels::of(&documents(&["a", "a"])).unwrap_err().to_string(),
            "the training data: all examples have the label \"a\": there is nothing to tell apart"
        );
    }

    #[test]
    fn they_are_a_list_in_a_file() {
        let labels = Labels::of(&documents(&["neg", "pos"])).unwrap();
        let json = serde_json::to_string(&labels).unwrap();
        assert_eq!(json, "[\"neg\",\"pos\"]");
        assert_eq!(serde_json::from_str::<Labels>(&json).unwrap(), labels);
    }
}
