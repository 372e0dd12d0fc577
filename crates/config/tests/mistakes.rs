//! Error messages for invalid configs, flags and missing files.

use std::path::{Path, PathBuf};

use zoo_config::{Config, Override};

/// Configs, or lines to append to [`REVERSE`], each with the expected error.
const CASES: &str = include_str!("mistakes.txt");

const REVERSE: &str = "[data]\nkind = \"reverse\"\n\n[model]\nkind = \"transformer\"\n";

fn error_message(text: &str) -> String {
    match Config::parse("a.toml", text, &[]) {
        Ok(config) => panic!("{text} is valid: {config:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_case_has_its_message() {
    let cases = CASES.split("\n====").skip(1);
    let mut count = 0;
    for case in cases {
        // A heading may follow the separator.
        let (_, case) = case.split_once('\n').expect(case);
        let (text, expected) = case.split_once("\n----\n").expect(case);
        let text = if text.lines().any(|line| line == "[model]") {
            format!("{text}\n")
        } else {
            format!("{REVERSE}{text}")
        };
        let (message, expected) = (error_message(&text), expected.trim_end());
        match expected.strip_suffix("...") {
            Some(start) => assert!(message.starts_with(start), "{text}\n{message}"),
            None => assert_eq!(message, expected, "{text}"),
        }
        assert_escaped(&message);
        count += 1;
    }
    assert_eq!(count, 98);
}

#[test]
fn all_errors_are_reported_in_order() {
    let message = error_message(&format!(
        "{REVERSE}n_heads = 0\nnorm = \"in\"\n[training]\nkeep = -1\n"
    ));
    let locations: Vec<_> = message
        .lines()
        .filter(|line| line.starts_with("a.toml"))
        .map(|line| &line[..12])
        .collect();
    assert_eq!(locations, ["a.toml:6:11:", "a.toml:7:8: ", "a.toml:9:8: "]);
}

#[test]
fn small_vocabularies_without_byte_fallback_are_valid() {
    for tokenizer in [
        "kind = \"bpe\"\nsize = 20\nbyte_fallback = false",
        "kind = \"word\"\nsize = 20",
        "kind = \"bpe\"\nsize = 20\nload = [\"a.json\", \"b.json\"]",
    ] {
        let text = format!("{REVERSE}[tokenizer]\n{tokenizer}\n");
        assert!(Config::parse("a.toml", &text, &[]).is_ok(), "{tokenizer}");
    }
}

#[test]
fn missing_config() {
    let path = std::path::Path::new("no/such.toml");
    let message = Config::read(path, &[]).expect_err("missing").to_string();
    assert!(
        message.starts_with("cannot read config no/such.toml: "),
        "{message}"
    );
}

#[test]
fn unknown_template() {
    let message = zoo_config::template("transfomer")
        .expect_err("misspelt")
        .to_string();
    assert_eq!(
        message,
        "unknown template \"transfomer\": did you mean transformer?\n  \
         known: transformer, seq2seq, han, gpt, classifier"
    );
}

#[test]
fn errors_in_flags_name_the_flag() {
    let set = |text: &str| {
        let change = Override::set(text).expect("a key and a value");
        let error = Config::parse("a.toml", REVERSE, &[change]).expect_err(text);
        error.to_string()
    };
    assert_eq!(
        set("model.layers=zero"),
        "--set model.layers=zero: model.layers must be an integer from 1 to 4096, found \"zero\""
    );
    assert_eq!(
        set("model.n_heads=3"),
        "--set model.n_heads=3: model.n_heads: d_model = 128 must be a multiple of n_heads = 3, or d_head must be set"
    );
    assert_eq!(
        set("modle.layers=3"),
        "--set modle.layers=3: unknown section \"modle\": did you mean model?\n  known: run, \
         backend, data, tokenizer, model, optimizer, schedule, training, validation, decoding"
    );
    let backend = Override::flag("--backend wpgu", "backend.name", "wpgu");
    let error = Config::parse("a.toml", REVERSE, &[backend]).expect_err("no such backend");
    let message = error.to_string();
    assert!(
        message.starts_with("--backend wpgu: backend.name: unknown backend"),
        "{message}"
    );
}

#[test]
fn flags_override_the_file() {
    let read = |changes: &[&str]| {
        let changes: Vec<_> = changes
            .iter()
            .map(|text| Override::set(text).expect("a key and a value"))
            .collect();
        Config::parse("a.toml", REVERSE, &changes).expect("a valid config")
    };
    let from_file = |lines: &str| {
        Config::parse("a.toml", &format!("{REVERSE}{lines}"), &[]).expect("a valid config")
    };
    assert_eq!(read(&["model.layers=4"]), from_file("layers = 4"));
    assert_eq!(read(&["model.norm=post"]), from_file("norm = \"post\""));
    assert_eq!(
        read(&["model.norm = \"post\""]),
        from_file("norm = \"post\"")
    );
    assert_eq!(
        read(&["backend.name=wgpu", "backend.devices=[0, 1]"]),
        from_file("[backend]\nname = \"wgpu\"\ndevices = [0, 1]")
    );
    // A name takes its keys from further flags.
    assert_eq!(
        read(&[
            "model.cross_attention=local-m",
            "model.cross_attention.window=3"
        ]),
        from_file("cross_attention = { kind = \"local-m\", window = 3 }")
    );
    // The last one wins.
    assert_eq!(
        read(&["model.layers=4", "model.layers=3"]),
        from_file("layers = 3")
    );
}

/// Checks that control characters are escaped.
fn assert_escaped(message: &str) {
    let is_control = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(!message.contains(is_control), "{message:?}");
}

#[test]
fn control_characters_in_syntax_errors_and_flags_are_escaped() {
    for line in ["\u{1b}[2J = \u{9b}", "a = \u{1b}", "\u{202e} = 1"] {
        let message = error_message(&format!("{REVERSE}{line}\n"));
        assert!(message.contains("invalid TOML"), "{message}");
        assert_escaped(&message);
    }
    let error = Config::parse("\u{1b}[2J.toml", "a", &[]).expect_err("no TOML");
    assert_escaped(&error.to_string());
    for flag in ["model.\u{1b}[2J=1", "\u{1b}[2J", "model.layers=\u{1b}[2J"] {
        let result = match Override::set(flag) {
            Ok(set) => Config::parse("a.toml", REVERSE, &[set]).map(|_| ()),
            Err(error) => Err(error),
        };
        assert_escaped(&result.expect_err(flag).to_string());
    }
}

fn test_file(name: &str, text: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("a temporary file");
    path
}

#[test]
fn configs_that_are_not_utf_8() {
    for (bytes, expected) in [
        (
            &b"\xff\xfe[\0r\0"[..],
            "line 1: starts with a UTF-16 byte order mark",
        ),
        (
            b"[run]\n# caf\xe9\n",
            "line 2: byte 11 of the file is not UTF-8",
        ),
    ] {
        let file = test_file("encoding.toml", bytes);
        let error = Config::read(&file, &[]).expect_err("not UTF-8");
        let message = error.to_string();
        assert!(
            message.contains(&format!("encoding.toml, {expected}")),
            "{message}"
        );
        assert!(message.contains("\n  help: iconv -f "), "{message}");
    }
}

#[test]
fn missing_files_are_reported_with_line_and_key() {
    let text = "[data]\nkind = \"parallel\"\ntrain = [\"/no/a.en\", \"/no/a.zip#a.de\"]\n\
                valid = \"Cargo.toml\"\ntest = \"no/b.tsv\"\n[model]\nkind = \"transformer\"\n\
                [tokenizer]\nkind = \"bpe\"\nload = [\"/no/a.json\", \"Cargo.toml\"]\n";
    let file = test_file("missing.toml", text.as_bytes());
    let name = file.display().to_string();
    let folder = std::env::current_dir().expect("a folder");
    let flag = Override::set("data.test=no/c.tsv").expect("a key and a value");
    for (changes, last) in [
        (
            vec![],
            format!("{name}:5:8: data.test: no such file: no/b.tsv"),
        ),
        (
            vec![flag],
            "--set data.test=no/c.tsv: data.test: no such file: no/c.tsv".to_owned(),
        ),
    ] {
        let config = Config::read(&file, &changes).expect("a valid config");
        let error = config
            .check_files(&file, &changes, false)
            .expect_err("missing files");
        let expected = format!(
            "{name}:10:9: tokenizer.load: no such file: /no/a.json\n\
             {name}:3:10: data.train: no such file: /no/a.en\n\
             {name}:3:22: data.train: no such file: /no/a.zip#a.de\n\
             {last} (relative to {})\n  \
             help: download the data (comments in the config name the source), or set another \
             path: --set tokenizer.load=PATH",
            folder.display()
        );
        assert_eq!(error.to_string(), expected);
    }
    // Only the archive must exist.
    let inside = format!("{}#in/a#b.txt", test_file("a.zip", b"").display());
    let existing = text
        .replace("/no/a.en", "Cargo.toml")
        .replace("/no/a.zip#a.de", &inside)
        .replace("no/b.tsv", "src")
        .replace("/no/a.json", "src");
    let file = test_file("there.toml", existing.as_bytes());
    let config = Config::read(&file, &[]).expect("a valid config");
    assert!(config.check_files(&file, &[], false).is_ok());
}
