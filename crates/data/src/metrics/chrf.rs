//! chrF: runs of characters that output and reference share; chrF++ has runs of words too.
//!
//! `chrF = (1 + β²) · P · R / (β² · P + R)`, where `P` and `R` are the shares of runs that
//! are in the other, averaged over their lengths. Popović, [chrF: character n-gram F-score
//! for automatic MT evaluation](https://aclanthology.org/W15-3049), 2015, and [chrF++: words
//! helping character n-grams](https://aclanthology.org/W17-4770), 2017; as sacreBLEU has it.

use std::fmt;
use std::hash::Hash;

use serde::Serialize;

use super::ngrams::{ngrams, shared};
use super::text::{is_blank, words};
use super::{Case, CorpusMetric, MetricError};

/// How chrF is computed. The default is sacreBLEU's chrF2.
///
/// ```
/// # use zoo_data::metrics::{Chrf, CorpusMetric};
/// let score = Chrf::plus_plus().corpus(&["the cat sat"], &[vec!["the cat sits"]])?;
/// assert!(score.to_string().starts_with("chrF2++|nrefs:1|case:mixed|eff:yes|nc:6|nw:2|"));
/// # Ok::<(), zoo_data::metrics::MetricError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Chrf {
    /// The longest run of characters. Default: 6.
    pub char_order: usize,
    /// The longest run of words. Default: 0, none are counted; chrF++ has 2.
    pub word_order: usize,
    /// How many times as much recall counts as precision. Default: 2.
    pub beta: u32,
    /// Whether capitals count. Default: `mixed`, they do.
    pub case: Case,
    /// Whether blanks are characters. Default: they are left out.
    pub whitespace: bool,
}

impl Default for Chrf {
    fn default() -> Self {
        Self {
            char_order: 6,
            word_order: 0,
            beta: 2,
            case: Case::default(),
            whitespace: false,
        }
    }
}

impl Chrf {
    /// chrF++: with runs of one and two words.
    pub fn plus_plus() -> Self {
        Self {
            word_order: 2,
            ..Self::default()
        }
    }

    fn runs(&self, line: &str) -> Runs {
        let line = self.case.apply(line);
        let characters = line
            .chars()
            .filter(|letter| self.whitespace || !is_blank(*letter))
            .collect();
        Runs {
            characters,
            words: words(&line).flat_map(punctuation_apart).collect(),
        }
    }

    /// The counts of each length of run, characters first.
    fn compare(&self, hypothesis: &Runs, reference: &Runs) -> Vec<usize> {
        let characters = (1..=self.char_order)
            .map(|order| counts_of(&hypothesis.characters, &reference.characters, order));
        let words = (1..=self.word_order)
            .map(|order| counts_of(&hypothesis.words, &reference.words, order));
        characters.chain(words).flatten().collect()
    }

    /// From 0 to 100. Lengths that one side has no runs of do not count.
    fn f_score(&self, counts: &[usize]) -> f64 {
        let (orders, _) = counts.as_chunks();
        let both: Vec<&[usize; 3]> = orders
            .iter()
            .filter(|[hypothesis, reference, _]| *hypothesis > 0 && *reference > 0)
            .collect();
        let mean = |side: usize| {
            let shares = both
                .iter()
                .map(|order| order[2] as f64 / order[side] as f64);
            shares.sum::<f64>() / both.len().max(1) as f64
        };
        let (precision, recall) = (mean(0), mean(1));
        if precision + recall == 0.0 {
            return 0.0;
        }
        let factor = f64::from(self.beta).powi(2);
        100.0 * (1.0 + factor) * precision * recall / (factor * precision + recall)
    }
}

/// What a line is compared by.
struct Runs {
    characters: Vec<char>,
    words: Vec<String>,
}

/// Runs of one length: of the output, of the reference, and in both.
fn counts_of<T: Eq + Hash>(hypothesis: &[T], reference: &[T], order: usize) -> [usize; 3] {
    let (left, right) = (ngrams(hypothesis, order), ngrams(reference, order));
    let in_reference = right.values().sum();
    // Output that is too long is not held against references too short to have any.
    let in_hypothesis = match in_reference {
        0 => 0,
        _ => left.values().sum(),
    };
    [in_hypothesis, in_reference, shared(&left, &right)]
}

/// One sign of ASCII punctuation is parted from a word: the last, or else the first.
fn punctuation_apart(word: &str) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    let is_sign = |letter: Option<&char>| letter.is_some_and(char::is_ascii_punctuation);
    let cut = match letters.len() {
        0 | 1 => return vec![word.to_owned()],
        length if is_sign(letters.last()) => length - 1,
        _ if is_sign(letters.first()) => 1,
        _ => return vec![word.to_owned()],
    };
    let (left, right) = letters.split_at(cut);
    vec![left.iter().collect(), right.iter().collect()]
}

impl CorpusMetric for Chrf {
    type Score = ChrfScore;

    fn check(&self) -> Result<(), MetricError> {
        MetricError::at_least_1("the order of chrF", self.char_order + self.word_order)?;
        MetricError::at_least_1("the beta of chrF", self.beta as usize)
    }

    /// Of each length of run, characters first: those of the output, of the reference that gives
    /// the best score, and of both.
    fn count(&self, hypothesis: &str, references: &[&str]) -> Vec<usize> {
        let hypothesis = self.runs(hypothesis);
        let mut best: Option<(f64, Vec<usize>)> = None;
        for reference in references {
            let counts = self.compare(&hypothesis, &self.runs(reference));
            let score = self.f_score(&counts);
            // Of equals, the first.
            if best.as_ref().is_none_or(|(other, _)| score > *other) {
                best = Some((score, counts));
            }
        }
        best.map(|(_, counts)| counts).unwrap_or_default()
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let yes_or_no = if self.whitespace { "yes" } else { "no" };
        vec![
            ("case", self.case.in_signature().to_owned()),
            // Lengths of run that nothing has are left out.
            ("eff", "yes".to_owned()),
            ("nc", self.char_order.to_string()),
            ("nw", self.word_order.to_string()),
            ("space", yes_or_no.to_owned()),
        ]
    }

    fn score(&self, counts: &[usize], signature: String) -> ChrfScore {
        ChrfScore {
            name: format!("chrF{}{}", self.beta, "+".repeat(self.word_order)),
            score: self.f_score(counts),
            signature,
        }
    }
}

/// chrF with its name, `chrF2` or `chrF2++`. Prints as sacreBLEU's line does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChrfScore {
    /// With its beta, and a plus for each length of runs of words.
    pub name: String,
    /// From 0 to 100.
    pub score: f64,
    /// How it was computed.
    pub signature: String,
}

impl fmt::Display for ChrfScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{} = {:.2}", self.name, self.signature, self.score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_by_hand() {
        // "ab" against "abc": of one character 2 of 2 and 2 of 3, of two 1 of 1 and 1 of 2;
        // the output has no run of three. P = 1, R = (2/3 + 1/2) / 2 = 7/12, and
        // F = 5 · 7/12 / (4 + 7/12) = 35/55.
        let score = Chrf::default().corpus(&["a b"], &[vec!["abc"]]).unwrap();
        assert!((score.score - 3500.0 / 55.0).abs() < 1e-9, "{score}");
    }

    #[test]
    fn one_sign_is_parted_from_a_word() {
        assert_eq!(punctuation_apart("(hi)"), ["(hi", ")"]);
        assert_eq!(punctuation_apart("\"hi"), ["\"", "hi"]);
        assert_eq!(punctuation_apart("hi"), ["hi"]);
        assert_eq!(punctuation_apart("!"), ["!"]);
    }
}
