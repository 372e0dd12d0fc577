//! Invalid configs and data are rejected before training starts, and no run folder is created.

use std::time::{Duration, Instant};

use zoo_backend::OpenDevice;
use zoo_config::{Config, ConfigError};
use zoo_train::{StopReason, TrainError, train};

use crate::support::*;

trials! {
    trials(OpenDevice):
    invalid_data_files_are_named,
    invalid_configs_are_reported_with_their_location,
    print_config_includes_every_default,
    configs_that_exceed_memory_are_rejected_early,
    out_of_range_values_are_rejected,
    huge_epochs_and_batches_start_immediately,
}

fn invalid_data_files_are_named(opened: &OpenDevice) {
    let folder = TempDir::new();
    let long = format!("a b\tc d\n{}\tx\n", "a ".repeat(40));
    let files: [(&str, &[u8]); 7] = [
        ("latin.txt", b"caf\xe9 au lait"),
        ("empty.txt", b""),
        ("short.txt", b"too short"),
        ("train.tsv", &b"good\tfine film\nbad\tdull film\n".repeat(4)),
        ("valid.tsv", b"ugly\tno film\n"),
        ("broken.tsv", &b"good\tfine film\nno tab here\n".repeat(4)),
        ("long.tsv", &long.as_bytes().repeat(6)),
    ];
    for (name, content) in files {
        folder.write(name, content);
    }
    let data = |kind: &str, files: &[&str]| {
        let keys = ["train", "valid"].into_iter().zip(files);
        let keys = keys.map(|(key, name)| {
            let path = folder.join(name).display().to_string();
            format!("data.{key} = {path:?}\n")
        });
        format!("data.kind = {kind:?}\n{}", keys.collect::<String>())
    };
    let check = |data: String, model: &str, expected: &str| {
        let config = parse_config(opened.id, &folder, "wrong", &format!("{data}{model}"));
        has(&train_error(&config, &quiet()), expected);
        let runs = folder.join("runs");
        assert!(!runs.exists(), "a rejected run has no folder");
    };
    let gpt = "model.kind = \"gpt\"";
    for name in ["nowhere.txt", "latin.txt", "empty.txt"] {
        check(data("plain", &[name]), gpt, name);
    }
    let expected = "a context of 128 needs at least 129";
    check(data("plain", &["short.txt"]), gpt, expected);
    let classifier = "model.kind = \"classifier\"";
    let other_label = data("labelled", &["train.tsv", "valid.tsv"]);
    check(other_label, classifier, "ugly");
    let broken = data("labelled", &["broken.tsv"]);
    check(broken, classifier, "broken.tsv, line 2");
    let eight_positions = "tokenizer.kind = \"word\"\n\
        model = { kind = \"transformer\", positions = { kind = \"learned\", max_positions = 8 } }";
    let expected = "has an example of 40 tokens; the model's context is 8";
    check(data("parallel", &["long.tsv"]), eight_positions, expected);
}

fn invalid_configs_are_reported_with_their_location(opened: &OpenDevice) {
    let folder = TempDir::new();
    let text = config_text(opened, &folder, &[]).replace("\"transformer\"", "\"gpt\"");
    let path = folder.write("wrong.toml", text);
    has(&failure_text(&zoo_train(&path, &[])), "wrong.toml:");
    assert!(!folder.join("runs").exists());

    let text = "[data]\nkind = \"plain\"\ntrain = \"no/play.txt\"\n[model]\nkind = \"gpt\"\n";
    let path = folder.write("missing.toml", text);
    let text = failure_text(&zoo_train(&path, &[]));
    let here = std::env::current_dir().unwrap();
    for part in [
        format!(
            "error: data.train: no such file: no/play.txt (relative to {})\n",
            here.display()
        ),
        format!(" --> {}:3:9\n", path.display()),
        "\n3 | train = \"no/play.txt\"\n  |         ^^^^^^^^^^^^^\n".to_owned(),
        "\n  = help: download the data".to_owned(),
    ] {
        has(&text, &part);
    }
    // Reported before a device is opened.
    lacks(&text, "device:");

    let path = folder.write("small.toml", config_text(opened, &folder, &[]));
    let output = zoo_train(&path, &["--set", "model.layrs=4"]);
    has(&failure_text(&output), "layers");
}

fn print_config_includes_every_default(opened: &OpenDevice) {
    let folder = TempDir::new();
    let path = folder.write("small.toml", config_text(opened, &folder, &[]));
    let args = ["--set", "model.layers=4", "--print-config"];
    let output = zoo(&["train", path.to_str().unwrap()]).args(args).output();
    let output = output.unwrap();
    assert_success(&output);
    has(&output_text(&output), "layers = 4");
    has(&output_text(&output), "label_smoothing = 0.0");
}

/// Always with flex, because no device is opened.
fn configs_that_exceed_memory_are_rejected_early(_: &OpenDevice) {
    let folder = TempDir::new();
    let output = folder.join("runs").display().to_string();
    folder.write("a.txt", "some text ".repeat(100));
    let text = folder.join("a.txt").display().to_string();
    let check = |lines: &str, key: &str| {
        let text = format!("run.output = {output:?}\nbackend.name = \"flex\"\n{lines}\n");
        let config = Config::parse("absurd.toml", &text, &[]);
        let config = config.unwrap_or_else(|error| panic!("{text}{error}"));
        let start = Instant::now();
        let error = train(&config, &quiet()).unwrap_err();
        let took = start.elapsed();
        let is_memory = matches!(error, TrainError::Config(ConfigError::Memory(_)));
        assert!(is_memory, "{text}{error}");
        assert!(error.to_string().contains(key), "{text}{error}");
        assert!(took < Duration::from_secs(30), "{text}{took:?}");
        assert!(!folder.join("runs").exists(), "{text}");
    };
    let reverse = |lines: &str, key: &str| {
        let data = "data.kind = \"reverse\"\nmodel.kind = \"transformer\"";
        check(&format!("{data}\n{lines}"), key);
    };
    reverse("model.d_model = 1048576", "model.d_model");
    let layers = "model.layers = 4096\nmodel.d_model = 65536";
    reverse(layers, "model.layers");
    let positions = "model.positions = { kind = \"learned\", max_positions = 1073741824 }";
    reverse(positions, "model.d_model");
    let examples = "data = { kind = \"reverse\", train_size = 1000000000, min_length = 1000, \
                    max_length = 1000 }\nmodel.kind = \"seq2seq\"";
    check(examples, "data.train_size");
    for key in ["training.batch_size", "model.context"] {
        let plain = format!(
            "data = {{ kind = \"plain\", train = {text:?} }}\nmodel.kind = \"gpt\"\n\
             model.positions = \"sinusoidal\"\n{key} = 1073741824"
        );
        check(&plain, key);
    }
}

fn out_of_range_values_are_rejected(_: &OpenDevice) {
    let folder = TempDir::new();
    let text = "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\n";
    let path = folder.write("a.toml", text);
    for (key, value) in [
        ("model.d_model", "1000000000000000000"),
        ("model.layers", "1000000000"),
        ("training.batch_size", "2305843009213693952"),
        ("training.epochs", "18446744073709551615"),
        ("decoding.max_length", "4294967296"),
        ("data.symbols", "9223372036854775807"),
    ] {
        let set = format!("{key}={value}");
        let output = zoo(&["train", path.to_str().unwrap(), "--set", &set]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{set}");
        let message = output_text(&output);
        has(&message, format!("error: {key} must be"));
        has(&message, format!("\n1 | --set {set}\n"));
        lacks(&message, "panicked");
    }
}

/// A batch is limited by the number of examples, and epochs are not enumerated.
fn huge_epochs_and_batches_start_immediately(opened: &OpenDevice) {
    for batch_by in ["examples", "tokens"] {
        let by = format!("training.batch_by = \"{batch_by}\"");
        let changes = [
            "training.epochs = 100000000",
            "training.batch_size = 1073741824",
            &by,
        ];
        let (_folder, config) = small_run(opened, &changes);
        let options = quiet();
        options.interrupter.stop();
        let start = Instant::now();
        let output = train(&config, &options).unwrap();
        let took = start.elapsed();
        assert_eq!(output.stop_reason, StopReason::Interrupted);
        // A step is slow on a software adapter; enumerating the epochs would take hours.
        assert!(took < Duration::from_secs(300), "{took:?}");
    }
}
