//! Pieces of running text, for models that say how it goes on.

use zoo_spec::Draw;

use crate::DataError;

/// A piece of text, and the same one place further on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window<'a> {
    /// What is given.
    pub input: &'a [u32],
    /// What comes after each of it.
    pub target: &'a [u32],
}

/// Pieces of one length, from anywhere in a text; which ones is a function of the seed and the
/// step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    context: usize,
    rows: usize,
    seed: u64,
}

impl Windows {
    /// Batches of so many rows of so many tokens.
    pub fn new(context: usize, rows: usize, seed: u64) -> Self {
        Self {
            context,
            rows,
            seed,
        }
    }

    /// That there is a window in a text; `part` is what it is called in the error.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if a size is zero, [`DataError::Refused`] if the text is too short.
    pub fn check(&self, part: &str, tokens: &[u32]) -> Result<(), DataError> {
        DataError::at_least("context", 1, self.context)?;
        DataError::at_least("rows", 1, self.rows)?;
        if tokens.len() > self.context {
            return Ok(());
        }
        Err(DataError::Refused(format!(
            "the {part} text has {} tokens, and a window of {} needs {}",
            tokens.len(),
            self.context,
            self.context + 1
        )))
    }

    /// The batch of a step: windows from places drawn for it.
    ///
    /// # Panics
    ///
    /// If the text is too short: see [`check`](Self::check).
    pub fn at<'a>(&self, step: usize, tokens: &'a [u32]) -> Vec<Window<'a>> {
        let Self { context, rows, .. } = *self;
        assert!(
            tokens.len() > context,
            "windows: a context of {context} needs more tokens, got {}",
            tokens.len()
        );
        let mut draw = Draw::new(self.seed, "windows", step as u64);
        let window = |_| {
            let from = draw.below(tokens.len() - context);
            Window {
                input: &tokens[from..from + context],
                target: &tokens[from + 1..from + 1 + context],
            }
        };
        (0..rows).map(window).collect()
    }

    /// The whole text in windows one after the other, so that every token but the first is to
    /// be said once; the last window may be shorter.
    pub fn all<'a>(&self, tokens: &'a [u32]) -> impl Iterator<Item = Window<'a>> + use<'a> {
        let context = self.context.max(1);
        let last = tokens.len().saturating_sub(1);
        (0..last).step_by(context).map(move |from| {
            let to = (from + context).min(last);
            Window {
                input: &tokens[from..to],
                target: &tokens[from + 1..to + 1],
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(count: u32) -> Vec<u32> {
        (0..count).collect()
    }

    #[test]
    fn windows_lie_anywhere_and_targets_one_place_on() {
        let tokens = text(12);
        let windows = Windows::new(4, 5, 1);
        let mut seen = [false; 8];
        for step in 0..40 {
            let batch = windows.at(step, &tokens);
            assert_eq!(batch.len(), 5);
            for window in batch {
                let first = window.input[0];
                seen[first as usize] = true;
                assert_eq!(window.input, [first, first + 1, first + 2, first + 3]);
                assert_eq!(window.target, [first + 1, first + 2, first + 3, first + 4]);
            }
        }
        assert_eq!(seen, [true; 8], "also the first and the last");
    }

    #[test]
    fn a_step_is_a_function_of_the_seed() {
        let tokens = text(1000);
        let at = |seed, step| Windows::new(8, 4, seed).at(step, &tokens);
        assert_eq!(at(1, 17), at(1, 17));
        assert_ne!(at(1, 17), at(1, 18));
        assert_ne!(at(1, 17), at(2, 17));
    }

    #[test]
    fn a_text_that_is_too_short_is_named() {
        assert!(Windows::new(4, 1, 0).check("validation", &text(5)).is_ok());
        for (context, message) in [
            (
                4,
                "the validation text has 4 tokens, and a window of 4 needs 5",
            ),
            (0, "context must be at least 1, got 0"),
        ] {
            let error = Windows::new(context, 1, 0).check("validation", &text(4));
            assert_eq!(error.unwrap_err().to_string(), message);
        }
    }
}
