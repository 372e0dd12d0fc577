//! `zoo eval` and `zoo classify`.

use serde_json::Value;
use zoo_config::Data;
use zoo_data::tasks::{Generate, SequenceTask};
use zoo_train::cli::classify::Classify;
use zoo_train::cli::eval::Eval;
use zoo_train::cli::translate::Translate;

use crate::runs::*;

trials! {
    trials(Runs):
    eval_metrics_equal_those_of_training,
    eval_of_other_files,
    eval_prints_tables,
    classify_prints_probabilities,
    classify_whole_documents,
}

fn json(runs: &Runs, kind: Kind, args: &[&str]) -> Value {
    let text = runs.run_ok::<Eval>(kind, &[args, &["--json"]].concat());
    serde_json::from_str(&text).unwrap()
}

fn eval_metrics_equal_those_of_training(runs: &Runs) {
    for kind in KINDS {
        let value = json(runs, kind, &[]);
        let test = runs.train_output(kind).test.as_ref().expect("test metrics");
        assert!(!test.values().is_empty());
        for (metric, expected) in test.values() {
            let got = value[metric.name()].as_f64().unwrap();
            // Threads may add in a different order: a few f32 roundings.
            let error = (got - expected).abs() / expected.abs().max(1.0);
            assert!(error < 1e-5, "{kind:?}, {metric:?}: {got}, not {expected}");
        }
    }
}

fn eval_of_other_files(runs: &Runs) {
    let output = runs.train_output(Kind::Transformer);
    let config = output.folder.config().unwrap();
    let Data::Copy(data) = &config.data else {
        panic!("{:?}", config.data);
    };
    let parts = SequenceTask::Copy.generate(data, config.run.seed).unwrap();
    let lines = |text: fn(&zoo_data::Pair) -> &String| {
        let lines: Vec<&str> = parts.test.iter().map(|pair| text(pair).as_str()).collect();
        lines.join("\n") + "\n"
    };
    let source = runs.text_file("eval.source", lines(|pair| &pair.source));
    let target = runs.text_file("eval.target", lines(|pair| &pair.target));
    let hypotheses = runs.file("eval.hypotheses").display().to_string();
    let own = json(runs, Kind::Transformer, &["--split", "test"]);
    let files = ["--source", &source, "--target", &target];
    let args = [&files[..], &["--hypotheses", &hypotheses]].concat();
    let external = json(runs, Kind::Transformer, &args);
    // The inputs are not overwritten.
    for input in [&source, &target] {
        let before = std::fs::read_to_string(input).unwrap();
        let args = [&files[..], &["--hypotheses", input]].concat();
        let message = runs.run_err::<Eval>(Kind::Transformer, &args);
        let expected = format!("--hypotheses {input} is the input and would be overwritten");
        starts(&message, expected);
        assert_eq!(std::fs::read_to_string(input).unwrap(), before);
    }
    let nowhere = runs.file("no-folder/a.txt").display().to_string();
    let args = ["--hypotheses", &nowhere];
    let message = runs.run_err::<Eval>(Kind::Transformer, &args);
    starts(&message, format!("--hypotheses {nowhere}: no folder "));
    for key in ["bleu", "chrf", "exact", "loss", "size"] {
        assert_eq!(external[key], own[key], "{key}");
    }
    // The hypotheses equal the output of `zoo translate`.
    let translated = runs.run_ok::<Translate>(Kind::Transformer, &["--file", &source]);
    assert_eq!(std::fs::read_to_string(&hypotheses).unwrap(), translated);

    let args = ["--bleu-tokenize", "char", "--lowercase"];
    let other = json(runs, Kind::Transformer, &args);
    let signature = other["bleu_details"]["signature"].as_str().unwrap();
    has(signature, "case:lc|eff:no|tok:char");
    let plain = runs.text_file("eval.txt", "a b c");
    let message = runs.run_err::<Eval>(Kind::Transformer, &["--text", &plain]);
    has(&message, "help: use --source FILE with --target FILE");
}

fn eval_prints_tables(runs: &Runs) {
    let text = runs.run_ok::<Eval>(Kind::Transformer, &["--samples", "1"]);
    for part in [
        "test data: 6 examples",
        "\nBLEU ",
        "\n  BLEU|nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:",
        "\n  chrF2|nrefs:1",
        "exact match ",
        "perplexity ",
        "  source:     ",
        "  reference:  ",
    ] {
        has(&text, part);
    }
    let text = runs.run_ok::<Eval>(Kind::Classifier, &["--split", "valid"]);
    for part in [
        "validation data: 6 examples",
        "class  precision  recall",
        "macro-F1",
        "true \\ predicted",
        "\nloss ",
    ] {
        has(&text, part);
    }
    has(&runs.run_ok::<Eval>(Kind::Gpt, &[]), "bits per token");
}

fn classify_prints_probabilities(runs: &Runs) {
    let output = runs.train_output(Kind::Classifier);
    let config = output.folder.config().unwrap();
    let Data::ListOps(data) = &config.data else {
        panic!("{:?}", config.data);
    };
    let parts = data.generate(config.run.seed).unwrap();
    let lines: Vec<&str> = parts.test.iter().map(|it| it.text.as_str()).collect();
    let file = runs.text_file("classify.txt", lines.join("\n\n"));
    let args = ["--file", &file, "--json", "--top", "99"];
    let text = runs.run_ok::<Classify>(Kind::Classifier, &args);
    let mut correct = 0;
    for (i, line) in text.lines().enumerate() {
        let value: Value = serde_json::from_str(line).unwrap();
        if i % 2 == 1 {
            assert!(value["label"].is_null(), "an empty line: {line}");
            continue;
        }
        let classes = value["classes"].as_array().unwrap();
        let probs = classes.iter().map(|it| it["probability"].as_f64().unwrap());
        let probs: Vec<f64> = probs.collect();
        assert!((probs.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{line}");
        assert!(probs.is_sorted_by(|a, b| a >= b), "{line}");
        assert_eq!(value["label"], classes[0]["label"]);
        correct += usize::from(value["label"] == parts.test[i / 2].label.as_str());
    }
    // The accuracy equals that of the test after training.
    let test = output.test.as_ref().expect("test metrics");
    let accuracy = test.value(zoo_config::Metric::Accuracy).unwrap();
    assert_eq!(correct as f64 / parts.test.len() as f64, accuracy);

    let text = runs.run_ok::<Classify>(Kind::Classifier, &["--file", &file, "--top", "2"]);
    let columns = text.lines().next().unwrap().split('\t').count();
    assert_eq!(columns, 4, "two classes and their probabilities: {text}");
}

fn classify_whole_documents(runs: &Runs) {
    let document = "one two three .\nfour five .";
    let file = runs.text_file("document.txt", document);
    let args = ["--file", &file, "--whole", "--top", "1"];
    let text = runs.run_ok::<Classify>(Kind::Han, &args);
    let trained = runs.open(Kind::Han);
    let predictions = trained.classify(&[document], &mut |_| ()).unwrap();
    let (label, prob) = &predictions[0].classes[0];
    assert_eq!(text, format!("{label}\t{prob:.4}\n"));
}
