//! chrF: character n-gram F-score.
//!
//! `chrF = (1 + β²) · P · R / (β² · P + R)`, where `P` and `R` are the character n-gram precision
//! and recall, averaged over n. Popović, [chrF: character n-gram F-score for automatic MT
//! evaluation](https://aclanthology.org/W15-3049), 2015; as computed by sacreBLEU.

use std::fmt;

use serde::Serialize;

use super::CorpusMetric;
use super::text::{is_blank, matches, ngrams};

/// Maximum n-gram order.
const ORDER: usize = 6;
/// Weight of recall relative to precision.
const BETA: i32 = 2;

/// chrF2 with sacreBLEU's defaults: case-sensitive, whitespace ignored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chrf {}

/// F-score from 0 to 100. Orders without n-grams on one side are ignored.
fn f_score(counts: &[usize]) -> f64 {
    let (orders, _) = counts.as_chunks();
    let has_both = |order: &&[usize; 3]| order[0] > 0 && order[1] > 0;
    let orders: Vec<&[usize; 3]> = orders.iter().filter(has_both).collect();
    let mean = |side: usize| {
        let fraction = |order: &&[usize; 3]| order[2] as f64 / order[side] as f64;
        orders.iter().map(fraction).sum::<f64>() / orders.len().max(1) as f64
    };
    let (precision, recall) = (mean(0), mean(1));
    if precision + recall == 0.0 {
        return 0.0;
    }
    let factor = f64::from(BETA * BETA);
    100.0 * (1.0 + factor) * precision * recall / (factor * precision + recall)
}

/// N-grams of one order: of the hypothesis, of the reference, and matching ones.
fn count_order(hypothesis: &[char], reference: &[char], order: usize) -> [usize; 3] {
    // Not counted if the reference is too short to have n-grams of this order.
    if reference.len() < order {
        return [0; 3];
    }
    let (left, right) = (ngrams(hypothesis, order), ngrams(reference, order));
    let [in_hypothesis, in_reference] = [&left, &right].map(|counts| counts.values().sum());
    [in_hypothesis, in_reference, matches(&left, &right)]
}

impl CorpusMetric for Chrf {
    type Score = ChrfScore;

    /// For each order: n-grams of the hypothesis, of the best-scoring reference, and matching ones.
    fn count(&self, hypothesis: &str, references: &[&str]) -> Vec<usize> {
        let characters =
            |line: &str| -> Vec<char> { line.chars().filter(|c| !is_blank(*c)).collect() };
        let hypothesis = characters(hypothesis);
        let mut best: Option<(f64, Vec<usize>)> = None;
        for reference in references {
            let reference = characters(reference);
            let counts = (1..=ORDER).flat_map(|order| count_order(&hypothesis, &reference, order));
            let counts: Vec<usize> = counts.collect();
            let score = f_score(&counts);
            // Ties go to the first reference.
            if best.as_ref().is_none_or(|(other, _)| score > *other) {
                best = Some((score, counts));
            }
        }
        best.map(|(_, counts)| counts).unwrap_or_default()
    }

    fn settings(&self) -> String {
        // Orders without n-grams are ignored: the effective order.
        format!("case:mixed|eff:yes|nc:{ORDER}|nw:0|space:no")
    }

    fn score(&self, counts: &[usize], signature: String) -> ChrfScore {
        ChrfScore {
            score: f_score(counts),
            signature,
        }
    }
}

/// chrF2 score. Displays as sacreBLEU's output line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChrfScore {
    /// From 0 to 100.
    pub score: f64,
    /// sacreBLEU signature of the options.
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
    fn hand_computed_score() {
        // "ab" against "abc": 2 of 2 and 2 of 3 unigrams, 1 of 1 and 1 of 2 bigrams; the hypothesis
        // has no trigram. P = 1, R = (2/3 + 1/2) / 2 = 7/12, and F = 5 · 7/12 / (4 + 7/12) = 35/55.
        let score = f_score(&Chrf::default().count("a b", &["abc"]));
        assert!((score - 3500.0 / 55.0).abs() < 1e-9, "{score}");
    }
}
