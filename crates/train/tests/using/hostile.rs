//! Control characters in tensor names, labels and paths are escaped before they are printed.

use std::fs;
use std::process::Command;

use burn::tensor::TensorData;
use libtest_mimic::Trial;
use zoo_models::weights::Weights;
use zoo_train::cli::classify::Classify;
use zoo_train::cli::eval::Eval;
use zoo_train::cli::inspect::Inspect;

use crate::runs::{Kind, Runs, run_err, run_ok};
use crate::shared::{copy_folder, has};

/// Sets the terminal title, clears the screen, starts a new line, reverses the text direction.
const HOSTILE: &str = "\u{1b}]0;t\u{7}\u{1b}[2J\n\u{9b}31m\u{202e}";

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    vec![
        runs.trial("hostile::tensor_names", tensors),
        runs.trial("hostile::labels", labels),
        runs.trial("hostile::error_messages", program),
    ]
}

fn check(text: &str) {
    let is_unsafe = |it: char| {
        !matches!(it, '\n' | '\t') && (it.is_control() || matches!(it, '\u{202a}'..='\u{202e}'))
    };
    assert!(!text.contains(is_unsafe), "{text:?}");
}

fn tensors(runs: &Runs) {
    for name in ["hostile.safetensors", "hostile.bpk"] {
        let path = runs.file(name);
        let key = format!("{HOSTILE}.weight");
        let one = TensorData::new(vec![1_f32], [1]);
        Weights::from_tensors([(key, one)]).replace(&path).unwrap();
        for more in [&[][..], &["--weights"]] {
            let args = [&[path.to_str().unwrap()], more].concat();
            let text = run_ok::<Inspect>(&args);
            check(&text);
            has(&text, "\\u{1b}]0;t\\u{7}\\u{1b}[2J\\n\\u{9b}31m\\u{202e}");
            assert_eq!(text.lines().count(), 3, "{text}");
        }
    }
}

fn labels(runs: &Runs) {
    let run = runs.file("hostile-labels");
    copy_folder(runs.folder(Kind::Classifier), &run);
    let path = run.join("labels.json");
    let labels: Vec<String> = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let labels: Vec<String> = labels.iter().map(|it| format!("{HOSTILE}{it}")).collect();
    fs::write(&path, serde_json::to_string(&labels).unwrap()).unwrap();
    let run = run.to_str().unwrap();
    let file = runs.write("hostile-line.txt", "[ MAX 1 2 ]\n");
    let text = run_ok::<Classify>(&[run, "--file", file.to_str().unwrap()]);
    check(&text);
    assert_eq!(text.lines().count(), 1, "{text:?}");
    has(&text, "\\u{1b}]0;t");
    // The labels of the data are unknown.
    let text = run_err::<Eval>(&[run]);
    check(&text);
    has(&text, "\\u{1b}]0;t");
}

fn program(runs: &Runs) {
    let toml = |name: &str, data: &str| {
        let text = format!(
            "[run]\noutput = {:?}\n[data]\n{data}\n[model]\nkind = \"classifier\"\n",
            runs.file("hostile-runs").display().to_string()
        );
        runs.write(name, text)
    };
    let table = runs.write("hostile.csv", format!("{}\n1\n", HOSTILE.replace('\n', "")));
    let train = format!(
        "kind = \"labelled\"\ntrain = {:?}",
        table.display().to_string()
    );
    let weights = runs.write("hostile-broken.safetensors", format!("{HOSTILE}weights"));
    for (args, part) in [
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
        (
            ["inspect".into(), weights],
            "invalid or truncated safetensors file",
        ),
        (
            ["inspect".into(), runs.file("no\u{1b}[2Jfile")],
            "does not exist",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_zoo")).args(args).output();
        let output = output.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(part), "{stderr:?} has no {part}");
        check(&stderr);
    }
}
