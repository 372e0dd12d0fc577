//! Commands on model folders of Hugging Face's transformers, which
//! `crates/conformance/golden/hugging_face.py` wrote.

use std::path::{Path, PathBuf};

use serde_json::Value;
use zoo_train::cli::attend::Attend;
use zoo_train::cli::eval::Eval;
use zoo_train::cli::generate::Generate;
use zoo_train::cli::inspect::Inspect;
use zoo_train::cli::translate::Translate;

use crate::runs::*;

trials! {
    on_devices(Runs):
    generate_continues_like_transformers,
}

trials! {
    trials(Runs):
    inspect_shows_model_and_tensors,
    attend_shows_tokens,
    end_tokens_end_a_text,
    what_pretrained_weights_do_not_have_is_refused,
    folders_without_tokenizer_are_refused,
}

fn golden(name: &str) -> PathBuf {
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../conformance/golden/hugging_face"
    );
    Path::new(golden).join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A copy of a golden folder, without the files of this name.
fn copy(runs: &Runs, name: &str, to: &str, without: &str) -> PathBuf {
    for entry in std::fs::read_dir(golden(name)).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        if file != without {
            runs.write(&format!("{to}/{file}"), std::fs::read(&path).unwrap());
        }
    }
    runs.file(to)
}

fn generate_continues_like_transformers(runs: &Runs) {
    let folder = golden("llama3");
    let expected = std::fs::read(folder.join("generated.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    let prompt = expected["prompt"].as_str().unwrap();
    let length = expected["tokens"].to_string();
    let backend = runs.backend();
    let args = [
        text(&folder),
        "--backend",
        backend.name(),
        "--prompt",
        prompt,
        "--strategy",
        "greedy",
        "--max-length",
        &length,
    ];
    let got = run_ok::<Generate>(&args);
    assert_eq!(got, expected["text"].as_str().unwrap().to_owned() + "\n");
}

fn end_tokens_end_a_text(runs: &Runs) {
    let folder = copy(runs, "llama3", "ends", "generation_config.json");
    let generate = || {
        let args = [text(&folder), "--prompt", "a", "--strategy", "greedy"];
        run_ok::<Generate>(&[&args[..], &["--set", "decoding.max_length=20"]].concat())
    };
    let ends = |ids: &str| {
        let config = format!("{{\"eos_token_id\": {ids}}}");
        runs.write("ends/generation_config.json", config);
    };
    ends("null");
    let config = folder.join("config.json");
    let all = std::fs::read_to_string(&config).unwrap();
    let config_ends = |ids: &str| {
        let mut value: Value = serde_json::from_str(&all).unwrap();
        value["eos_token_id"] = serde_json::from_str(ids).unwrap();
        runs.write("ends/config.json", value.to_string());
    };
    config_ends("null");
    let endless = generate();
    // Every token ends the text.
    let every: Vec<u32> = (0..320).collect();
    config_ends(&format!("{every:?}"));
    assert_eq!(generate(), "a\n");
    assert_ne!(endless, "a\n");
    // The generation config takes precedence.
    ends("[311]");
    assert_eq!(generate(), endless);
}

fn inspect_shows_model_and_tensors(_: &Runs) {
    let folder = golden("llama3");
    let shown = run_ok::<Inspect>(&[text(&folder)]);
    has(&shown, "llama, pretrained, context 80");
    has(&shown, "313 in the tokenizer, end tokens: 311, 312");
    has(&shown, "GPT of 2 layers, flash");
    has(&shown, "parameters in ");
    let shown = run_ok::<Inspect>(&[text(&folder), "--weights", "--config"]);
    has(&shown, "layers.1.attention.key.weight");
    has(&shown, "bf16");
    has(&shown, "\"rope_type\": \"llama3\"");
}

fn attend_shows_tokens(runs: &Runs) {
    let page = runs.file("pretrained.html");
    let folder = golden("llama3");
    let args = [text(&folder), "--text", "a b", "--to", text(&page)];
    run_ok::<Attend>(&args);
    let page = std::fs::read_to_string(page).unwrap();
    has(&page, "pretrained weights");
    // The token that the post-processor adds, escaped.
    has(&page, "begin_of_text");
}

fn what_pretrained_weights_do_not_have_is_refused(_: &Runs) {
    let folder = golden("llama3");
    let folder = text(&folder);
    let message = run_err::<Generate>(&[folder, "--checkpoint", "last"]);
    has(
        &message,
        "has pretrained weights and no checkpoints\n  help: omit --checkpoint",
    );
    let message = run_err::<Generate>(&[folder, "--set", "model.layers=1"]);
    has(&message, "--set model.layers: ");
    has(&message, "\n  help: set keys of [decoding] or [backend]");
    let message = run_err::<Eval>(&[folder]);
    has(
        &message,
        "has pretrained weights, and no data\n  help: use `zoo generate`",
    );
    let message = run_err::<Attend>(&[folder, "--example", "1"]);
    has(&message, "--example: ");
    has(&message, "\n  help: give a text with --text");
    let message = run_err::<Translate>(&[folder, "--file", "a"]);
    has(&message, "is a gpt, which does not support `zoo translate`");
}

fn folders_without_tokenizer_are_refused(runs: &Runs) {
    let folder = copy(runs, "llama3", "no-tokenizer", "tokenizer.json");
    for message in [
        run_err::<Generate>(&[text(&folder)]),
        run_err::<Inspect>(&[text(&folder)]),
    ] {
        has(
            &message,
            "has no tokenizer.json\n  help: get it from the page of the model",
        );
    }
    // A shard that is missing.
    let name = "model-00002-of-00003.safetensors";
    let folder = copy(runs, "llama3", "no-shard", name);
    let message = run_err::<Generate>(&[text(&folder)]);
    has(&message, format!("the file {name} does not exist"));
}
