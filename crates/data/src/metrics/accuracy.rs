//! Tokens and whole sequences that are right.

use std::fmt;

use serde::Serialize;

/// How many tokens, and how many sequences, are as they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Accuracy {
    right_tokens: usize,
    all_tokens: usize,
    right_sequences: usize,
    all_sequences: usize,
}

impl Accuracy {
    /// One more sequence. A token is right if the same is expected at its place; of a
    /// sequence too short or too long, what is missing or too much is wrong.
    pub fn add<T: PartialEq>(&mut self, expected: &[T], predicted: &[T]) {
        let right = expected.iter().zip(predicted).filter(|(e, p)| e == p);
        self.right_tokens += right.count();
        self.all_tokens += expected.len().max(predicted.len());
        self.right_sequences += usize::from(expected == predicted);
        self.all_sequences += 1;
    }

    /// The share of tokens that are right; `None` if there are none.
    pub fn tokens(&self) -> Option<f64> {
        share(self.right_tokens, self.all_tokens)
    }

    /// The share of sequences without a mistake; `None` if there are none.
    pub fn sequences(&self) -> Option<f64> {
        share(self.right_sequences, self.all_sequences)
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: Option<f64>| match share {
            Some(share) => format!("{:.2}%", 100.0 * share),
            None => "none".to_owned(),
        };
        write!(
            f,
            "exact sequences {} ({} of {}), tokens {} ({} of {})",
            percent(self.sequences()),
            self.right_sequences,
            self.all_sequences,
            percent(self.tokens()),
            self.right_tokens,
            self.all_tokens,
        )
    }
}

pub(crate) fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_too_much_is_wrong() {
        let mut accuracy = Accuracy::default();
        accuracy.add(b"abcd", b"ab");
        assert_eq!(accuracy.tokens(), Some(0.5));
        accuracy.add(b"ab", b"abcd");
        assert_eq!(accuracy.tokens(), Some(0.5));
        assert_eq!(accuracy.sequences(), Some(0.0));
        accuracy.add(b"a", b"a");
        assert_eq!(
            accuracy.to_string(),
            "exact sequences 33.33% (1 of 3), tokens 55.56% (5 of 9)"
        );
    }

    #[test]
    fn nothing_has_no_accuracy() {
        let mut accuracy = Accuracy::default();
        assert_eq!((accuracy.tokens(), accuracy.sequences()), (None, None));
        // Nothing was expected and nothing came: a sequence that is right, without a token.
        accuracy.add::<u8>(&[], &[]);
        assert_eq!((accuracy.tokens(), accuracy.sequences()), (None, Some(1.0)));
    }
}
