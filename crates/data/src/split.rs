//! Train, validation and test splits.

use std::collections::BTreeMap;

use zoo_spec::SplitMix64;

use crate::{DataError, Labelled};

/// Train, validation and test data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Splits<T> {
    /// Training data.
    pub train: T,
    /// Validation data.
    pub valid: T,
    /// Test data; may be empty.
    pub test: T,
}

impl<T> Splits<T> {
    /// Applies a function to each split.
    pub fn map<U>(self, f: impl Fn(T) -> U) -> Splits<U> {
        Splits {
            train: f(self.train),
            valid: f(self.valid),
            test: f(self.test),
        }
    }
}

/// Splits a dataset; the result is a function of the seed.
///
/// Its methods return [`DataError::Range`] if a fraction is invalid and [`DataError::Empty`] if
/// there is too little data for a split with a non-zero fraction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Splitter {
    valid: f64,
    test: f64,
    seed: u64,
}

impl Splitter {
    /// Holds out this fraction for validation.
    pub fn new(valid: f64, seed: u64) -> Self {
        Self {
            valid,
            test: 0.0,
            seed,
        }
    }

    /// Holds out another fraction for testing. Default: 0.
    #[must_use]
    pub fn with_test(mut self, fraction: f64) -> Self {
        self.test = fraction;
        self
    }

    fn check(&self) -> Result<(), DataError> {
        DataError::fraction("valid", self.valid)?;
        DataError::fraction("test", self.test)?;
        DataError::fraction("valid + test", self.valid + self.test)
    }

    /// Splits examples at random; each split keeps their order. A split with a non-zero fraction
    /// has at least one example.
    pub fn examples<T>(&self, examples: Vec<T>) -> Result<Splits<Vec<T>>, DataError> {
        self.check()?;
        let mut order: Vec<usize> = (0..examples.len()).collect();
        SplitMix64::new(self.seed, "split", 0).shuffle(&mut order);
        let take = |fraction: f64| {
            let min = usize::from(fraction > 0.0);
            rounded(fraction, examples.len()).max(min)
        };
        let [valid, test] = [take(self.valid), take(self.test)];
        let mut assignment = vec![Split::Train; examples.len()];
        hold_out(&mut assignment, order.into_iter().take(valid + test), valid);
        self.assign(examples, &assignment)
    }

    /// Stratified split: every class has the same fraction of each split. At least one example of
    /// each class is used for training.
    pub fn labelled(&self, examples: Vec<Labelled>) -> Result<Splits<Vec<Labelled>>, DataError> {
        self.check()?;
        let mut classes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, example) in examples.iter().enumerate() {
            classes.entry(&example.label).or_default().push(i);
        }
        let mut assignment = vec![Split::Train; examples.len()];
        for (label, mut order) in classes {
            SplitMix64::new(self.seed, label, 0).shuffle(&mut order);
            let valid = rounded(self.valid, order.len());
            let test = rounded(self.test, order.len());
            let held_out = (valid + test).min(order.len() - 1);
            hold_out(&mut assignment, order.into_iter().take(held_out), valid);
        }
        self.assign(examples, &assignment)
    }

    /// Splits running text into consecutive train, validation and test text.
    pub fn text(&self, text: &str) -> Result<Splits<String>, DataError> {
        self.check()?;
        let count = text.chars().count();
        let valid = rounded(self.valid, count);
        // Both may be rounded up, so their sum may exceed the text.
        let test = rounded(self.test, count).min(count - valid);
        let byte = |character: usize| {
            let mut offsets = text.char_indices().map(|(byte, _)| byte);
            offsets.nth(character).unwrap_or(text.len())
        };
        let [first, second] = [byte(count - valid - test), byte(count - test)];
        let splits = Splits {
            train: text[..first].to_owned(),
            valid: text[first..second].to_owned(),
            test: text[second..].to_owned(),
        };
        self.check_not_empty(splits, String::is_empty)
    }

    fn assign<T>(
        &self,
        examples: Vec<T>,
        assignment: &[Split],
    ) -> Result<Splits<Vec<T>>, DataError> {
        let mut splits = Splits::<Vec<T>>::default();
        for (example, split) in examples.into_iter().zip(assignment) {
            match split {
                Split::Train => splits.train.push(example),
                Split::Valid => splits.valid.push(example),
                Split::Test => splits.test.push(example),
            }
        }
        self.check_not_empty(splits, Vec::is_empty)
    }

    fn check_not_empty<T>(
        &self,
        splits: Splits<T>,
        is_empty: impl Fn(&T) -> bool,
    ) -> Result<Splits<T>, DataError> {
        for (is_used, split, name) in [
            (true, &splits.train, "training"),
            (self.valid > 0.0, &splits.valid, "validation"),
            (self.test > 0.0, &splits.test, "test"),
        ] {
            if is_used && is_empty(split) {
                return Err(DataError::empty(format!("the {name} split")));
            }
        }
        Ok(splits)
    }
}

#[derive(Clone, Copy)]
enum Split {
    Train,
    Valid,
    Test,
}

/// Assigns the first `valid` examples to the validation split and the others to the test split.
fn hold_out(assignment: &mut [Split], examples: impl Iterator<Item = usize>, valid: usize) {
    for (i, example) in examples.enumerate() {
        assignment[example] = if i < valid { Split::Valid } else { Split::Test };
    }
}

fn rounded(fraction: f64, count: usize) -> usize {
    ((fraction * count as f64).round() as usize).min(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_have_their_fractions_and_depend_on_the_seed() {
        let split = |seed| {
            let split = Splitter::new(0.1, seed).with_test(0.2);
            split.examples((0..100).collect()).unwrap()
        };
        let Splits { train, valid, test } = split(3).map(|examples| examples.len());
        assert_eq!([train, valid, test], [70, 10, 20]);
        assert_ne!(split(3), split(4));
        // At least one example per split.
        let few = Splitter::new(0.01, 0).examples(vec!['a', 'b', 'c']);
        assert_eq!(few.unwrap().valid.len(), 1);
    }

    #[test]
    fn labelled_splits_are_stratified() {
        let example = |i: usize| {
            let label = ["rare", "frequent", "frequent", "frequent"][i % 4];
            Labelled::new(label, i.to_string())
        };
        let mut examples: Vec<Labelled> = (0..400).map(example).collect();
        examples.push(Labelled::new("single", "x"));
        let split = Splitter::new(0.1, 1).with_test(0.1);
        let splits = split.labelled(examples).unwrap();
        let counts = |split: Vec<Labelled>| {
            let count = |label| split.iter().filter(|it| it.label == label).count();
            ["rare", "frequent", "single"].map(count)
        };
        let Splits { train, valid, test } = splits.map(counts);
        assert_eq!(train, [80, 240, 1]);
        assert_eq!([valid, test], [[10, 30, 0]; 2]);
    }

    #[test]
    fn text_is_split_between_characters() {
        let split = Splitter::new(0.2, 0).with_test(0.1);
        let splits = split.text("一二三四五六七八九十").unwrap();
        let splits = [splits.train, splits.valid, splits.test];
        assert_eq!(splits, ["一二三四五六七", "八九", "十"]);
    }

    #[test]
    fn invalid_fractions_and_empty_splits_are_rejected() {
        let error = |valid, test, examples: &str| {
            let split = Splitter::new(valid, 0).with_test(test);
            let splits = split.examples(examples.chars().collect());
            splits.unwrap_err().to_string()
        };
        let range = "must be at least 0 and below 1, got";
        assert_eq!(error(0.6, 0.5, "ab"), format!("valid + test {range} 1.1"));
        assert_eq!(error(-0.5, 0.0, "ab"), format!("valid {range} -0.5"));
        assert_eq!(error(0.1, 0.0, "a"), "the training split has no examples");
        assert!(Splitter::new(-0.5, 0).text("ab").is_err());
    }
}
