//! What cannot be trained is said before anything slow starts, and leaves nothing behind.

use zoo_backend::Opened;

use crate::shared::{has, lacks};
use crate::support::{
    Folder, config_of, config_text, failed, quiet, said, succeeded, trials, unsuccessful, zoo,
    zoo_train,
};

trials! {
    trials:
    files_that_are_wrong_are_named,
    a_config_that_cannot_be_is_told_in_lines,
    a_config_is_printed_with_every_default,
}

fn files_that_are_wrong_are_named(opened: &Opened) {
    let folder = Folder::new();
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
        model = { kind = \"transformer\", positions = { kind = \"learned\", longest = 8 } }";
    for (data, model, expected) in [
        (data("plain", &["nowhere.txt"]), gpt, "nowhere.txt"),
        (data("plain", &["latin.txt"]), gpt, "latin.txt"),
        (data("plain", &["empty.txt"]), gpt, "empty.txt"),
        (
            data("plain", &["short.txt"]),
            gpt,
            "a window of 128 needs 129",
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
            "has an example of 40 tokens, and the model has 8 places",
        ),
    ] {
        let config = config_of(opened, &folder, "wrong", &format!("{data}{model}"));
        has(&failed(&config, &quiet()), expected);
        let runs = folder.join("runs");
        assert!(!runs.exists(), "a run that never was has no folder");
    }
}

fn a_config_that_cannot_be_is_told_in_lines(opened: &Opened) {
    let folder = Folder::new();
    let text = config_text(opened, &folder, &[]).replace("\"transformer\"", "\"gpt\"");
    let path = folder.write("wrong.toml", text);
    let output = zoo_train(&path, &[]);
    unsuccessful(&output);
    has(&said(&output), "wrong.toml:");
    assert!(!folder.join("runs").exists());

    let text = "[data]\nkind = \"plain\"\ntrain = \"no/play.txt\"\n[model]\nkind = \"gpt\"\n";
    let path = folder.write("missing.toml", text);
    let text = said(&zoo_train(&path, &[]));
    let here = std::env::current_dir().unwrap();
    let expected = format!(
        "{}:3:9: data.train: there is no no/play.txt in {}\n  do: put the data there",
        path.display(),
        here.display()
    );
    has(&text, &expected);
    // No device is opened.
    lacks(&text, "device:");

    let path = folder.write("small.toml", config_text(opened, &folder, &[]));
    let output = zoo_train(&path, &["--set", "model.layrs=4"]);
    // The nearest key.
    has(&said(&output), "layers");
}

fn a_config_is_printed_with_every_default(opened: &Opened) {
    let folder = Folder::new();
    let path = folder.write("small.toml", config_text(opened, &folder, &[]));
    let output = zoo(&["train", path.to_str().unwrap(), "--set", "model.layers=4"])
        .arg("--print-config")
        .output()
        .unwrap();
    succeeded(&output);
    has(&said(&output), "layers = 4");
    has(&said(&output), "label_smoothing = 0.0");
}
