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

use super::text::{ngrams, shared, words};
use super::{BleuTokenizer, Case, CorpusMetric, tokenize};

/// The longest run that is counted.
const ORDER: usize = 4;

/// How BLEU is computed. The default is sacreBLEU's; so is its smoothing, `exp`: of the orders
/// without a match, the first counts half a match, the next a quarter, and so on.
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
    /// What a word is. Default: `13a`.
    pub tokenizer: BleuTokenizer,
    /// Whether capitals count. Default: `mixed`, they do.
    pub case: Case,
}

impl CorpusMetric for Bleu {
    type Score = BleuScore;

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
        for order in 1..=ORDER {
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
            // The logarithm of zero is -∞, and the score then zero.
            score: brevity_penalty * (logs / ORDER as f64).exp(),
            precisions,
            brevity_penalty,
            hypothesis_length,
            reference_length,
            signature,
        }
    }
}

/// Of matches and totals by order, in percent.
fn precisions(counts: &[usize]) -> Vec<f64> {
    let mut precisions = vec![0.0; ORDER];
    // Where nothing matches at all, smoothing would still find something.
    if counts.iter().step_by(2).all(|matches| *matches == 0) {
        return precisions;
    }
    let mut part = 1.0;
    for (precision, counts) in precisions.iter_mut().zip(counts.chunks(2)) {
        let (mut matches, total) = (counts[0] as f64, counts[1] as f64);
        // No line is as long as this.
        if total == 0.0 {
            break;
        }
        if matches == 0.0 {
            part /= 2.0;
            matches = part;
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
