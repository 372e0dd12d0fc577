//! Associative recall: keys with values, and which value one of the keys has.
//!
//! ```text
//! a 3 b 7 c 1 ? b  ->  7
//! ```
//!
//! Sequences of different keys, letters, each with a digit for a value; the last key is asked for.
//! Ba et al., [Using Fast Weights to Attend to the Recent Past](https://arxiv.org/abs/1610.06258), 2016.

use zoo_config::Recall;
use zoo_spec::Draw;

use super::Generate;
use super::parts::parts;
use crate::{DataError, Pair, Parts};

/// What keys are written with.
const KEYS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

impl Generate for Recall {
    type Example = Pair;

    fn generate(&self, seed: u64) -> Result<Parts<Vec<Pair>>, DataError> {
        DataError::at_least("fewest keys", 1, self.min_keys)?;
        DataError::at_least("most keys", self.min_keys, self.max_keys)?;
        DataError::at_most("most keys", KEYS.len(), self.max_keys)?;
        let counts = [self.train_size, self.valid_size, self.test_size];
        let draw = |draw: &mut Draw| Some(pair(draw, self.min_keys, self.max_keys));
        parts("recall", counts, seed, draw, [|it| it.source.clone(); 2])
    }
}

fn pair(draw: &mut Draw, fewest: usize, most: usize) -> Pair {
    let count = draw.within(fewest, most);
    let mut keys = KEYS.to_vec();
    draw.shuffle(&mut keys);
    let values: Vec<usize> = (0..count).map(|_| draw.below(10)).collect();
    let asked = draw.below(count);
    let mut source = String::new();
    for (key, value) in keys.iter().zip(&values) {
        source += &format!("{} {value} ", char::from(*key));
    }
    source += &format!("? {}", char::from(keys[asked]));
    Pair::new(source, values[asked].to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_the_one_beside_the_key() {
        let recall = Recall {
            min_keys: 3,
            max_keys: 26,
            train_size: 500,
            ..Recall::default()
        };
        let drawn = recall.generate(9).unwrap();
        for pair in drawn.train.iter().chain(&drawn.valid) {
            let words: Vec<&str> = pair.source.split(' ').collect();
            let [table @ .., "?", asked] = words.as_slice() else {
                panic!("{pair:?}");
            };
            let keys: Vec<&str> = table.iter().copied().step_by(2).collect();
            assert!((3..=26).contains(&keys.len()), "{pair:?}");
            let at: Vec<usize> = (0..keys.len()).filter(|at| keys[*at] == *asked).collect();
            assert_eq!(at.len(), 1, "a key stands once: {pair:?}");
            assert_eq!(table[2 * at[0] + 1], pair.target, "{pair:?}");
        }
    }
}
