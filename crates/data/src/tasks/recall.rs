//! Associative recall: key-value pairs, followed by a query key.
//!
//! ```text
//! a 3 b 7 c 1 ? b  ->  7
//! ```
//!
//! Keys are distinct: letters, or `k0`, `k1`, ... if there are more than 26. Values are numbers.
//! Ba et al., [Using Fast Weights to Attend to the Recent Past](https://arxiv.org/abs/1610.06258),
//! 2016.

use std::fmt::Write;

use zoo_config::Recall;
use zoo_spec::SplitMix64;

use super::Generate;
use super::splits::{Use, generate_splits_by_use};
use crate::{DataError, Pair, Splits};

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

impl Generate for Recall {
    type Example = Pair;

    fn generate(&self, seed: u64) -> Result<Splits<Vec<Pair>>, DataError> {
        DataError::at_least("min_keys", 1, self.min_keys)?;
        DataError::at_least("max_keys", self.min_keys, self.max_keys)?;
        DataError::at_most("max_keys", self.num_symbols(), self.max_keys)?;
        DataError::at_least("train_min_keys", 1, self.train_min_keys())?;
        DataError::at_most("train_min_keys", self.min_keys, self.train_min_keys())?;
        DataError::at_least("values", 2, self.values)?;
        let counts = [self.train_size, self.valid_size, self.test_size];
        let keys = keys(self.num_symbols());
        let sample = |rng: &mut SplitMix64, used_for: Use| {
            let count = match (used_for, self.train_min_keys) {
                (Use::Training, Some(min)) => log_uniform(min, self.max_keys, rng),
                (Use::Training, None) | (Use::Evaluation, _) => {
                    rng.within(self.min_keys, self.max_keys)
                }
            };
            Some(pair(self, count, &keys, rng))
        };
        let identity = |pair: &Pair| pair.source.clone();
        generate_splits_by_use("recall", counts, seed, sample, [identity; 2])
    }
}

/// The names of all keys.
fn keys(count: usize) -> Vec<String> {
    match LETTERS.get(..count) {
        Some(letters) => letters.iter().map(|it| char::from(*it).into()).collect(),
        None => (0..count).map(|key| format!("k{key}")).collect(),
    }
}

/// An integer in `min..=max` whose logarithm is uniform: each doubling is equally likely.
fn log_uniform(min: usize, max: usize, rng: &mut SplitMix64) -> usize {
    let [low, high] = [min, max + 1].map(|end| (end as f64).ln());
    let sampled = (low + (high - low) * rng.uniform()).exp() as usize;
    sampled.clamp(min, max)
}

fn pair(task: &Recall, count: usize, keys: &[String], rng: &mut SplitMix64) -> Pair {
    let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    rng.shuffle(&mut keys);
    let values: Vec<usize> = (0..count).map(|_| rng.below(task.values)).collect();
    let query = rng.below(count);
    let mut source = String::new();
    for (key, value) in keys.iter().zip(&values) {
        // Writing to a string cannot fail.
        let _ = write!(source, "{key} {value} ");
    }
    source += &format!("? {}", keys[query]);
    Pair::new(source, values[query].to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn targets_are_the_values_of_the_query_keys() {
        let few = Recall {
            min_keys: 3,
            max_keys: 26,
            train_size: 500,
            ..Recall::default()
        };
        let many = Recall {
            min_keys: 64,
            max_keys: 1024,
            train_size: 60,
            valid_size: 10,
            test_size: 10,
            ..few.clone()
        };
        let vocabulary = Recall {
            symbols: Some(3000),
            values: 40,
            ..many.clone()
        };
        for task in [few, many, vocabulary] {
            let splits = task.generate(9).unwrap();
            let (mut all_keys, mut all_values) = (HashSet::new(), HashSet::new());
            for pair in splits.train.iter().chain(&splits.valid) {
                let words: Vec<&str> = pair.source.split(' ').collect();
                let [table @ .., "?", query] = words.as_slice() else {
                    panic!("{pair:?}");
                };
                let keys: Vec<&str> = table.iter().copied().step_by(2).collect();
                let range = task.min_keys..=task.max_keys;
                assert!(range.contains(&keys.len()), "{pair:?}");
                let distinct: HashSet<&str> = keys.iter().copied().collect();
                assert_eq!(distinct.len(), keys.len(), "keys are distinct: {pair:?}");
                let i = keys.iter().position(|key| key == query).unwrap();
                assert_eq!(table[2 * i + 1], pair.target, "{pair:?}");
                all_keys.extend(keys.into_iter().map(str::to_owned));
                all_values.insert(pair.target.parse::<usize>().unwrap());
            }
            assert_eq!(all_keys.len(), task.num_symbols(), "every key occurs");
            let letter = |key: &String| key.len() == 1 && key.as_bytes()[0].is_ascii_lowercase();
            let number = |key: &String| key[1..].parse().is_ok_and(|i: usize| i < all_keys.len());
            match task.num_symbols() {
                26 => assert!(all_keys.iter().all(letter), "{all_keys:?}"),
                _ => assert!(all_keys.iter().all(number), "{all_keys:?}"),
            }
            assert!(all_values.len() > task.values / 2, "{all_values:?}");
            assert!(all_values.iter().all(|value| *value < task.values));
        }
    }

    #[test]
    fn training_examples_can_have_fewer_pairs() {
        let task = Recall {
            min_keys: 64,
            max_keys: 255,
            train_min_keys: Some(4),
            train_size: 600,
            valid_size: 60,
            test_size: 60,
            ..Recall::default()
        };
        let splits = task.generate(3).unwrap();
        let counts = |pairs: &[Pair]| -> Vec<usize> {
            let words = pairs.iter().map(|it| it.source.split(' ').count());
            words.map(|words| (words - 2) / 2).collect()
        };
        // 4..8, 8..16, ..., 128..256: six doublings.
        let mut doublings = [0; 6];
        for count in counts(&splits.train) {
            assert!((4..256).contains(&count), "{count}");
            doublings[count.ilog2() as usize - 2] += 1;
        }
        assert!(
            doublings.iter().all(|it| (70..130).contains(it)),
            "{doublings:?}"
        );
        for evaluated in [&splits.valid, &splits.test] {
            assert!(counts(evaluated).iter().all(|it| (64..256).contains(it)));
        }
        let without = Recall {
            train_min_keys: None,
            ..task
        };
        let without = without.generate(3).unwrap();
        assert!(counts(&without.train).iter().all(|it| *it >= 64));
        assert_eq!((without.valid, without.test), (splits.valid, splits.test));
    }
}
