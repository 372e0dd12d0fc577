//! Associative recall: keys with values, and which value one of the keys has.
//!
//! ```text
//! a 3 b 7 c 1 ? b  ->  7
//! ```
//!
//! Ba et al., [Using Fast Weights to Attend to the Recent Past](https://arxiv.org/abs/1610.06258), 2016.

use super::parts::{Counts, Drawn, parts};
use crate::draw::Draw;
use crate::{DataError, Pair, Parts};

/// What keys are written with.
const KEYS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

/// Sequences of different keys, letters, each with a digit for a value; the last key is asked
/// for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recall {
    fewest: usize,
    most: usize,
}

impl Default for Recall {
    fn default() -> Self {
        Self { fewest: 2, most: 8 }
    }
}

impl Recall {
    /// Two to eight keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// The least and the largest number of keys, at most 26. Default: 2 and 8.
    #[must_use]
    pub fn with_keys(mut self, fewest: usize, most: usize) -> Self {
        self.fewest = fewest;
        self.most = most;
        self
    }

    /// Makes them up.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if a size makes no sense, [`DataError::TaskTooSmall`] if there are
    /// not as many.
    pub fn generate(&self, counts: Counts, seed: u64) -> Result<Parts<Vec<Pair>>, DataError> {
        DataError::at_least("fewest keys", 1, self.fewest)?;
        DataError::at_least("most keys", self.fewest, self.most)?;
        DataError::at_most("most keys", KEYS.len(), self.most)?;
        parts("recall", counts, seed, |draw| {
            let example = self.pair(draw);
            Some(Drawn {
                identity: example.source.clone(),
                secret: example.source.clone(),
                example,
            })
        })
    }

    fn pair(&self, draw: &mut Draw) -> Pair {
        let count = draw.within(self.fewest, self.most);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_the_one_beside_the_key() {
        let drawn = Recall::new()
            .with_keys(3, 26)
            .generate(Counts::new(500, 50), 9)
            .unwrap();
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
