//! Training, validation and test data.

use std::collections::BTreeMap;

use zoo_spec::Draw;

use crate::{DataError, Labelled};

/// The same kind of data for training, for validation and for the test at the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parts<T> {
    /// To learn from.
    pub train: T,
    /// To look at while learning.
    pub valid: T,
    /// To look at once; may be empty.
    pub test: T,
}

impl<T> Parts<T> {
    /// What becomes of each part.
    pub fn map<U>(self, each: impl Fn(T) -> U) -> Parts<U> {
        Parts {
            train: each(self.train),
            valid: each(self.valid),
            test: each(self.test),
        }
    }
}

/// How data without parts is split: by a seed, so that it is the same every time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Split {
    valid: f64,
    test: f64,
    seed: u64,
}

impl Split {
    /// Holds this share back for validation.
    pub fn new(valid: f64, seed: u64) -> Self {
        Self {
            valid,
            test: 0.0,
            seed,
        }
    }

    /// Holds another share back for the test. Default: none.
    #[must_use]
    pub fn with_test(mut self, share: f64) -> Self {
        self.test = share;
        self
    }

    fn check(&self) -> Result<(), DataError> {
        DataError::share("valid", self.valid)?;
        DataError::share("test", self.test)?;
        DataError::share("valid + test", self.valid + self.test)
    }

    /// Examples in three parts, each in the order they came in. What is not zero gets an
    /// example at least.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if the shares are none, [`DataError::Empty`] if there are too few
    /// examples for the parts.
    pub fn examples<T>(&self, examples: Vec<T>) -> Result<Parts<Vec<T>>, DataError> {
        self.check()?;
        let mut order: Vec<usize> = (0..examples.len()).collect();
        Draw::new(self.seed, "split", 0).shuffle(&mut order);
        let least = |share: f64| usize::from(share > 0.0);
        let take = |share: f64| rounded(share, examples.len()).max(least(share));
        let [valid, test] = [take(self.valid), take(self.test)];
        let mut part = vec![Part::Train; examples.len()];
        hold_back(&mut part, order.into_iter().take(valid + test), valid);
        self.dealt(examples, &part)
    }

    /// The same for documents, with the same share of every class in each part. A class is
    /// never without an example to learn from.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if the shares are none, [`DataError::Empty`] if there are too few
    /// examples for the parts.
    pub fn labelled(&self, examples: Vec<Labelled>) -> Result<Parts<Vec<Labelled>>, DataError> {
        self.check()?;
        let mut classes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, example) in examples.iter().enumerate() {
            classes.entry(&example.label).or_default().push(at);
        }
        let mut part = vec![Part::Train; examples.len()];
        for (label, mut order) in classes {
            Draw::new(self.seed, label, 0).shuffle(&mut order);
            let valid = rounded(self.valid, order.len());
            let test = rounded(self.test, order.len());
            let kept_back = (valid + test).min(order.len() - 1);
            hold_back(&mut part, order.into_iter().take(kept_back), valid);
        }
        self.dealt(examples, &part)
    }

    /// Running text in three parts, one after the other: training, validation, test.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if the shares are none, [`DataError::Empty`] if a part has none.
    pub fn text(&self, text: &str) -> Result<Parts<String>, DataError> {
        self.check()?;
        let count = text.chars().count();
        let valid = rounded(self.valid, count);
        // Both may be rounded up, though together they are less than all.
        let test = rounded(self.test, count).min(count - valid);
        let byte = |character: usize| {
            let mut places = text.char_indices().map(|(byte, _)| byte);
            places.nth(character).unwrap_or(text.len())
        };
        let [first, second] = [byte(count - valid - test), byte(count - test)];
        let parts = Parts {
            train: text[..first].to_owned(),
            valid: text[first..second].to_owned(),
            test: text[second..].to_owned(),
        };
        self.all_there(parts, String::is_empty)
    }

    fn dealt<T>(&self, examples: Vec<T>, part: &[Part]) -> Result<Parts<Vec<T>>, DataError> {
        let mut parts = Parts {
            train: vec![],
            valid: vec![],
            test: vec![],
        };
        for (example, part) in examples.into_iter().zip(part) {
            match part {
                Part::Train => parts.train.push(example),
                Part::Valid => parts.valid.push(example),
                Part::Test => parts.test.push(example),
            }
        }
        self.all_there(parts, Vec::is_empty)
    }

    /// No part that was asked for is empty.
    fn all_there<T>(
        &self,
        parts: Parts<T>,
        is_empty: impl Fn(&T) -> bool,
    ) -> Result<Parts<T>, DataError> {
        for (is_wanted, part, name) in [
            (true, &parts.train, "training"),
            (self.valid > 0.0, &parts.valid, "validation"),
            (self.test > 0.0, &parts.test, "test"),
        ] {
            if is_wanted && is_empty(part) {
                let what = format!("the {name} part of the split data");
                return Err(DataError::Empty { what });
            }
        }
        Ok(parts)
    }
}

#[derive(Clone, Copy)]
enum Part {
    Train,
    Valid,
    Test,
}

/// The first so many examples are to validate with, the others to test with.
fn hold_back(part: &mut [Part], examples: impl Iterator<Item = usize>, valid: usize) {
    for (place, example) in examples.enumerate() {
        part[example] = match place < valid {
            true => Part::Valid,
            false => Part::Test,
        };
    }
}

fn rounded(share: f64, count: usize) -> usize {
    ((share * count as f64).round() as usize).min(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_their_shares_and_go_by_the_seed() {
        let split = |seed| {
            let split = Split::new(0.1, seed).with_test(0.2);
            split.examples((0..100).collect()).unwrap()
        };
        assert_eq!(
            split(3).map(|part| part.len()),
            Parts {
                train: 70,
                valid: 10,
                test: 20
            }
        );
        assert_ne!(split(3), split(4));
        // Few examples still fill a part.
        let parts = Split::new(0.01, 0).examples(vec!['a', 'b', 'c']).unwrap();
        assert_eq!((parts.train.len(), parts.valid.len()), (2, 1));
    }

    #[test]
    fn every_class_has_its_share() {
        let example = |at: usize| {
            let label = ["rare", "frequent", "frequent", "frequent"][at % 4];
            Labelled::new(label, at.to_string())
        };
        let mut examples: Vec<Labelled> = (0..400).map(example).collect();
        examples.push(Labelled::new("single", "x"));
        let split = Split::new(0.1, 1).with_test(0.1);
        let parts = split.labelled(examples).unwrap();
        let count = |part: &[Labelled], label: &str| {
            part.iter().filter(|example| example.label == label).count()
        };
        for part in [&parts.valid, &parts.test] {
            assert_eq!(count(part, "rare"), 10);
            assert_eq!(count(part, "frequent"), 30);
            assert_eq!(count(part, "single"), 0);
        }
        assert_eq!(count(&parts.train, "single"), 1);
    }

    #[test]
    fn text_is_cut_between_characters() {
        let split = Split::new(0.2, 0).with_test(0.1);
        let parts = split.text("一二三四五六七八九十").unwrap();
        let parts = [parts.train, parts.valid, parts.test];
        assert_eq!(parts, ["一二三四五六七", "八九", "十"]);
    }

    #[test]
    fn shares_that_are_none_and_parts_that_are_empty_are_refused() {
        for (valid, test, text, message) in [
            (
                0.6,
                0.5,
                "ab",
                "valid + test must be at least 0 and below 1, got 1.1",
            ),
            (
                -0.5,
                0.0,
                "ab",
                "valid must be at least 0 and below 1, got -0.5",
            ),
            (
                0.1,
                0.0,
                "a",
                "the training part of the split data has no examples",
            ),
        ] {
            let split = Split::new(valid, 0).with_test(test);
            let error = split.examples(text.chars().collect()).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        assert!(Split::new(-0.5, 0).text("ab").is_err());
    }
}
