//! Associative recall: key-value pairs, followed by a query key.
//!
//! ```text
//! a 3 b 7 c 1 ? b  ->  7
//! ```
//!
//! Keys are distinct letters, values are digits.
//! Ba et al., [Using Fast Weights to Attend to the Recent Past](https://arxiv.org/abs/1610.06258),
//! 2016.

use zoo_config::Recall;
use zoo_spec::SplitMix64;

use super::Generate;
use super::splits::generate_splits;
use crate::{DataError, Pair, Splits};

const KEYS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

impl Generate for Recall {
    type Example = Pair;

    fn generate(&self, seed: u64) -> Result<Splits<Vec<Pair>>, DataError> {
        DataError::at_least("min_keys", 1, self.min_keys)?;
        DataError::at_least("max_keys", self.min_keys, self.max_keys)?;
        DataError::at_most("max_keys", KEYS.len(), self.max_keys)?;
        let counts = [self.train_size, self.valid_size, self.test_size];
        let sample = |rng: &mut SplitMix64| Some(pair(rng, self.min_keys, self.max_keys));
        generate_splits("recall", counts, seed, sample, [|it| it.source.clone(); 2])
    }
}

fn pair(rng: &mut SplitMix64, min_keys: usize, max_keys: usize) -> Pair {
    let count = rng.within(min_keys, max_keys);
    let mut keys = KEYS.to_vec();
    rng.shuffle(&mut keys);
    let values: Vec<usize> = (0..count).map(|_| rng.below(10)).collect();
    let query = rng.below(count);
    let mut source = String::new();
    for (key, value) in keys.iter().zip(&values) {
        source += &format!("{} {value} ", char::from(*key));
    }
    source += &format!("? {}", char::from(keys[query]));
    Pair::new(source, values[query].to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_values_of_the_query_keys() {
        let recall = Recall {
            min_keys: 3,
            max_keys: 26,
            train_size: 500,
            ..Recall::default()
        };
        let splits = recall.generate(9).unwrap();
        for pair in splits.train.iter().chain(&splits.valid) {
            let words: Vec<&str> = pair.source.split(' ').collect();
            let [table @ .., "?", query] = words.as_slice() else {
                panic!("{pair:?}");
            };
            let keys: Vec<&str> = table.iter().copied().step_by(2).collect();
            assert!((3..=26).contains(&keys.len()), "{pair:?}");
            let i: Vec<usize> = (0..keys.len()).filter(|i| keys[*i] == *query).collect();
            assert_eq!(i.len(), 1, "keys are distinct: {pair:?}");
            assert_eq!(table[2 * i[0] + 1], pair.target, "{pair:?}");
        }
    }
}
