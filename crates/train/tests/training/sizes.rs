//! Absurdly large sizes.

use std::time::{Duration, Instant};

use zoo_backend::OpenDevice;
use zoo_config::{Config, ConfigError};
use zoo_train::{StopReason, TrainError, train};

use crate::shared::{has, lacks};
use crate::support::{TempDir, output_text, quiet, small_run, trials, zoo};

trials! {
    trials:
    configs_that_exceed_memory_are_rejected_early,
    out_of_range_values_are_rejected,
    huge_epochs_and_batches_start_immediately,
}

/// Always with flex, because no device is opened.
fn configs_that_exceed_memory_are_rejected_early(_: &OpenDevice) {
    let folder = TempDir::new();
    let output = folder.join("runs").display().to_string();
    folder.write("a.txt", "some text ".repeat(100));
    let text = folder.join("a.txt").display().to_string();
    let reverse = "data.kind = \"reverse\"\nmodel.kind = \"transformer\"\n";
    let plain = format!(
        "data = {{ kind = \"plain\", train = {text:?} }}\nmodel.kind = \"gpt\"\n\
         model.positions = \"sinusoidal\"\n"
    );
    for (lines, key) in [
        (
            format!("{reverse}model.d_model = 1048576\n"),
            "model.d_model",
        ),
        (
            format!("{reverse}model.layers = 4096\nmodel.d_model = 65536\n"),
            "model.layers",
        ),
        (
            format!(
                "{reverse}model.positions = {{ kind = \"learned\", max_positions = 1073741824 }}\n"
            ),
            "model.d_model",
        ),
        (
            "data = { kind = \"reverse\", train_size = 1000000000, min_length = 1000, max_length \
             = 1000 }\nmodel.kind = \"seq2seq\"\n"
                .to_owned(),
            "data.train_size",
        ),
        (
            format!("{plain}training.batch_size = 1073741824\n"),
            "training.batch_size",
        ),
        (
            format!("{plain}model.context = 1073741824\n"),
            "model.context",
        ),
    ] {
        let text = format!("run.output = {output:?}\nbackend.name = \"flex\"\n{lines}");
        let config = Config::parse("absurd.toml", &text, &[]);
        let config = config.unwrap_or_else(|error| panic!("{text}\n{error}"));
        let start = Instant::now();
        let error = train(&config, &quiet()).unwrap_err();
        let took = start.elapsed();
        assert!(
            matches!(error, TrainError::Config(ConfigError::Memory(_))),
            "{text}\n{error}"
        );
        assert!(error.to_string().contains(key), "{text}\n{error}");
        assert!(took < Duration::from_secs(30), "{text}\n{took:?}");
        assert!(!folder.join("runs").exists(), "{text}");
    }
}

fn out_of_range_values_are_rejected(_: &OpenDevice) {
    let folder = TempDir::new();
    let path = folder.write(
        "a.toml",
        "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\n",
    );
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
        has(&message, format!("--set {set}: {key} must be"));
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
        options.interrupter.stop(Some("after the first step"));
        let start = Instant::now();
        let output = train(&config, &options).unwrap();
        let took = start.elapsed();
        assert_eq!(output.stop_reason, StopReason::Interrupted);
        // A step is slow on a software adapter; enumerating the epochs would take hours.
        assert!(took < Duration::from_secs(300), "{took:?}");
    }
}
