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
use super::splits::generate_splits;
use crate::{DataError, Pair, Splits};

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

impl Generate for Recall {
    type Example = Pair;

    fn generate(&self, seed: u64) -> Result<Splits<Vec<Pair>>, DataError> {
        DataError::at_least("min_keys", 1, self.min_keys)?;
        DataError::at_least("max_keys", self.min_keys, self.max_keys)?;
        DataError::at_most("max_keys", self.num_symbols(), self.max_keys)?;
        DataError::at_least("values", 2, self.values)?;
        let counts = [self.train_size, self.valid_size, self.test_size];
        let keys = keys(self.num_symbols());
        let sample = |rng: &mut SplitMix64| Some(pair(self, &keys, rng));
        generate_splits("recall", counts, seed, sample, [|it| it.source.clone(); 2])
    }
}

/// The names of all keys.
fn keys(count: usize) -> Vec<String> {
    match LETTERS.get(..count) {
        Some(letters) => letters.iter().map(|it| char::from(*it).into()).collect(),
        None => (0..count).map(|key| format!("k{key}")).collect(),
    }
}

fn pair(task: &Recall, keys: &[String], rng: &mut SplitMix64) -> Pair {
    let count = rng.within(task.min_keys, task.max_keys);
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
}
