//! What to say about a word nobody knows.

use std::fmt;

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
        self.known
            .iter()
            .map(|word| (strsim::damerau_levenshtein(&got, word), word))
            .filter(|(slips, _)| *slips <= slips_allowed)
            .min_by_key(|(slips, _)| *slips)
            .map(|(_, word)| word.as_str())
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} \"{}\"", self.what, self.got)?;
        if let Some(nearest) = self.nearest() {
            write!(f, ": did you mean {nearest}?")?;
        }
        write!(f, "\n  known: {}", self.known.join(", "))
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
}
