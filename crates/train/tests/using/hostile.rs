//! Names and labels in files of others: a terminal is not given what it would act on.

use std::fs;
use std::process::Command;

use burn::tensor::TensorData;
use libtest_mimic::Trial;
use zoo_models::weights::Weights;
use zoo_train::cli::classify::Classify;
use zoo_train::cli::eval::Eval;
use zoo_train::cli::inspect::Inspect;

use crate::runs::{Kind, Runs, printed, refused};
use crate::shared::{copy_folder, has};

/// Sets the title, clears the screen, begins a line of its own, reorders what follows.
const HOSTILE: &str = "\u{1b}]0;t\u{7}\u{1b}[2J\n\u{9b}31m\u{202e}";

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    vec![
        runs.trial("hostile::names_of_tensors", tensors),
        runs.trial("hostile::labels", labels),
        runs.trial("hostile::files_of_every_kind_through_the_program", program),
    ]
}

fn check(text: &str) {
    let acted_on = |it: char| {
        !matches!(it, '\n' | '\t') && (it.is_control() || matches!(it, '\u{202a}'..='\u{202e}'))
    };
    assert!(!text.contains(acted_on), "{text:?}");
}

fn tensors(runs: &Runs) {
    for name in ["hostile.safetensors", "hostile.bpk"] {
        let path = runs.file(name);
        let key = format!("{HOSTILE}.weight");
        let one = TensorData::new(vec![1_f32], [1]);
        Weights::of_tensors([(key, one)]).replace(&path).unwrap();
        for more in [&[][..], &["--weights"]] {
            let words = [&[path.to_str().unwrap()], more].concat();
            let text = printed::<Inspect>(&words);
            check(&text);
            has(&text, "\\u{1b}]0;t\\u{7}\\u{1b}[2J\\n\\u{9b}31m\\u{202e}");
            assert_eq!(text.lines().count(), 3, "{text}");
        }
    }
}

fn labels(runs: &Runs) {
    let run = runs.file("hostile-labels");
    copy_folder(runs.run(Kind::Classifier), &run);
    let path = run.join("labels.json");
    let labels: Vec<String> = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let labels: Vec<String> = labels.iter().map(|it| format!("{HOSTILE}{it}")).collect();
    fs::write(&path, serde_json::to_string(&labels).unwrap()).unwrap();
    let run = run.to_str().unwrap();
    let file = runs.written("hostile-line.txt", "[ MAX 1 2 ]\n");
    let text = printed::<Classify>(&[run, "--file", file.to_str().unwrap()]);
    check(&text);
    assert_eq!(text.lines().count(), 1, "{text:?}");
    has(&text, "\\u{1b}]0;t");
    // None of the labels of the data is known.
    let text = refused::<Eval>(&[run]);
    check(&text);
    has(&text, "\\u{1b}]0;t");
}

fn program(runs: &Runs) {
    let toml = |name: &str, data: &str| {
        let text = format!(
            "[run]\noutput = {:?}\n[data]\n{data}\n[model]\nkind = \"classifier\"\n",
            runs.file("hostile-runs").display().to_string()
        );
        runs.written(name, text)
    };
    let table = runs.written("hostile.csv", format!("{}\n1\n", HOSTILE.replace('\n', "")));
    let train = format!(
        "kind = \"labelled\"\ntrain = {:?}",
        table.display().to_string()
    );
    let weights = runs.written("hostile-broken.safetensors", format!("{HOSTILE}weights"));
    for (words, part) in [
        (
            ["train".into(), toml("hostile-csv.toml", &train)],
            "unknown column",
        ),
        (
            [
                "train".into(),
                toml("hostile-key.toml", "kind = \"listops\"\n\"\\u001b[2J\" = 1"),
            ],
            "unknown key",
        ),
        (["inspect".into(), weights], "not a whole safetensors file"),
        (
            ["inspect".into(), runs.file("no\u{1b}[2Jfile")],
            "there is no",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_zoo")).args(words).output();
        let output = output.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(part), "{said:?} has no {part}");
        check(&said);
    }
}
