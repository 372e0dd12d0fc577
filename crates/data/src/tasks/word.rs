//! The tasks by the words people write for them.

use crate::words::words;

words! {
    /// A task that needs no files.
    pub enum Task of "task" {
        /// Symbols, again: `a c b` to `a c b`.
        Copy = "copy",
        /// Symbols from the last to the first: `a c b` to `b c a`.
        Reverse = "reverse",
        /// Symbols in their order: `a c b` to `a b c`.
        Sort = "sort",
        /// Dates as people write them, to ISO 8601: `3rd of May 1998` to `1998-05-03`.
        Dates = "dates",
        /// The value of a key among others: `a 3 b 7 c 1 ? b` to `7`.
        Recall = "recall",
        /// Nested operations on digits, to classify by their value: `[MAX 2 9 [MIN 4 7 ] ]` is 9.
        ListOps = "listops",
        /// Documents whose class a few words in a few sentences tell.
        Documents = "documents",
        /// Everyday phrases, English and Chinese: `好久不见` to `long time no see`.
        Phrases = "phrases",
    }
}

impl Task {
    /// Whether its examples have a class; the others are pairs.
    pub fn is_labelled(self) -> bool {
        matches!(self, Self::ListOps | Self::Documents)
    }
}
