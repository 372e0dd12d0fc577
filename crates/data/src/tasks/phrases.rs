//! Everyday phrases, English and Chinese, written for this project.
//!
//! ```text
//! 好久不见  ->  long time no see
//! ```
//!
//! There are few. A model can learn them by heart, which is enough to see what its attention
//! does; held-out ones it can only get right by luck.

use crate::{DataError, Pair, Parts, Split};

/// `english<TAB>chinese`.
const PHRASES: &str = include_str!("phrases.tsv");

/// Which language is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PhraseDirection {
    /// Chinese is given, English is wanted.
    #[default]
    ChineseToEnglish,
    /// English is given, Chinese is wanted.
    EnglishToChinese,
}

/// The phrases, to learn from one language to the other.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Phrases {
    direction: PhraseDirection,
    held_out: f64,
}

impl Phrases {
    /// All of them to learn from, from Chinese, and all of them to validate with.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which language is given. Default: Chinese.
    #[must_use]
    pub fn with_direction(mut self, direction: PhraseDirection) -> Self {
        self.direction = direction;
        self
    }

    /// The share that is held out to validate with. Default: none, and validation is with what
    /// was learned.
    #[must_use]
    pub fn with_held_out(mut self, share: f64) -> Self {
        self.held_out = share;
        self
    }

    /// All pairs, in the order they are written down.
    pub fn pairs(&self) -> Vec<Pair> {
        PHRASES
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(english, chinese)| match self.direction {
                PhraseDirection::ChineseToEnglish => Pair::new(chinese, english),
                PhraseDirection::EnglishToChinese => Pair::new(english, chinese),
            })
            .collect()
    }

    /// The pairs in their parts. The seed chooses those held out.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if what is held out is no share.
    pub fn generate(&self, seed: u64) -> Result<Parts<Vec<Pair>>, DataError> {
        DataError::share("held_out", self.held_out)?;
        let pairs = self.pairs();
        if self.held_out > 0.0 {
            return Split::new(self.held_out, seed).examples(pairs);
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
    fn the_first_one() {
        let pairs = Phrases::new().pairs();
        assert_eq!(pairs[0], Pair::new("好久不见", "long time no see"));
        let phrases = Phrases::new().with_direction(PhraseDirection::EnglishToChinese);
        assert_eq!(
            phrases.pairs()[0],
            Pair::new("long time no see", "好久不见")
        );
    }

    #[test]
    fn every_line_is_a_pair_and_has_one_answer_each_way() {
        let pairs = Phrases::new().pairs();
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
        let parts = Phrases::new().generate(1).unwrap();
        assert_eq!(parts.train, parts.valid);
        let parts = Phrases::new().with_held_out(0.1).generate(1).unwrap();
        assert!(!parts.valid.iter().any(|pair| parts.train.contains(pair)));
        assert_eq!(
            parts.train.len() + parts.valid.len(),
            Phrases::new().pairs().len()
        );
        let error = Phrases::new().with_held_out(1.5).generate(1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "held_out must be at least 0 and below 1, got 1.5"
        );
    }
}
