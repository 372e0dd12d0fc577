//! What is said of runs and of texts, in numbers.

use libtest_mimic::Trial;
use serde_json::Value;
use zoo_config::Data;
use zoo_data::tasks::{Arrangement, Generate};
use zoo_train::cli::classify::Classify;
use zoo_train::cli::eval::Eval;
use zoo_train::cli::translate::Translate;
use zoo_train::{Trained, Which};

use crate::runs::{Kind, Runs};
use crate::shared::has;

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    vec![
        runs.trial("eval::it_says_what_training_said", says_what_training_said),
        runs.trial("eval::texts_of_other_files_are_judged_alike", other_files),
        runs.trial("eval::people_read_tables", tables),
        runs.trial("classify::probabilities_are_of_the_judgement", classify),
        runs.trial("classify::a_document_may_have_several_lines", documents),
    ]
}

fn json(runs: &Runs, kind: Kind, words: &[&str]) -> Value {
    let text = runs.printed::<Eval>(kind, &[words, &["--json"]].concat());
    serde_json::from_str(&text).unwrap()
}

/// The same weights and the same texts: the same numbers as in the test after training.
fn says_what_training_said(runs: &Runs) {
    for kind in [
        Kind::Transformer,
        Kind::Seq2Seq,
        Kind::Gpt,
        Kind::Classifier,
        Kind::Han,
    ] {
        let value = json(runs, kind, &[]);
        let test = runs.finished(kind).test.as_ref().expect("there is a test");
        assert!(!test.values().is_empty());
        for (metric, expected) in test.values() {
            let got = value[metric.word()].as_f64().unwrap();
            // Threads may add up in another order the second time: a few roundings of f32.
            let close = 1e-5 * expected.abs().max(1.0);
            assert!(
                (got - expected).abs() < close,
                "{kind:?}, {metric:?}: {got}, not {expected}"
            );
        }
    }
}

fn other_files(runs: &Runs) {
    let config = runs.finished(Kind::Transformer).folder.config().unwrap();
    let Data::Copy(data) = &config.data else {
        panic!("{:?}", config.data);
    };
    let parts = Arrangement::Copy.generate(data, config.run.seed).unwrap();
    let lines = |text: fn(&zoo_data::Pair) -> &String| {
        let lines: Vec<&str> = parts.test.iter().map(|pair| text(pair).as_str()).collect();
        lines.join("\n") + "\n"
    };
    let source = runs.given("eval.source", lines(|pair| &pair.source));
    let target = runs.given("eval.target", lines(|pair| &pair.target));
    let hypotheses = runs.file("eval.hypotheses").display().to_string();
    let own = json(runs, Kind::Transformer, &["--part", "test"]);
    let words = [
        "--source",
        &source,
        "--target",
        &target,
        "--hypotheses",
        &hypotheses,
    ];
    let given = json(runs, Kind::Transformer, &words);
    for key in ["bleu", "chrf", "exact", "loss", "size"] {
        assert_eq!(given[key], own[key], "{key}");
    }
    // What was written there is what is written otherwise.
    let written = runs.printed::<Translate>(Kind::Transformer, &["--file", &source]);
    assert_eq!(std::fs::read_to_string(&hypotheses).unwrap(), written);

    let words = ["--bleu-tokenize", "char", "--lowercase"];
    let other = json(runs, Kind::Transformer, &words);
    let signature = other["bleu_details"]["signature"].as_str().unwrap();
    has(signature, "case:lc|eff:no|tok:char");
    let plain = runs.given("eval.txt", "a b c");
    let said = runs.refused::<Eval>(Kind::Transformer, &["--text", &plain]);
    has(&said, "it takes --source FILE with --target FILE");
}

fn tables(runs: &Runs) {
    let text = runs.printed::<Eval>(Kind::Transformer, &["--samples", "1"]);
    for part in [
        "test data: 6 examples",
        "BLEU|nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:",
        "chrF2|nrefs:1",
        "exact sequences ",
        "perplexity ",
        "  given:  ",
        "  wanted: ",
    ] {
        has(&text, part);
    }
    let text = runs.printed::<Eval>(Kind::Classifier, &["--part", "valid"]);
    for part in [
        "validation data: 6 examples",
        "class  precision  recall",
        "macro-F1",
        "true, across: taken for",
        "\nloss ",
    ] {
        has(&text, part);
    }
    has(&runs.printed::<Eval>(Kind::Gpt, &[]), "bits a token");
}

fn classify(runs: &Runs) {
    let finished = runs.finished(Kind::Classifier);
    let config = finished.folder.config().unwrap();
    let Data::ListOps(data) = &config.data else {
        panic!("{:?}", config.data);
    };
    let parts = data.generate(config.run.seed).unwrap();
    let lines: Vec<&str> = parts.test.iter().map(|it| it.text.as_str()).collect();
    let file = runs.given("classify.txt", lines.join("\n\n"));
    let words = ["--file", &file, "--json", "--top", "99"];
    let text = runs.printed::<Classify>(Kind::Classifier, &words);
    let mut right = 0;
    for (at, line) in text.lines().enumerate() {
        let value: Value = serde_json::from_str(line).unwrap();
        if at % 2 == 1 {
            assert!(value["label"].is_null(), "an empty line: {line}");
            continue;
        }
        let classes = value["classes"].as_array().unwrap();
        let shares = classes.iter().map(|it| it["probability"].as_f64().unwrap());
        let shares: Vec<f64> = shares.collect();
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{line}");
        assert!(shares.is_sorted_by(|a, b| a >= b), "{line}");
        assert_eq!(value["label"], classes[0]["label"]);
        right += usize::from(value["label"] == parts.test[at / 2].label.as_str());
    }
    // As many are right as the test after training found.
    let test = finished.test.as_ref().expect("there is a test");
    let accuracy = test.value(zoo_config::Metric::Accuracy).unwrap();
    assert_eq!(right as f64 / parts.test.len() as f64, accuracy);

    let text = runs.printed::<Classify>(Kind::Classifier, &["--file", &file, "--top", "2"]);
    let first: Vec<&str> = text.lines().next().unwrap().split('\t').collect();
    assert_eq!(
        first.len(),
        4,
        "two classes and their probabilities: {text}"
    );
}

fn documents(runs: &Runs) {
    let document = "one two three .\nfour five .";
    let file = runs.given("document.txt", document);
    let words = ["--file", &file, "--whole", "--top", "1"];
    let text = runs.printed::<Classify>(Kind::Han, &words);
    let trained = Trained::open(runs.run(Kind::Han), Which::Best, None, &[]).unwrap();
    let told = trained.classify(&[document], &mut |_| ()).unwrap();
    let (label, share) = &told[0].classes[0];
    assert_eq!(text, format!("{label}\t{share:.4}\n"));
}
