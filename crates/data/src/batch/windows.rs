//! Windows of running text, for language models.

use zoo_spec::SplitMix64;

use crate::DataError;

/// A window of tokens, and the same window shifted by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window<'a> {
    /// Input tokens.
    pub input: &'a [u32],
    /// Next token of each input token.
    pub target: &'a [u32],
}

impl<'a> Window<'a> {
    fn new(tokens: &'a [u32], from: usize, to: usize) -> Self {
        let (input, target) = (&tokens[from..to], &tokens[from + 1..to + 1]);
        Self { input, target }
    }
}

/// Random windows of a text; a batch is a function of the seed and the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    context: usize,
    rows: usize,
    seed: u64,
}

impl Windows {
    /// Batches of `rows` windows of `context` tokens.
    pub fn new(context: usize, rows: usize, seed: u64) -> Self {
        Self {
            context,
            rows,
            seed,
        }
    }

    /// Checks that a text is long enough. `split` names it in the error.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if a size is zero, [`DataError::Invalid`] if the text is too short.
    pub fn check(&self, split: &str, tokens: &[u32]) -> Result<(), DataError> {
        DataError::at_least("context", 1, self.context)?;
        DataError::at_least("rows", 1, self.rows)?;
        if tokens.len() > self.context {
            return Ok(());
        }
        Err(DataError::Invalid(format!(
            "the {split} text has {} tokens; a context of {} needs at least {}",
            tokens.len(),
            self.context,
            self.context + 1
        )))
    }

    /// Random batch of a step.
    ///
    /// # Panics
    ///
    /// If the text is too short: see [`check`](Self::check).
    pub fn batch<'a>(&self, step: usize, tokens: &'a [u32]) -> Vec<Window<'a>> {
        let Self { context, rows, .. } = *self;
        assert!(
            tokens.len() > context,
            "windows: a context of {context} needs at least {} tokens, got {}",
            context + 1,
            tokens.len()
        );
        let mut rng = SplitMix64::new(self.seed, "windows", step as u64);
        let window = |_| {
            let from = rng.below(tokens.len() - context);
            Window::new(tokens, from, from + context)
        };
        (0..rows).map(window).collect()
    }

    /// Consecutive windows over the whole text: every token but the first is a target once. The
    /// last window may be shorter.
    pub fn consecutive<'a>(&self, tokens: &'a [u32]) -> impl Iterator<Item = Window<'a>> + use<'a> {
        let context = self.context.max(1);
        let last = tokens.len().saturating_sub(1);
        let starts = (0..last).step_by(context);
        starts.map(move |from| Window::new(tokens, from, (from + context).min(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_the_text_and_targets_are_shifted_by_one() {
        let tokens: Vec<u32> = (0..12).collect();
        let windows = Windows::new(4, 5, 1);
        let mut seen = [false; 8];
        for step in 0..40 {
            let batch = windows.batch(step, &tokens);
            assert_eq!(batch.len(), 5);
            for window in batch {
                let first = window.input[0];
                seen[first as usize] = true;
                assert_eq!(window.input, [first, first + 1, first + 2, first + 3]);
                assert_eq!(window.target, [first + 1, first + 2, first + 3, first + 4]);
            }
        }
        assert_eq!(seen, [true; 8], "including the first and the last window");
    }

    #[test]
    fn batch_is_a_function_of_seed_and_step() {
        let tokens: Vec<u32> = (0..1000).collect();
        let batch = |seed, step| Windows::new(8, 4, seed).batch(step, &tokens);
        assert_eq!(batch(1, 17), batch(1, 17));
        assert_ne!(batch(1, 17), batch(1, 18));
        assert_ne!(batch(1, 17), batch(2, 17));
    }

    #[test]
    fn short_texts_are_rejected() {
        let check = |context, tokens: &[u32]| {
            let checked = Windows::new(context, 1, 0).check("validation", tokens);
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(check(4, &[0; 5]), Ok(()));
        let short = "the validation text has 4 tokens; a context of 4 needs at least 5";
        assert_eq!(check(4, &[0; 4]), Err(short.to_owned()));
        let none = "context must be at least 1, got 0";
        assert_eq!(check(0, &[0; 4]), Err(none.to_owned()));
    }
}
