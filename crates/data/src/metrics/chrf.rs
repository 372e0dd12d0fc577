//! chrF: runs of characters that output and reference share; chrF++ has runs of words too.
//!
//! `chrF = (1 + β²) · P · R / (β² · P + R)`, where `P` and `R` are the shares of runs that
//! are in the other, averaged over their lengths. Popović, [chrF: character n-gram F-score
//! for automatic MT evaluation](https://aclanthology.org/W15-3049), 2015, and [chrF++: words
//! helping character n-grams](https://aclanthology.org/W17-4770), 2017; as sacreBLEU has it.

use std::fmt;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use super::ngrams::{ngrams, shared};
use super::signature::{References, signature};
use super::text::{is_blank, words};
use super::{Case, MetricError};

/// How chrF is computed. The default is sacreBLEU's chrF2.
///
/// ```
/// # use zoo_data::metrics::Chrf;
/// let score = Chrf::plus_plus().corpus(&["the cat sat"], &[vec!["the cat sits"]])?;
/// assert!(score.to_string().starts_with("chrF2++|nrefs:1|case:mixed|eff:yes|nc:6|nw:2|"));
/// # Ok::<(), zoo_data::metrics::MetricError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
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

    /// Counts of no lines yet.
    ///
    /// # Errors
    ///
    /// [`MetricError::Range`] if no runs are counted, or beta is 0.
    pub fn counts(&self) -> Result<ChrfCounts, MetricError> {
        for (field, size) in [
            ("the order of chrF", self.char_order + self.word_order),
            ("the beta of chrF", self.beta as usize),
        ] {
            if size == 0 {
                return Err(MetricError::Range {
                    field,
                    allowed: "at least 1",
                    got: "0".to_owned(),
                });
            }
        }
        Ok(ChrfCounts {
            chrf: self.clone(),
            orders: vec![Counts::default(); self.char_order + self.word_order],
            lines: 0,
            references: References::default(),
        })
    }

    /// The score of all lines together; `references` has one or more for each, of which the
    /// best counts.
    ///
    /// # Errors
    ///
    /// If there are no lines, not as many of both, or one without a reference.
    pub fn corpus<H: AsRef<str>, R: AsRef<str>>(
        &self,
        hypotheses: &[H],
        references: &[Vec<R>],
    ) -> Result<ChrfScore, MetricError> {
        if hypotheses.len() != references.len() {
            return Err(MetricError::Lines {
                hypotheses: hypotheses.len(),
                references: references.len(),
            });
        }
        let mut counts = self.counts()?;
        for (hypothesis, references) in hypotheses.iter().zip(references) {
            counts.add(hypothesis.as_ref(), references)?;
        }
        counts.score()
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
    fn compare(&self, hypothesis: &Runs, reference: &Runs) -> Vec<Counts> {
        let characters = (1..=self.char_order)
            .map(|order| Counts::of(&hypothesis.characters, &reference.characters, order));
        let words = (1..=self.word_order)
            .map(|order| Counts::of(&hypothesis.words, &reference.words, order));
        characters.chain(words).collect()
    }

    /// From 0 to 100. Lengths that one side has no runs of do not count.
    fn f_score(&self, orders: &[Counts]) -> f64 {
        let both: Vec<&Counts> = orders
            .iter()
            .filter(|counts| counts.hypothesis > 0 && counts.reference > 0)
            .collect();
        let mean = |side: fn(&Counts) -> usize| {
            let shares = both.iter().map(|c| c.shared as f64 / side(c) as f64);
            shares.sum::<f64>() / both.len().max(1) as f64
        };
        let (precision, recall) = (mean(|c| c.hypothesis), mean(|c| c.reference));
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

/// Runs of one length, on both sides and in both.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counts {
    hypothesis: usize,
    reference: usize,
    shared: usize,
}

impl Counts {
    fn of<T: Eq + Hash>(hypothesis: &[T], reference: &[T], order: usize) -> Self {
        let (left, right) = (ngrams(hypothesis, order), ngrams(reference, order));
        let reference = right.values().sum();
        Self {
            // Output that is too long is not held against references too short to have any.
            hypothesis: match reference {
                0 => 0,
                _ => left.values().sum(),
            },
            reference,
            shared: shared(&left, &right),
        }
    }
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

/// What is known of the lines so far: all that chrF is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct ChrfCounts {
    chrf: Chrf,
    orders: Vec<Counts>,
    lines: usize,
    references: References,
}

impl ChrfCounts {
    /// One more line of output and its references.
    ///
    /// # Errors
    ///
    /// [`MetricError::NoReference`] if there is none.
    pub fn add<R: AsRef<str>>(
        &mut self,
        hypothesis: &str,
        references: &[R],
    ) -> Result<(), MetricError> {
        let hypothesis = self.chrf.runs(hypothesis);
        let mut best: Option<(f64, Vec<Counts>)> = None;
        for reference in references {
            let orders = self
                .chrf
                .compare(&hypothesis, &self.chrf.runs(reference.as_ref()));
            let score = self.chrf.f_score(&orders);
            // Of equals, the first.
            if best.as_ref().is_none_or(|(other, _)| score > *other) {
                best = Some((score, orders));
            }
        }
        let Some((_, orders)) = best else {
            return Err(MetricError::NoReference {
                line: self.lines + 1,
            });
        };
        self.sum(&orders);
        self.lines += 1;
        self.references.add(references.len());
        Ok(())
    }

    /// Adds the lines of another part of the test set.
    ///
    /// # Panics
    ///
    /// If they were counted in another way.
    pub fn merge(&mut self, other: &Self) {
        assert!(
            self.chrf == other.chrf,
            "chrF: counts by {:?} cannot be added to counts by {:?}",
            other.chrf,
            self.chrf
        );
        self.sum(&other.orders);
        self.lines += other.lines;
        self.references.join(other.references);
    }

    fn sum(&mut self, orders: &[Counts]) {
        for (sum, counts) in self.orders.iter_mut().zip(orders) {
            sum.hypothesis += counts.hypothesis;
            sum.reference += counts.reference;
            sum.shared += counts.shared;
        }
    }

    /// The score of all lines so far.
    ///
    /// # Errors
    ///
    /// [`MetricError::Nothing`] if there are none.
    pub fn score(&self) -> Result<ChrfScore, MetricError> {
        if self.lines == 0 {
            return Err(MetricError::Nothing);
        }
        let chrf = &self.chrf;
        let settings = [
            ("case", chrf.case.in_signature().to_owned()),
            // Lengths of run that nothing has are left out.
            ("eff", "yes".to_owned()),
            ("nc", chrf.char_order.to_string()),
            ("nw", chrf.word_order.to_string()),
            (
                "space",
                if chrf.whitespace { "yes" } else { "no" }.to_owned(),
            ),
        ];
        Ok(ChrfScore {
            name: format!("chrF{}{}", chrf.beta, "+".repeat(chrf.word_order)),
            score: chrf.f_score(&self.orders),
            signature: signature(self.references, &settings),
        })
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

    #[test]
    fn parts_add_up_to_the_whole() {
        let lines = ["the cat", "", "a dog barks"];
        let references = [vec!["that cat", "the cats"], vec!["x"], vec!["a dog"]];
        let chrf = Chrf::plus_plus();
        let whole = chrf.corpus(&lines, &references).unwrap();
        let mut sum = chrf.counts().unwrap();
        for (line, references) in lines.iter().zip(&references) {
            let mut part = chrf.counts().unwrap();
            part.add(line, references).unwrap();
            sum.merge(&part);
        }
        assert_eq!(sum.score(), Ok(whole));
    }

    #[test]
    fn what_cannot_be_scored_says_why() {
        let said = |result: Result<ChrfScore, MetricError>| result.unwrap_err();
        let chrf = Chrf::default();
        let none: [&str; 0] = [];
        assert_eq!(
            said(chrf.corpus(&none, &[] as &[Vec<&str>])),
            MetricError::Nothing
        );
        assert_eq!(
            said(chrf.corpus(&["a"], &[vec![] as Vec<&str>])),
            MetricError::NoReference { line: 1 }
        );
        assert!(matches!(
            said(chrf.corpus(&["a", "b"], &[vec!["a"]])),
            MetricError::Lines {
                hypotheses: 2,
                references: 1
            }
        ));
        for wrong in [
            Chrf {
                char_order: 0,
                ..chrf.clone()
            },
            Chrf { beta: 0, ..chrf },
        ] {
            assert!(matches!(wrong.counts(), Err(MetricError::Range { .. })));
        }
    }
}
