//! Everyday English and Chinese phrases, written for this project.
//!
//! ```text
//! 好久不见  ->  long time no see
//! ```
//!
//! The dataset is small: a model memorises it, which is enough to inspect its attention, but cannot
//! generalise to held-out phrases.

use zoo_config::{Direction, Phrases};

use super::Generate;
use crate::{DataError, Pair, Splits, Splitter};

/// `english<TAB>chinese`.
const PHRASES: &str = include_str!("phrases.tsv");

/// All phrases, in file order.
pub fn phrases(direction: Direction) -> Vec<Pair> {
    PHRASES
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(english, chinese)| match direction {
            Direction::ChineseToEnglish => Pair::new(chinese, english),
            Direction::EnglishToChinese => Pair::new(english, chinese),
        })
        .collect()
}

/// The seed selects the held-out phrases. Without any, validation uses the training phrases.
impl Generate for Phrases {
    type Example = Pair;

    fn generate(&self, seed: u64) -> Result<Splits<Vec<Pair>>, DataError> {
        DataError::fraction("valid_fraction", self.valid_fraction)?;
        let pairs = phrases(self.direction);
        if self.valid_fraction > 0.0 {
            return Splitter::new(self.valid_fraction, seed).examples(pairs);
        }
        Ok(Splits {
            valid: pairs.clone(),
            train: pairs,
            ..Splits::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn phrases_are_unique_in_both_languages() {
        let pairs = phrases(Direction::ChineseToEnglish);
        assert_eq!(pairs[0], Pair::new("好久不见", "long time no see"));
        let reversed = phrases(Direction::EnglishToChinese);
        assert_eq!(reversed[0], Pair::new("long time no see", "好久不见"));
        assert!(pairs.len() >= 120);
        assert_eq!(pairs.len(), PHRASES.lines().count());
        let mut seen = HashSet::new();
        for pair in &pairs {
            assert!(seen.insert(&pair.source), "{pair:?}");
            assert!(seen.insert(&pair.target), "{pair:?}");
            let han = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
            assert!(pair.source.chars().all(han), "{pair:?}");
            let latin = |c: char| c.is_ascii_lowercase() || c == ' ' || c == '\'';
            assert!(pair.target.chars().all(latin), "{pair:?}");
            assert_eq!(pair.target.trim(), pair.target);
        }
    }

    #[test]
    fn validation_uses_the_training_phrases_unless_some_are_held_out() {
        let held_out = |valid_fraction| Phrases {
            valid_fraction,
            ..Phrases::default()
        };
        let splits = held_out(0.0).generate(1).unwrap();
        assert_eq!(splits.train, splits.valid);
        let all = splits.train.len();
        let splits = held_out(0.1).generate(1).unwrap();
        assert!(!splits.valid.iter().any(|pair| splits.train.contains(pair)));
        assert_eq!(splits.train.len() + splits.valid.len(), all);
        let error = held_out(1.5).generate(1).unwrap_err().to_string();
        let expected = "valid_fraction must be at least 0 and below 1, got 1.5";
        assert_eq!(error, expected);
    }
}
