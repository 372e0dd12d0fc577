//! Keys that are set on the command line.

use zoo_config::{Config, Override};

const REVERSE: &str = "[data]\nkind = \"reverse\"\n\n[model]\nkind = \"transformer\"\n";

#[test]
fn flags_are_named_where_they_are_wrong() {
    let set = |text: &str| {
        let change = Override::set(text).expect("a key and a value");
        let error = Config::parse("a.toml", REVERSE, &[change]).expect_err(text);
        error.to_string()
    };
    assert_eq!(
        set("model.layers=zero"),
        "--set model.layers=zero: model.layers must be a whole number from 1 to 4096, found \"zero\""
    );
    assert_eq!(
        set("model.heads=3"),
        "--set model.heads=3: model.heads: d_model = 128 must be a multiple of heads = 3, or d_head must be given"
    );
    assert_eq!(
        set("modle.layers=3"),
        "--set modle.layers=3: unknown section \"modle\": did you mean model?\n  known: run, \
         backend, data, tokenizer, model, optimizer, schedule, training, validation, decoding"
    );
    let backend = Override::flag("--backend wpgu", "backend.word", "wpgu");
    let error = Config::parse("a.toml", REVERSE, &[backend]).expect_err("no such backend");
    let said = error.to_string();
    assert!(
        said.starts_with("--backend wpgu: backend.word: unknown backend"),
        "{said}"
    );
}

#[test]
fn flags_set_what_they_say() {
    let read = |changes: &[&str]| {
        let changes: Vec<_> = changes
            .iter()
            .map(|text| Override::set(text).expect("a key and a value"))
            .collect();
        Config::parse("a.toml", REVERSE, &changes).expect("it is right")
    };
    let by_file = |lines: &str| {
        Config::parse("a.toml", &format!("{REVERSE}{lines}"), &[]).expect("it is right")
    };
    assert_eq!(read(&["model.layers=4"]), by_file("layers = 4"));
    assert_eq!(read(&["model.norm=post"]), by_file("norm = \"post\""));
    assert_eq!(read(&["model.norm = \"post\""]), by_file("norm = \"post\""));
    assert_eq!(
        read(&["backend.word=wgpu", "backend.devices=[0, 1]"]),
        by_file("[backend]\nword = \"wgpu\"\ndevices = [0, 1]")
    );
    // A word takes its sizes from further flags.
    assert_eq!(
        read(&[
            "model.cross_attention=local-m",
            "model.cross_attention.window=3"
        ]),
        by_file("cross_attention = { kind = \"local-m\", window = 3 }")
    );
    // The last one counts.
    assert_eq!(
        read(&["model.layers=4", "model.layers=3"]),
        by_file("layers = 3")
    );
}
