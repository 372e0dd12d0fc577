//! chrF: runs of characters that output and reference share.
//!
//! `chrF = (1 + β²) · P · R / (β² · P + R)`, where `P` and `R` are the shares of runs that
//! are in the other, averaged over their lengths. Popović, [chrF: character n-gram F-score
//! for automatic MT evaluation](https://aclanthology.org/W15-3049), 2015; as sacreBLEU has it.

use std::fmt;

use serde::Serialize;

use super::CorpusMetric;
use super::text::{is_blank, ngrams, shared};

/// The longest run of characters.
const ORDER: usize = 6;
/// How many times as much recall counts as precision.
const BETA: i32 = 2;

/// chrF2, as sacreBLEU computes it without settings: capitals count and blanks do not.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chrf {}

/// From 0 to 100. Lengths that one side has no runs of do not count.
fn f_score(counts: &[usize]) -> f64 {
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
    let factor = f64::from(BETA * BETA);
    100.0 * (1.0 + factor) * precision * recall / (factor * precision + recall)
}

/// Runs of one length: of the output, of the reference, and in both.
fn counts_of(hypothesis: &[char], reference: &[char], order: usize) -> [usize; 3] {
    let (left, right) = (ngrams(hypothesis, order), ngrams(reference, order));
    let in_reference = right.values().sum();
    // Output that is too long is not held against references too short to have any.
    let in_hypothesis = match in_reference {
        0 => 0,
        _ => left.values().sum(),
    };
    [in_hypothesis, in_reference, shared(&left, &right)]
}

impl CorpusMetric for Chrf {
    type Score = ChrfScore;

    /// Of each length of run: those of the output, of the reference that gives the best score, and
    /// of both.
    fn count(&self, hypothesis: &str, references: &[&str]) -> Vec<usize> {
        let letters =
            |line: &str| -> Vec<char> { line.chars().filter(|c| !is_blank(*c)).collect() };
        let hypothesis = letters(hypothesis);
        let mut best: Option<(f64, Vec<usize>)> = None;
        for reference in references {
            let reference = letters(reference);
            let counts = (1..=ORDER).flat_map(|order| counts_of(&hypothesis, &reference, order));
            let counts: Vec<usize> = counts.collect();
            let score = f_score(&counts);
            // Of equals, the first.
            if best.as_ref().is_none_or(|(other, _)| score > *other) {
                best = Some((score, counts));
            }
        }
        best.map(|(_, counts)| counts).unwrap_or_default()
    }

    fn settings(&self) -> String {
        // Lengths of run that nothing has are left out: the effective order.
        format!("case:mixed|eff:yes|nc:{ORDER}|nw:0|space:no")
    }

    fn score(&self, counts: &[usize], signature: String) -> ChrfScore {
        ChrfScore {
            score: f_score(counts),
            signature,
        }
    }
}

/// chrF2. Prints as sacreBLEU's line does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChrfScore {
    /// From 0 to 100.
    pub score: f64,
    /// How it was computed.
    pub signature: String,
}

impl fmt::Display for ChrfScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chrF{BETA}|{} = {:.2}", self.signature, self.score)
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
        let score = f_score(&Chrf::default().count("a b", &["abc"]));
        assert!((score - 3500.0 / 55.0).abs() < 1e-9, "{score}");
    }
}
