//! BLEU and chrF against what sacreBLEU computed. `golden/sacrebleu.py` says how.

use std::collections::HashMap;

use serde::Deserialize;
use zoo_data::metrics::{Bleu, BleuTokenizer, Case, Chrf, CorpusMetric, Smoothing, tokenize};

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
    smoothing: String,
    smooth_value: Option<f64>,
    lowercase: bool,
    effective_order: bool,
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
    char_order: usize,
    word_order: usize,
    beta: u32,
    lowercase: bool,
    whitespace: bool,
    score: f64,
    printed: String,
}

fn golden() -> Golden {
    let golden: Golden =
        serde_json::from_str(include_str!("../golden/sacrebleu.json")).expect("a golden file");
    assert!(golden.made_by.starts_with("sacreBLEU 2.6.0,"));
    golden
}

fn case(lowercase: bool) -> Case {
    if lowercase { Case::Lower } else { Case::Mixed }
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
    fn lines(&self, corpus: &str) -> (Vec<String>, Vec<Vec<String>>) {
        let corpus = self.corpora.iter().find(|known| known.name == corpus);
        corpus
            .expect("a corpus of that name")
            .lines
            .iter()
            .cloned()
            .unzip()
    }
}

#[test]
fn lines_are_cut_into_the_same_words() {
    let golden = golden();
    assert!(golden.tokens.len() > 150);
    for tokens in golden.tokens {
        assert_eq!(tokens.words.len(), BleuTokenizer::ALL.len());
        for (tokenizer, words) in tokens.words {
            let cut = tokenize(&tokens.line, tokenizer.parse().unwrap());
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
    assert!(golden.bleu.len() > 350);
    for theirs in &golden.bleu {
        let smoothing = match (theirs.smoothing.as_str(), theirs.smooth_value) {
            ("exp", _) => Smoothing::Exp,
            // sacreBLEU's own numbers where none is given.
            ("floor", value) => Smoothing::Floor(value.unwrap_or(0.1)),
            ("add-k", value) => Smoothing::AddK(value.unwrap_or(1.0)),
            ("none", _) => Smoothing::None,
            (other, _) => panic!("{other}"),
        };
        let bleu = Bleu {
            tokenizer: theirs.tokenizer.parse().unwrap(),
            smoothing,
            case: case(theirs.lowercase),
            effective_order: theirs.effective_order,
            ..Bleu::default()
        };
        let (outputs, references) = golden.lines(&theirs.corpus);
        let ours = bleu.corpus(&outputs, &references).unwrap();
        let what = format!("{}, {bleu:?}", theirs.corpus);
        near(ours.score, theirs.score, &what);
        near(ours.brevity_penalty, theirs.brevity_penalty, &what);
        for (ours, theirs) in ours.precisions.iter().zip(&theirs.precisions) {
            near(*ours, *theirs, &what);
        }
        let lengths = (ours.hypothesis_length, ours.reference_length);
        assert_eq!(
            lengths,
            (theirs.hypothesis_length, theirs.reference_length),
            "{what}"
        );
        assert_eq!(ours.to_string(), in_our_name(&theirs.printed), "{what}");
    }
}

#[test]
fn chrf_is_sacrebleus() {
    let golden = golden();
    assert!(golden.chrf.len() > 120);
    for theirs in &golden.chrf {
        let chrf = Chrf {
            char_order: theirs.char_order,
            word_order: theirs.word_order,
            beta: theirs.beta,
            case: case(theirs.lowercase),
            whitespace: theirs.whitespace,
        };
        let (outputs, references) = golden.lines(&theirs.corpus);
        let ours = chrf.corpus(&outputs, &references).unwrap();
        let what = format!("{}, {chrf:?}", theirs.corpus);
        near(ours.score, theirs.score, &what);
        assert_eq!(ours.to_string(), in_our_name(&theirs.printed), "{what}");
    }
}
