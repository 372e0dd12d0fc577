//! Everyday phrases, English and Chinese, written for this project.
//!
//! ```text
//! 好久不见  ->  long time no see
//! ```
//!
//! There are few. A model can learn them by heart, which is enough to see what its attention
//! does; held-out ones it can only get right by luck.

use zoo_config::{Direction, Phrases};

use super::Generate;
use crate::{DataError, Pair, Parts, Split};

/// `english<TAB>chinese`.
const PHRASES: &str = include_str!("phrases.tsv");

/// All phrases, in the order they are written down.
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

/// The seed chooses those that are held out; without any, validation is with what was learned.
impl Generate for Phrases {
    type Example = Pair;

    fn generate(&self, seed: u64) -> Result<Parts<Vec<Pair>>, DataError> {
        DataError::share("held_out", self.valid_share)?;
        let pairs = phrases(self.direction);
        if self.valid_share > 0.0 {
            return Split::new(self.valid_share, seed).examples(pairs);
        }
        Ok(Parts {
            valid: pairs.clone(),
            train: pairs,
            test: vec![],
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_line_is_a_pair_and_has_one_answer_each_way() {
        let pairs = phrases(Direction::ChineseToEnglish);
        assert_eq!(pairs[0], Pair::new("好久不见", "long time no see"));
        let turned = phrases(Direction::EnglishToChinese);
        assert_eq!(turned[0], Pair::new("long time no see", "好久不见"));
        assert!(pairs.len() >= 120);
        assert_eq!(pairs.len(), PHRASES.lines().count());
        let chinese: HashSet<&str> = pairs.iter().map(|pair| pair.source.as_str()).collect();
        let english: HashSet<&str> = pairs.iter().map(|pair| pair.target.as_str()).collect();
        assert_eq!(chinese.len(), pairs.len());
        assert_eq!(english.len(), pairs.len());
        for pair in &pairs {
            let han = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
            assert!(pair.source.chars().all(han), "{pair:?}");
            let latin = |c: char| c.is_ascii_lowercase() || c == ' ' || c == '\'';
            assert!(pair.target.chars().all(latin), "{pair:?}");
            assert_eq!(pair.target.trim(), pair.target);
        }
    }

    #[test]
    fn validation_is_with_what_was_learned_unless_some_are_held_out() {
        let held_out = |valid_share| Phrases {
            valid_share,
            ..Phrases::default()
        };
        let parts = held_out(0.0).generate(1).unwrap();
        assert_eq!(parts.train, parts.valid);
        let all = parts.train.len();
        let parts = held_out(0.1).generate(1).unwrap();
        assert!(!parts.valid.iter().any(|pair| parts.train.contains(pair)));
        assert_eq!(parts.train.len() + parts.valid.len(), all);
        let error = held_out(1.5).generate(1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "held_out must be at least 0 and below 1, got 1.5"
        );
    }
}
