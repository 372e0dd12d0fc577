//! BLEU: how many runs of one to four words are in the references too.
//!
//! `BLEU = BP · exp(1/4 Σₙ ln pₙ)`, where `pₙ` is the share of runs of `n` words that a
//! reference has, and `BP = exp(1 - r/h)` where the output, `h` words, is shorter than the
//! references, `r`. Papineni et al., [BLEU: a Method for Automatic Evaluation of Machine
//! Translation](https://aclanthology.org/P02-1040), 2002; in every detail as Post, [A Call
//! for Clarity in Reporting BLEU Scores](https://aclanthology.org/W18-6319), 2018.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ngrams::{ngrams, shared};
use super::signature::{References, signature};
use super::text::words;
use super::{Case, MetricError, Smoothing, Tokenizer};

/// How BLEU is computed. The default is sacreBLEU's.
///
/// ```
/// # use zoo_data::metrics::Bleu;
/// let output = ["the cat sat on the mat"];
/// let score = Bleu::default().corpus(&output, &[vec!["the cat sat on a mat"]])?;
/// assert_eq!(format!("{:.2}", score.score), "53.73");
/// # Ok::<(), zoo_data::metrics::MetricError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bleu {
    /// What a word is. Default: `13a`.
    pub tokenizer: Tokenizer,
    /// What is done about orders without a match. Default: `exp`.
    pub smoothing: Smoothing,
    /// Whether capitals count. Default: `mixed`, they do.
    pub case: Case,
    /// Whether orders that the output is too short for are left out. Default: they are not,
    /// and make the score zero; [`Bleu::for_sentences`] has it.
    pub effective_order: bool,
    /// The longest run that is counted. Default: 4.
    pub order: usize,
}

impl Default for Bleu {
    fn default() -> Self {
        Self {
            tokenizer: Tokenizer::default(),
            smoothing: Smoothing::default(),
            case: Case::default(),
            effective_order: false,
            order: 4,
        }
    }
}

impl Bleu {
    /// As for a corpus, but that a sentence shorter than four words can be right.
    pub fn for_sentences() -> Self {
        Self {
            effective_order: true,
            ..Self::default()
        }
    }

    /// Counts of no lines yet.
    ///
    /// # Errors
    ///
    /// [`MetricError::Range`] if the order is 0, or smoothing is by a number not above 0.
    pub fn counts(&self) -> Result<BleuCounts, MetricError> {
        self.smoothing.check()?;
        if self.order == 0 {
            return Err(MetricError::Range {
                field: "the order of BLEU",
                allowed: "at least 1",
                got: "0".to_owned(),
            });
        }
        Ok(BleuCounts {
            bleu: self.clone(),
            matches: vec![0; self.order],
            totals: vec![0; self.order],
            hypothesis_length: 0,
            reference_length: 0,
            lines: 0,
            references: References::default(),
        })
    }

    /// The score of all lines together; `references` has one or more for each.
    ///
    /// # Errors
    ///
    /// If there are no lines, not as many of both, or one without a reference.
    pub fn corpus<H: AsRef<str>, R: AsRef<str>>(
        &self,
        hypotheses: &[H],
        references: &[Vec<R>],
    ) -> Result<BleuScore, MetricError> {
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

    /// The score of one line; [`Bleu::for_sentences`] is made for this.
    ///
    /// # Errors
    ///
    /// If there is no reference.
    pub fn sentence<R: AsRef<str>>(
        &self,
        hypothesis: &str,
        references: &[R],
    ) -> Result<BleuScore, MetricError> {
        let mut counts = self.counts()?;
        counts.add(hypothesis, references)?;
        counts.score()
    }
}

/// What is known of the lines so far: all that BLEU is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct BleuCounts {
    bleu: Bleu,
    matches: Vec<usize>,
    totals: Vec<usize>,
    hypothesis_length: usize,
    reference_length: usize,
    lines: usize,
    references: References,
}

impl BleuCounts {
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
        if references.is_empty() {
            return Err(MetricError::NoReference {
                line: self.lines + 1,
            });
        }
        let cut = |line: &str| self.bleu.tokenizer.tokenize(&self.bleu.case.apply(line));
        let hypothesis = cut(hypothesis);
        let hypothesis: Vec<&str> = words(&hypothesis).collect();
        let references: Vec<String> = references.iter().map(|line| cut(line.as_ref())).collect();
        let references: Vec<Vec<&str>> = references
            .iter()
            .map(|line| words(line).collect())
            .collect();

        for order in 1..=self.bleu.order {
            let counts = ngrams(&hypothesis, order);
            let mut most: HashMap<&[&str], usize> = HashMap::new();
            for reference in &references {
                for (run, count) in ngrams(reference, order) {
                    let most = most.entry(run).or_insert(0);
                    *most = count.max(*most);
                }
            }
            self.matches[order - 1] += shared(&counts, &most);
            self.totals[order - 1] += counts.values().sum::<usize>();
        }
        let length = hypothesis.len();
        let closest = references
            .iter()
            .map(Vec::len)
            .min_by_key(|reference| (length.abs_diff(*reference), *reference));
        self.hypothesis_length += length;
        self.reference_length += closest.unwrap_or_default();
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
            self.bleu == other.bleu,
            "BLEU: counts by {:?} cannot be added to counts by {:?}",
            other.bleu,
            self.bleu
        );
        for order in 0..self.bleu.order {
            self.matches[order] += other.matches[order];
            self.totals[order] += other.totals[order];
        }
        self.hypothesis_length += other.hypothesis_length;
        self.reference_length += other.reference_length;
        self.lines += other.lines;
        self.references.join(other.references);
    }

    /// The score of all lines so far.
    ///
    /// # Errors
    ///
    /// [`MetricError::Nothing`] if there are none.
    pub fn score(&self) -> Result<BleuScore, MetricError> {
        if self.lines == 0 {
            return Err(MetricError::Nothing);
        }
        let (precisions, counted) = self.precisions();
        let brevity_penalty = self.brevity_penalty();
        let logs: f64 = precisions[..counted].iter().map(|p| p.ln()).sum();
        Ok(BleuScore {
            // The logarithm of zero is -∞, and the score then zero.
            score: brevity_penalty * (logs / counted as f64).exp(),
            precisions,
            brevity_penalty,
            hypothesis_length: self.hypothesis_length,
            reference_length: self.reference_length,
            signature: self.signature(),
        })
    }

    fn brevity_penalty(&self) -> f64 {
        let (hypothesis, reference) = (self.hypothesis_length, self.reference_length);
        if hypothesis >= reference {
            1.0
        } else if hypothesis == 0 {
            0.0
        } else {
            (1.0 - reference as f64 / hypothesis as f64).exp()
        }
    }

    /// In percent, and how many of them make the score.
    fn precisions(&self) -> (Vec<f64>, usize) {
        let orders = self.bleu.order;
        let mut precisions = vec![0.0; orders];
        // Where nothing matches at all, smoothing would still find something.
        if self.matches.iter().all(|count| *count == 0) {
            return (precisions, orders);
        }
        let mut counted = orders;
        let mut part = 1.0;
        for (at, precision) in precisions.iter_mut().enumerate() {
            let (mut matches, mut total) = (self.matches[at] as f64, self.totals[at] as f64);
            if let (Smoothing::AddK(k), 1..) = (self.bleu.smoothing, at) {
                matches += k;
                total += k;
            }
            // No line is as long as this.
            if total == 0.0 {
                break;
            }
            if self.bleu.effective_order {
                counted = at + 1;
            }
            if matches == 0.0 {
                matches = match self.bleu.smoothing {
                    Smoothing::Exp => {
                        part /= 2.0;
                        part
                    }
                    Smoothing::Floor(floor) => floor,
                    Smoothing::AddK(_) | Smoothing::None => 0.0,
                };
            }
            *precision = 100.0 * matches / total;
        }
        (precisions, counted)
    }

    fn signature(&self) -> String {
        let bleu = &self.bleu;
        let yes_or_no = if bleu.effective_order { "yes" } else { "no" };
        let mut settings = vec![
            ("case", bleu.case.in_signature().to_owned()),
            ("eff", yes_or_no.to_owned()),
            ("tok", bleu.tokenizer.to_string()),
            ("smooth", bleu.smoothing.in_signature()),
        ];
        // sacreBLEU says nothing of it; but another order is another measure.
        if bleu.order != Bleu::default().order {
            settings.push(("order", bleu.order.to_string()));
        }
        signature(self.references, &settings)
    }
}

/// BLEU and what it is made of. Prints as sacreBLEU's line does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BleuScore {
    /// From 0 to 100.
    pub score: f64,
    /// The share of runs that references have, by their length from 1, in percent.
    pub precisions: Vec<f64>,
    /// What being too short takes away: a factor up to 1.
    pub brevity_penalty: f64,
    /// Words of the output.
    pub hypothesis_length: usize,
    /// Words of the references that are nearest in length.
    pub reference_length: usize,
    /// How it was computed.
    pub signature: String,
}

impl fmt::Display for BleuScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precisions: Vec<String> = self.precisions.iter().map(|p| format!("{p:.1}")).collect();
        let ratio = match self.reference_length {
            0 => 0.0,
            length => self.hypothesis_length as f64 / length as f64,
        };
        write!(
            f,
            "BLEU|{} = {:.2} {} (BP = {:.3} ratio = {ratio:.3} hyp_len = {} ref_len = {})",
            self.signature,
            self.score,
            precisions.join("/"),
            self.brevity_penalty,
            self.hypothesis_length,
            self.reference_length,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAT: &str = "the cat sat on the mat";

    #[test]
    fn what_is_right_scores_100() {
        let score = Bleu::default().corpus(&[CAT], &[vec![CAT]]).unwrap();
        assert!((score.score - 100.0).abs() < 1e-9, "{score}");
        assert_eq!(
            score.to_string(),
            format!(
                "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:zoo-data-{} = 100.00 \
                 100.0/100.0/100.0/100.0 (BP = 1.000 ratio = 1.000 hyp_len = 6 ref_len = 6)",
                env!("CARGO_PKG_VERSION")
            )
        );
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let lines = [CAT, "a dog", "", "the the the"];
        let references = [
            vec!["a cat sat on the mat"],
            vec!["a dog barks", "dog"],
            vec!["something"],
            vec!["the"],
        ];
        let bleu = Bleu::default();
        let whole = bleu.corpus(&lines, &references).unwrap();
        let mut sum = bleu.counts().unwrap();
        for (line, references) in lines.iter().zip(&references) {
            let mut part = bleu.counts().unwrap();
            part.add(line, references).unwrap();
            sum.merge(&part);
        }
        assert_eq!(sum.score(), Ok(whole));
    }

    #[test]
    #[should_panic(expected = "cannot be added")]
    fn counts_of_two_kinds_do_not_add_up() {
        let mut counts = Bleu::default().counts().unwrap();
        counts.merge(&Bleu::for_sentences().counts().unwrap());
    }

    #[test]
    fn what_cannot_be_scored_says_why() {
        let bleu = Bleu::default();
        let said = |result: Result<BleuScore, MetricError>| result.unwrap_err().to_string();
        let none: [&str; 0] = [];
        assert!(said(bleu.corpus(&none, &[] as &[Vec<&str>])).contains("nothing to score"));
        assert!(
            said(bleu.corpus(&[CAT], &[] as &[Vec<&str>])).contains("1 lines of output against 0")
        );
        assert!(
            said(bleu.corpus(&[CAT, CAT], &[vec![CAT], vec![]])).contains("line 2 of the output")
        );
        let order = Bleu {
            order: 0,
            ..bleu.clone()
        };
        assert_eq!(
            said(order.sentence(CAT, &[CAT])),
            "the order of BLEU must be at least 1, got 0"
        );
        let smoothing = Bleu {
            smoothing: Smoothing::Floor(0.0),
            ..bleu
        };
        assert!(said(smoothing.sentence(CAT, &[CAT])).contains("must be above 0, got 0"));
    }

    #[test]
    fn settings_are_read_from_a_file() {
        let bleu: Bleu =
            serde_json::from_str(r#"{"tokenizer":"zh","smoothing":"floor[0.5]","case":"lower"}"#)
                .unwrap();
        assert_eq!(bleu.tokenizer, Tokenizer::Zh);
        assert_eq!(bleu.smoothing, Smoothing::Floor(0.5));
        assert_eq!(
            serde_json::from_str::<Bleu>(&serde_json::to_string(&bleu).unwrap()).unwrap(),
            bleu
        );
        assert!(serde_json::from_str::<Bleu>(r#"{"tokeniser":"zh"}"#).is_err());
    }
}
