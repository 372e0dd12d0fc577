//! Token accuracy and exact match.

use std::fmt;

/// Token accuracy and exact match of sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accuracy {
    correct_tokens: usize,
    total_tokens: usize,
    correct_sequences: usize,
    total_sequences: usize,
}

impl Accuracy {
    /// Adds a sequence. A token is correct if it equals the expected token at the same position;
    /// missing and surplus tokens are errors.
    pub fn add<T: PartialEq>(&mut self, expected: &[T], predicted: &[T]) {
        let correct = expected.iter().zip(predicted).filter(|(e, p)| e == p);
        self.correct_tokens += correct.count();
        self.total_tokens += expected.len().max(predicted.len());
        self.correct_sequences += usize::from(expected == predicted);
        self.total_sequences += 1;
    }

    /// Fraction of correct tokens; `None` without tokens.
    pub fn tokens(&self) -> Option<f64> {
        fraction(self.correct_tokens, self.total_tokens)
    }

    /// Fraction of sequences without an error; `None` without sequences.
    pub fn sequences(&self) -> Option<f64> {
        fraction(self.correct_sequences, self.total_sequences)
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "exact match {} ({} of {}), token accuracy {} ({} of {})",
            percent(self.sequences(), 2),
            self.correct_sequences,
            self.total_sequences,
            percent(self.tokens(), 2),
            self.correct_tokens,
            self.total_tokens,
        )
    }
}

pub(super) fn fraction(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

pub(super) fn percent(fraction: Option<f64>, decimals: usize) -> String {
    fraction.map_or("-".to_owned(), |it| format!("{:.decimals$}%", 100.0 * it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_surplus_tokens_are_errors() {
        let mut accuracy = Accuracy::default();
        assert_eq!((accuracy.tokens(), accuracy.sequences()), (None, None));
        accuracy.add(b"abcd", b"ab");
        assert_eq!(accuracy.tokens(), Some(0.5));
        accuracy.add(b"ab", b"abcd");
        assert_eq!(accuracy.tokens(), Some(0.5));
        assert_eq!(accuracy.sequences(), Some(0.0));
        accuracy.add(b"a", b"a");
        let expected = "exact match 33.33% (1 of 3), token accuracy 55.56% (5 of 9)";
        assert_eq!(accuracy.to_string(), expected);

        // An empty prediction of an empty sequence is an exact match without tokens.
        let mut accuracy = Accuracy::default();
        accuracy.add::<u8>(&[], &[]);
        assert_eq!((accuracy.tokens(), accuracy.sequences()), (None, Some(1.0)));
    }
}
