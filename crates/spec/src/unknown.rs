//! What to say about a word nobody knows.

use std::fmt;

use crate::Printable;

/// Words that are listed. A list from a file, as that of its columns, may be as long as the
/// file.
const SHOWN: usize = 50;

/// A word that is not in its list, with the list and the nearest entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWord {
    /// What the word was meant to name: `backend`, `dtype`, ...
    pub what: &'static str,
    /// The word as it was written.
    pub got: String,
    /// Every word that would have been right.
    pub known: Vec<String>,
}

impl UnknownWord {
    /// Describes `got`, which is none of `known`.
    pub fn new<S: Into<String>>(
        what: &'static str,
        got: impl Into<String>,
        known: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            what,
            got: got.into(),
            known: known.into_iter().map(Into::into).collect(),
        }
    }

    /// The known word most like the one that was written, if any is close.
    pub fn nearest(&self) -> Option<&str> {
        // Swapped neighbours ("wpgu") count as one slip, which is how people
        // mistype. A third of the letters wrong is still a guess worth making;
        // beyond that the suggestion would be noise.
        let slips_allowed = (self.got.chars().count() / 3).max(1);
        let got = self.got.to_lowercase();
        let letters = got.chars().count();
        self.known
            .iter()
            // What is so much longer needs as many slips; comparing takes time and memory.
            .filter(|word| word.chars().count().abs_diff(letters) <= slips_allowed)
            .map(|word| (strsim::damerau_levenshtein(&got, word), word))
            .filter(|(slips, _)| *slips <= slips_allowed)
            .min_by_key(|(slips, _)| *slips)
            .map(|(_, word)| word.as_str())
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} \"{}\"", self.what, Printable(&self.got))?;
        if let Some(nearest) = self.nearest() {
            write!(f, ": did you mean {}?", Printable(nearest))?;
        }
        let shown = &self.known[..self.known.len().min(SHOWN)];
        f.write_str("\n  known: ")?;
        for (at, word) in shown.iter().enumerate() {
            let between = if at == 0 { "" } else { ", " };
            write!(f, "{between}{}", Printable(word))?;
        }
        match self.known.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl std::error::Error for UnknownWord {}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(got: &str) -> UnknownWord {
        UnknownWord::new("backend", got, ["flex", "wgpu", "tch-cpu", "tch-cuda"])
    }

    #[test]
    fn swapped_letters_find_the_word() {
        assert_eq!(about("wpgu").nearest(), Some("wgpu"));
        assert_eq!(about("WGPU").nearest(), Some("wgpu"));
        assert_eq!(about("tch-cdua").nearest(), Some("tch-cuda"));
    }

    #[test]
    fn nothing_is_suggested_for_a_word_unlike_any() {
        assert_eq!(about("tensorflow").nearest(), None);
        assert_eq!(
            about("tensorflow").to_string(),
            "unknown backend \"tensorflow\"\n  known: flex, wgpu, tch-cpu, tch-cuda"
        );
    }

    #[test]
    fn words_of_a_file_do_not_reach_the_terminal_as_they_are() {
        let hostile = "la\u{1b}]0;title\u{7}bel";
        let shown =
            UnknownWord::new("column", "label\u{1b}[2J", [hostile, "x\u{202e}"]).to_string();
        assert!(
            !shown.contains(['\u{1b}', '\u{7}', '\u{202e}']),
            "{shown:?}"
        );
        assert!(
            shown.contains("known: la\\u{1b}]0;title\\u{7}bel, x\\u{202e}"),
            "{shown}"
        );
    }

    #[test]
    fn a_long_list_is_cut_and_long_words_are_not_compared() {
        let long = "x".repeat(1 << 20);
        let known = (0..60).map(|at| format!("{at}{long}"));
        let unknown = UnknownWord::new("column", "label", known.chain(["labels".to_owned()]));
        assert_eq!(unknown.nearest(), Some("labels"));
        assert!(unknown.to_string().ends_with("xxx and 11 more"));
    }
}
