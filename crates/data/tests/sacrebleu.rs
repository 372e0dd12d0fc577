//! BLEU and chrF against what sacreBLEU computed. `golden/sacrebleu.py` says how.

use std::collections::HashMap;

use serde::Deserialize;
use zoo_data::metrics::{Bleu, Case, Chrf, CorpusMetric, Tokenizer};

/// The same counts and the same formula in the same precision: what is left is the order
/// of a handful of operations on numbers up to 100.
const ROUNDING: f64 = 1e-9;

#[derive(Deserialize)]
struct Golden {
    made_by: String,
    corpora: Vec<Corpus>,
    tokens: Vec<Tokens>,
    bleu: Vec<BleuCase>,
    chrf: Vec<ChrfCase>,
}

/// Lines of output, each with its references.
#[derive(Deserialize)]
struct Corpus {
    name: String,
    lines: Vec<(String, Vec<String>)>,
}

#[derive(Deserialize)]
struct Tokens {
    line: String,
    words: HashMap<String, String>,
}

#[derive(Deserialize)]
struct BleuCase {
    corpus: String,
    tokenizer: String,
    lowercase: bool,
    score: f64,
    precisions: Vec<f64>,
    brevity_penalty: f64,
    hypothesis_length: usize,
    reference_length: usize,
    printed: String,
}

#[derive(Deserialize)]
struct ChrfCase {
    corpus: String,
    score: f64,
    printed: String,
}

fn golden() -> Golden {
    let golden: Golden =
        serde_json::from_str(include_str!("../golden/sacrebleu.json")).expect("a golden file");
    assert!(golden.made_by.starts_with("sacreBLEU 2.6.0,"));
    golden
}

fn near(ours: f64, theirs: f64, what: &str) {
    assert!(
        (ours - theirs).abs() < ROUNDING,
        "{what}: {ours} for {theirs}"
    );
}

/// What sacreBLEU prints, with our version in place of its own.
fn in_our_name(printed: &str) -> String {
    let ours = concat!("version:zoo-data-", env!("CARGO_PKG_VERSION"));
    printed.replace("version:2.6.0", ours)
}

impl Golden {
    /// The score of a corpus of that name.
    fn score<M: CorpusMetric>(&self, metric: &M, corpus: &str) -> M::Score {
        let corpus = self.corpora.iter().find(|known| known.name == corpus);
        let mut counts = metric.counts().expect("a metric");
        for (output, references) in &corpus.expect("a corpus of that name").lines {
            counts.add(output, references).expect("references");
        }
        counts.score().expect("lines")
    }
}

#[test]
fn lines_are_cut_into_the_same_words() {
    let golden = golden();
    assert!(golden.tokens.len() > 150);
    for tokens in golden.tokens {
        assert_eq!(tokens.words.len(), Tokenizer::ALL.len());
        for (tokenizer, words) in tokens.words {
            let cut = tokenizer
                .parse::<Tokenizer>()
                .unwrap()
                .tokenize(&tokens.line);
            let cut: Vec<&str> = cut
                .split(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c))
                .filter(|word| !word.is_empty())
                .collect();
            assert_eq!(cut.join(" "), words, "{tokenizer} of {:?}", tokens.line);
        }
    }
}

#[test]
fn bleu_is_sacrebleus() {
    let golden = golden();
    assert_eq!(golden.bleu.len(), 170);
    for theirs in &golden.bleu {
        let bleu = Bleu {
            tokenizer: theirs.tokenizer.parse().unwrap(),
            case: if theirs.lowercase {
                Case::Lower
            } else {
                Case::Mixed
            },
        };
        let ours = golden.score(&bleu, &theirs.corpus);
        let what = format!("{}, {bleu:?}", theirs.corpus);
        near(ours.score, theirs.score, &what);
        near(ours.brevity_penalty, theirs.brevity_penalty, &what);
        for (ours, theirs) in ours.precisions.iter().zip(&theirs.precisions) {
            near(*ours, *theirs, &what);
        }
        let lengths = (ours.hypothesis_length, ours.reference_length);
        let their_lengths = (theirs.hypothesis_length, theirs.reference_length);
        assert_eq!(lengths, their_lengths, "{what}");
        assert_eq!(ours.to_string(), in_our_name(&theirs.printed), "{what}");
    }
}

#[test]
fn chrf_is_sacrebleus() {
    let golden = golden();
    assert_eq!(golden.chrf.len(), 34);
    for theirs in &golden.chrf {
        let ours = golden.score(&Chrf::default(), &theirs.corpus);
        near(ours.score, theirs.score, &theirs.corpus);
        assert_eq!(
            ours.to_string(),
            in_our_name(&theirs.printed),
            "{}",
            theirs.corpus
        );
    }
}
