//! BLEU and chrF against what sacreBLEU computed. `golden/sacrebleu.py` says how.

use serde_json::Value;
use zoo_data::metrics::{Bleu, BleuTokenizer, Case, Chrf, CorpusMetric, tokenize};

/// The same counts and the same formula in the same precision: what is left is the order
/// of a handful of operations on numbers up to 100.
const ROUNDING: f64 = 1e-9;

fn golden() -> Value {
    let golden: Value =
        serde_json::from_str(include_str!("../golden/sacrebleu.json")).expect("a golden file");
    assert!(text(&golden["made_by"]).starts_with("sacreBLEU 2.6.0,"));
    golden
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn near(ours: f64, theirs: &Value, what: &str) {
    let theirs = theirs.as_f64().expect("a number");
    assert!(
        (ours - theirs).abs() < ROUNDING,
        "{what}: {ours} for {theirs}"
    );
}

/// What sacreBLEU prints, with our version in place of its own.
fn in_our_name(printed: &Value) -> String {
    let ours = concat!("version:zoo-data-", env!("CARGO_PKG_VERSION"));
    text(printed).replace("version:2.6.0", ours)
}

/// The score of the corpus of a case: lines of output, each with its references.
fn score<M: CorpusMetric>(golden: &Value, metric: &M, case: &Value) -> M::Score {
    let corpora = list(&golden["corpora"]).iter();
    let mut corpora = corpora.filter(|corpus| corpus["name"] == case["corpus"]);
    let corpus = corpora.next().expect("a corpus of that name");
    let mut counts = metric.counts();
    for line in list(&corpus["lines"]) {
        let references: Vec<&str> = list(&line[1]).iter().map(text).collect();
        counts.add(text(&line[0]), &references).expect("references");
    }
    counts.score().expect("lines")
}

#[test]
fn lines_are_cut_into_the_same_words() {
    let golden = golden();
    assert!(list(&golden["tokens"]).len() > 150);
    for tokens in list(&golden["tokens"]) {
        for tokenizer in BleuTokenizer::ALL {
            let cut = tokenize(text(&tokens["line"]), tokenizer);
            let cut: Vec<&str> = cut
                .split(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c))
                .filter(|word| !word.is_empty())
                .collect();
            let words = text(&tokens["words"][tokenizer.word()]);
            assert_eq!(cut.join(" "), words, "{tokenizer} of {}", tokens["line"]);
        }
    }
}

#[test]
fn bleu_is_sacrebleus() {
    let golden = golden();
    assert_eq!(list(&golden["bleu"]).len(), 170);
    for theirs in list(&golden["bleu"]) {
        let bleu = Bleu {
            tokenizer: text(&theirs["tokenizer"]).parse().unwrap(),
            case: match theirs["lowercase"] == true {
                true => Case::Lower,
                false => Case::Mixed,
            },
        };
        let ours = score(&golden, &bleu, theirs);
        let what = format!("{}, {bleu:?}", theirs["corpus"]);
        near(ours.score, &theirs["score"], &what);
        near(ours.brevity_penalty, &theirs["brevity_penalty"], &what);
        for (ours, theirs) in ours.precisions.iter().zip(list(&theirs["precisions"])) {
            near(*ours, theirs, &what);
        }
        let lengths = [ours.hypothesis_length, ours.reference_length];
        let theirs_lengths = ["hypothesis_length", "reference_length"].map(|key| &theirs[key]);
        assert_eq!(
            theirs_lengths,
            lengths.map(Value::from).each_ref(),
            "{what}"
        );
        assert_eq!(ours.to_string(), in_our_name(&theirs["printed"]), "{what}");
    }
}

#[test]
fn chrf_is_sacrebleus() {
    let golden = golden();
    assert_eq!(list(&golden["chrf"]).len(), 34);
    for theirs in list(&golden["chrf"]) {
        let ours = score(&golden, &Chrf::default(), theirs);
        let what = theirs["corpus"].to_string();
        near(ours.score, &theirs["score"], &what);
        assert_eq!(ours.to_string(), in_our_name(&theirs["printed"]), "{what}");
    }
}
