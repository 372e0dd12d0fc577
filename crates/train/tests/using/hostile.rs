//! Control characters in tensor names, labels and paths are escaped before they are printed.

use std::fs;
use std::process::Command;

use burn::tensor::TensorData;
use zoo_models::weights::Weights;
use zoo_train::cli::classify::Classify;
use zoo_train::cli::eval::Eval;
use zoo_train::cli::inspect::Inspect;

use crate::runs::*;

/// Sets the terminal title, clears the screen, starts a new line, reverses the text direction.
const HOSTILE: &str = "\u{1b}]0;t\u{7}\u{1b}[2J\n\u{9b}31m\u{202e}";

trials! {
    trials(Runs):
    tensor_names,
    labels,
    error_messages,
}

fn check(text: &str) {
    let is_unsafe = |it: char| {
        !matches!(it, '\n' | '\t') && (it.is_control() || matches!(it, '\u{202a}'..='\u{202e}'))
    };
    assert!(!text.contains(is_unsafe), "{text:?}");
}

fn tensor_names(runs: &Runs) {
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

fn error_messages(runs: &Runs) {
    let toml = |name: &str, data: &str| {
        let output = runs.file("hostile-runs").display().to_string();
        let model = "[model]\nkind = \"classifier\"\n";
        runs.write(
            name,
            format!("[run]\noutput = {output:?}\n[data]\n{data}\n{model}"),
        )
    };
    let table = format!("{}\n1\n", HOSTILE.replace('\n', ""));
    let table = runs.text_file("hostile.csv", table);
    let train = format!("kind = \"labelled\"\ntrain = {table:?}");
    let column = toml("hostile-csv.toml", &train);
    let key = "kind = \"listops\"\n\"\\u001b[2J\" = 1";
    let key = toml("hostile-key.toml", key);
    let weights = runs.write("hostile-broken.safetensors", format!("{HOSTILE}weights"));
    let missing = runs.file("no\u{1b}[2Jfile");
    for (command, path, part) in [
        ("train", column, "unknown column"),
        ("train", key, "unknown key"),
        ("inspect", weights, "invalid or truncated safetensors file"),
        ("inspect", missing, "does not exist"),
    ] {
        let mut zoo = Command::new(env!("CARGO_BIN_EXE_zoo"));
        let output = zoo.arg(command).arg(path).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(part), "{stderr:?} has no {part}");
        check(&stderr);
    }
}
