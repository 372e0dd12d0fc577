//! Invalid configs and data are rejected before training starts, and no run folder is created.

use zoo_backend::OpenDevice;

use crate::shared::{has, lacks};
use crate::support::{
    TempDir, assert_failure, assert_success, config_text, output_text, parse_config, quiet,
    train_error, trials, zoo, zoo_train,
};

trials! {
    trials:
    invalid_data_files_are_named,
    invalid_configs_are_reported_with_their_location,
    print_config_includes_every_default,
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
    let gpt = "model.kind = \"gpt\"";
    let classifier = "model.kind = \"classifier\"";
    let eight_positions = "tokenizer.kind = \"word\"\n\
        model = { kind = \"transformer\", positions = { kind = \"learned\", max_positions = 8 } }";
    for (data, model, expected) in [
        (data("plain", &["nowhere.txt"]), gpt, "nowhere.txt"),
        (data("plain", &["latin.txt"]), gpt, "latin.txt"),
        (data("plain", &["empty.txt"]), gpt, "empty.txt"),
        (
            data("plain", &["short.txt"]),
            gpt,
            "a context of 128 needs at least 129",
        ),
        (
            data("labelled", &["train.tsv", "valid.tsv"]),
            classifier,
            "ugly",
        ),
        (
            data("labelled", &["broken.tsv"]),
            classifier,
            "broken.tsv, line 2",
        ),
        (
            data("parallel", &["long.tsv"]),
            eight_positions,
            "has an example of 40 tokens; the model's context is 8",
        ),
    ] {
        let config = parse_config(opened, &folder, "wrong", &format!("{data}{model}"));
        has(&train_error(&config, &quiet()), expected);
        let runs = folder.join("runs");
        assert!(!runs.exists(), "a rejected run has no folder");
    }
}

fn invalid_configs_are_reported_with_their_location(opened: &OpenDevice) {
    let folder = TempDir::new();
    let text = config_text(opened, &folder, &[]).replace("\"transformer\"", "\"gpt\"");
    let path = folder.write("wrong.toml", text);
    let output = zoo_train(&path, &[]);
    assert_failure(&output);
    has(&output_text(&output), "wrong.toml:");
    assert!(!folder.join("runs").exists());

    let text = "[data]\nkind = \"plain\"\ntrain = \"no/play.txt\"\n[model]\nkind = \"gpt\"\n";
    let path = folder.write("missing.toml", text);
    let text = output_text(&zoo_train(&path, &[]));
    let here = std::env::current_dir().unwrap();
    let expected = format!(
        "{}:3:9: data.train: no such file: no/play.txt (relative to {})\n  help: download the data",
        path.display(),
        here.display()
    );
    has(&text, &expected);
    // Reported before a device is opened.
    lacks(&text, "device:");

    let path = folder.write("small.toml", config_text(opened, &folder, &[]));
    let output = zoo_train(&path, &["--set", "model.layrs=4"]);
    has(&output_text(&output), "layers");
}

fn print_config_includes_every_default(opened: &OpenDevice) {
    let folder = TempDir::new();
    let path = folder.write("small.toml", config_text(opened, &folder, &[]));
    let output = zoo(&["train", path.to_str().unwrap(), "--set", "model.layers=4"])
        .arg("--print-config")
        .output()
        .unwrap();
    assert_success(&output);
    has(&output_text(&output), "layers = 4");
    has(&output_text(&output), "label_smoothing = 0.0");
}
