//! BLEU: n-gram precision up to n = 4 against one or several references.
//!
//! `BLEU = BP · exp(1/4 Σₙ ln pₙ)`, where `pₙ` is the n-gram precision and `BP = exp(1 - r/h)` is
//! the brevity penalty if the hypothesis, `h` words, is shorter than the references, `r`. Papineni
//! et al., [BLEU: a Method for Automatic Evaluation of Machine
//! Translation](https://aclanthology.org/P02-1040), 2002; in every detail as Post, [A Call for
//! Clarity in Reporting BLEU Scores](https://aclanthology.org/W18-6319), 2018.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

use super::text::{matches, ngrams, words};
use super::{BleuTokenizer, Case, CorpusMetric, tokenize};

/// Maximum n-gram order.
const ORDER: usize = 4;

/// BLEU options. The default is sacreBLEU's, including `exp` smoothing: the first order without a
/// match counts half a match, the next a quarter, and so on.
///
/// ```
/// # use zoo_data::metrics::{Bleu, CorpusMetric};
/// let mut counts = Bleu::default().counts();
/// counts.add("the cat sat on the mat", &["the cat sat on a mat"])?;
/// assert_eq!(format!("{:.2}", counts.score()?.score), "53.73");
/// # Ok::<(), zoo_data::metrics::MetricError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bleu {
    /// Tokenizer. Default: `13a`.
    pub tokenizer: BleuTokenizer,
    /// Letter case. Default: `mixed`.
    pub case: Case,
}

impl CorpusMetric for Bleu {
    type Score = BleuScore;

    /// Lengths of the hypothesis and of the closest reference; then, for each order, matching and
    /// total n-grams.
    fn count(&self, hypothesis: &str, references: &[&str]) -> Vec<usize> {
        let tokenized = |line: &str| tokenize(&self.case.apply(line), self.tokenizer);
        let hypothesis = tokenized(hypothesis);
        let hypothesis: Vec<&str> = words(&hypothesis).collect();
        let references: Vec<String> = references.iter().map(|line| tokenized(line)).collect();
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
        for order in 1..=ORDER {
            let counts = ngrams(&hypothesis, order);
            let mut max_counts: HashMap<&[&str], usize> = HashMap::new();
            for reference in &references {
                for (ngram, count) in ngrams(reference, order) {
                    let max = max_counts.entry(ngram).or_insert(0);
                    *max = count.max(*max);
                }
            }
            all.extend([matches(&counts, &max_counts), counts.values().sum()]);
        }
        all
    }

    fn settings(&self) -> String {
        let case = self.case.in_signature();
        format!("case:{case}|eff:no|tok:{}|smooth:exp", self.tokenizer)
    }

    fn score(&self, counts: &[usize], signature: String) -> BleuScore {
        let (hypothesis_length, reference_length) = (counts[0], counts[1]);
        let precisions = precisions(&counts[2..]);
        let brevity_penalty = brevity_penalty(hypothesis_length, reference_length);
        let logs: f64 = precisions.iter().map(|p| p.ln()).sum();
        BleuScore {
            // ln 0 = -∞, and the score is then zero.
            score: brevity_penalty * (logs / ORDER as f64).exp(),
            precisions,
            brevity_penalty,
            hypothesis_length,
            reference_length,
            signature,
        }
    }
}

/// In percent.
fn precisions(counts: &[usize]) -> Vec<f64> {
    let mut precisions = vec![0.0; ORDER];
    // Without any match, smoothing would still return a positive score.
    if counts.iter().step_by(2).all(|matches| *matches == 0) {
        return precisions;
    }
    let mut smoothed = 1.0;
    for (precision, counts) in precisions.iter_mut().zip(counts.chunks(2)) {
        let (mut matches, total) = (counts[0] as f64, counts[1] as f64);
        // No line has this many words.
        if total == 0.0 {
            break;
        }
        if matches == 0.0 {
            smoothed /= 2.0;
            matches = smoothed;
        }
        *precision = 100.0 * matches / total;
    }
    precisions
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

/// BLEU score and its components. Displays as sacreBLEU's output line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BleuScore {
    /// From 0 to 100.
    pub score: f64,
    /// N-gram precisions in percent, from n = 1.
    pub precisions: Vec<f64>,
    /// Brevity penalty, at most 1.
    pub brevity_penalty: f64,
    /// Words of the hypotheses.
    pub hypothesis_length: usize,
    /// Words of the references closest in length.
    pub reference_length: usize,
    /// sacreBLEU signature of the options.
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
