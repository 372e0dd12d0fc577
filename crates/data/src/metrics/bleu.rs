//! BLEU: how many runs of one to four words are in the references too.
//!
//! `BLEU = BP · exp(1/4 Σₙ ln pₙ)`, where `pₙ` is the share of runs of `n` words that a
//! reference has, and `BP = exp(1 - r/h)` where the output, `h` words, is shorter than the
//! references, `r`. Papineni et al., [BLEU: a Method for Automatic Evaluation of Machine
//! Translation](https://aclanthology.org/P02-1040), 2002; in every detail as Post, [A Call
//! for Clarity in Reporting BLEU Scores](https://aclanthology.org/W18-6319), 2018.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

use super::ngrams::{ngrams, shared};
use super::text::words;
use super::{BleuTokenizer, Case, CorpusMetric, MetricError, Smoothing, tokenize};

/// How BLEU is computed. The default is sacreBLEU's.
///
/// ```
/// # use zoo_data::metrics::{Bleu, CorpusMetric};
/// let output = ["the cat sat on the mat"];
/// let score = Bleu::default().corpus(&output, &[vec!["the cat sat on a mat"]])?;
/// assert_eq!(format!("{:.2}", score.score), "53.73");
/// # Ok::<(), zoo_data::metrics::MetricError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Bleu {
    /// What a word is. Default: `13a`.
    pub tokenizer: BleuTokenizer,
    /// What is done about orders without a match. Default: `exp`.
    pub smoothing: Smoothing,
    /// Whether capitals count. Default: `mixed`, they do.
    pub case: Case,
    /// Whether orders that the output is too short for are left out, so that a sentence shorter
    /// than four words can be right. Default: they are not, and make the score zero.
    pub effective_order: bool,
    /// The longest run that is counted. Default: 4.
    pub order: usize,
}

impl Default for Bleu {
    fn default() -> Self {
        Self {
            tokenizer: BleuTokenizer::default(),
            smoothing: Smoothing::default(),
            case: Case::default(),
            effective_order: false,
            order: 4,
        }
    }
}

impl CorpusMetric for Bleu {
    type Score = BleuScore;

    fn check(&self) -> Result<(), MetricError> {
        self.smoothing.check()?;
        MetricError::at_least_1("the order of BLEU", self.order)
    }

    /// Words of the output and of the references that are nearest in length, and for each order
    /// the runs that match and all of them.
    fn count(&self, hypothesis: &str, references: &[&str]) -> Vec<usize> {
        let cut = |line: &str| tokenize(&self.case.apply(line), self.tokenizer);
        let hypothesis = cut(hypothesis);
        let hypothesis: Vec<&str> = words(&hypothesis).collect();
        let references: Vec<String> = references.iter().map(|line| cut(line)).collect();
        let references: Vec<Vec<&str>> = references
            .iter()
            .map(|line| words(line).collect())
            .collect();

        let length = hypothesis.len();
        let closest = references
            .iter()
            .map(Vec::len)
            .min_by_key(|reference| (length.abs_diff(*reference), *reference));
        let mut all = vec![length, closest.unwrap_or_default()];
        for order in 1..=self.order {
            let counts = ngrams(&hypothesis, order);
            let mut most: HashMap<&[&str], usize> = HashMap::new();
            for reference in &references {
                for (run, count) in ngrams(reference, order) {
                    let most = most.entry(run).or_insert(0);
                    *most = count.max(*most);
                }
            }
            all.extend([shared(&counts, &most), counts.values().sum()]);
        }
        all
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let yes_or_no = if self.effective_order { "yes" } else { "no" };
        let mut settings = vec![
            ("case", self.case.in_signature().to_owned()),
            ("eff", yes_or_no.to_owned()),
            ("tok", self.tokenizer.to_string()),
            ("smooth", self.smoothing.in_signature()),
        ];
        // sacreBLEU says nothing of it; but another order is another measure.
        if self.order != Self::default().order {
            settings.push(("order", self.order.to_string()));
        }
        settings
    }

    fn score(&self, counts: &[usize], signature: String) -> BleuScore {
        let (hypothesis_length, reference_length) = (counts[0], counts[1]);
        let (precisions, counted) = self.precisions(&counts[2..]);
        let brevity_penalty = brevity_penalty(hypothesis_length, reference_length);
        let logs: f64 = precisions[..counted].iter().map(|p| p.ln()).sum();
        BleuScore {
            // The logarithm of zero is -∞, and the score then zero.
            score: brevity_penalty * (logs / counted as f64).exp(),
            precisions,
            brevity_penalty,
            hypothesis_length,
            reference_length,
            signature,
        }
    }
}

impl Bleu {
    /// Of matches and totals by order: in percent, and how many of them make the score.
    fn precisions(&self, counts: &[usize]) -> (Vec<f64>, usize) {
        let mut precisions = vec![0.0; self.order];
        // Where nothing matches at all, smoothing would still find something.
        if counts.iter().step_by(2).all(|matches| *matches == 0) {
            return (precisions, self.order);
        }
        let mut counted = self.order;
        let mut part = 1.0;
        for (at, precision) in precisions.iter_mut().enumerate() {
            let (mut matches, mut total) = (counts[2 * at] as f64, counts[2 * at + 1] as f64);
            if let (Smoothing::AddK(k), 1..) = (self.smoothing, at) {
                matches += k;
                total += k;
            }
            // No line is as long as this.
            if total == 0.0 {
                break;
            }
            if self.effective_order {
                counted = at + 1;
            }
            if matches == 0.0 {
                matches = match self.smoothing {
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
}

fn brevity_penalty(hypothesis: usize, reference: usize) -> f64 {
    if hypothesis >= reference {
        1.0
    } else if hypothesis == 0 {
        0.0
    } else {
        (1.0 - reference as f64 / hypothesis as f64).exp()
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
}
