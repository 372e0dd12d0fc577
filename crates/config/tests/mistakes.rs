//! Error messages for invalid configs, flags and missing files.

use std::path::{Path, PathBuf};

use zoo_config::{Config, Override};

/// Configs, or lines to append to [`REVERSE`], each with the expected error.
const CASES: &str = include_str!("mistakes.txt");

const REVERSE: &str = "[data]\nkind = \"reverse\"\n\n[model]\nkind = \"transformer\"\n";

fn set(flag: &str) -> Override {
    Override::set(flag).expect("a key and a value")
}

fn error_message(text: &str, overrides: &[Override]) -> String {
    match Config::parse("a.toml", text, overrides) {
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
        let flags = text.lines().filter_map(|line| line.strip_prefix("--set "));
        let overrides: Vec<_> = flags.map(set).collect();
        let text = if text.lines().any(|line| line == "[model]") {
            format!("{text}\n")
        } else if overrides.is_empty() {
            format!("{REVERSE}{text}")
        } else {
            REVERSE.to_owned()
        };
        let (message, expected) = (error_message(&text, &overrides), expected.trim_end());
        match expected.strip_suffix("...") {
            Some(start) => assert!(message.starts_with(start), "{text}\n{message}"),
            None => assert_eq!(message, expected, "{text}"),
        }
        assert_escaped(&message);
        count += 1;
    }
    assert_eq!(count, 132);
}

#[test]
fn all_errors_are_reported_in_order() {
    let text = format!("{REVERSE}n_heads = 0\nnorm = \"in\"\n[training]\nlog_every = -1\n");
    let message = error_message(&text, &[]);
    let lines = message.lines().filter(|line| line.starts_with("a.toml"));
    let locations: Vec<_> = lines.map(|line| &line[..12]).collect();
    assert_eq!(locations, ["a.toml:6:11:", "a.toml:7:8: ", "a.toml:9:13:"]);
}

#[test]
fn small_vocabularies_without_byte_fallback_are_valid() {
    for tokenizer in [
        "kind = \"bpe\"\nvocab_size = 20\nbyte_fallback = false",
        "kind = \"word\"\nvocab_size = 20",
        "kind = \"bpe\"\nvocab_size = 20\nload = [\"a.json\", \"b.json\"]",
    ] {
        let text = format!("{REVERSE}[tokenizer]\n{tokenizer}\n");
        assert!(Config::parse("a.toml", &text, &[]).is_ok(), "{tokenizer}");
    }
}

#[test]
fn missing_config() {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let meant = configs.join("transformer-reverse.toml");
    let meant = format!("did you mean {}?", meant.display());
    for (path, help) in [
        (PathBuf::from("no/such.toml"), "`zoo new transformer"),
        (configs.join("transfomer-reverse.toml"), &meant),
        (configs.join("transformer-reverse"), &meant),
    ] {
        let message = Config::read(&path, &[]).expect_err("missing").to_string();
        let start = format!("cannot read config {}: ", path.display());
        assert!(message.starts_with(&start), "{message}");
        assert!(message.contains(&format!("\n  help: {help}")), "{message}");
    }
}

#[test]
fn unknown_template() {
    let error = zoo_config::template("transfomer").expect_err("misspelt");
    assert_eq!(
        error.to_string(),
        "unknown template \"transfomer\": did you mean transformer?\n  \
         known: transformer, seq2seq, han, gpt, classifier"
    );
}

#[test]
fn errors_name_the_flag() {
    let backend = Override::flag("--backend", "backend.name", "wpgu");
    let message = error_message(REVERSE, &[backend]);
    let start = "--backend wpgu: backend.name: unknown backend";
    assert!(message.starts_with(start), "{message}");
}

#[test]
fn flags_override_the_file() {
    for (flags, lines) in [
        (&["model.layers=4"][..], "layers = 4"),
        (&["model.norm=post"], "norm = \"post\""),
        (&["model.norm = \"post\""], "norm = \"post\""),
        (
            &["backend.name=wgpu", "backend.devices=[0, 1]"],
            "[backend]\nname = \"wgpu\"\ndevices = [0, 1]",
        ),
        // A name takes its keys from further flags.
        (
            &[
                "model.cross_attention=local-m",
                "model.cross_attention.window=3",
            ],
            "cross_attention = { kind = \"local-m\", window = 3 }",
        ),
        // The last one wins.
        (&["model.layers=4", "model.layers=3"], "layers = 3"),
    ] {
        let overrides: Vec<_> = flags.iter().map(|flag| set(flag)).collect();
        let changed = Config::parse("a.toml", REVERSE, &overrides);
        let written = Config::parse("a.toml", &format!("{REVERSE}{lines}"), &[]);
        let [changed, written] = [changed, written].map(|config| config.expect("a valid config"));
        assert_eq!(changed, written, "{flags:?}");
    }
    // A flag replaces the alternative of the file, but not that of another flag.
    let read = |file: &str, flags: &[&str]| {
        let overrides: Vec<_> = flags.iter().map(|flag| set(flag)).collect();
        let config = Config::parse("a.toml", file, &overrides);
        config.map_err(|error| error.to_string())
    };
    let training = |key: &str| format!("{REVERSE}[training]\n{key} = 3\n");
    let [steps, epochs] = ["steps", "epochs"].map(training);
    assert_eq!(read(&steps, &["training.epochs=3"]), read(&epochs, &[]));
    assert_eq!(read(&epochs, &["training.steps=3"]), read(&steps, &[]));
    let expected = "--set training.epochs=3: training.epochs: training.steps is also set; remove \
                    one of them";
    for flags in [
        ["training.steps=3", "training.epochs=3"],
        ["training.epochs=3", "training.steps=3"],
    ] {
        for file in [&steps, &epochs] {
            assert_eq!(read(file, &flags), Err(expected.to_owned()));
        }
    }
    let plain = |key: &str| {
        format!("[data]\nkind = \"plain\"\ntrain = \"a\"\n{key}\n[model]\nkind = \"gpt\"\n")
    };
    assert_eq!(
        read(&plain("valid_fraction = 0.2"), &["data.valid=b"]),
        read(&plain("valid = \"b\""), &[])
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
        let message = error_message(&format!("{REVERSE}{line}\n"), &[]);
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
        let expected = format!("encoding.toml, {expected}");
        assert!(message.contains(&expected), "{message}");
        assert!(message.contains("\n  help: iconv -f "), "{message}");
    }
}

fn missing_files(file: &Path, changes: &[Override]) -> String {
    let config = Config::read(file, changes).expect("a valid config");
    let checked = config.check_files(file, changes, false);
    checked.expect_err("missing files").to_string()
}

#[test]
fn missing_files_are_reported_with_line_and_key() {
    let text = "[data]\nkind = \"parallel\"\ntrain = [\"/no/a.en\", \"/no/a.zip#a.de\"]\n\
                valid = \"Cargo.toml\"\ntest = \"no/b.tsv\"\n[model]\nkind = \"transformer\"\n\
                [tokenizer]\nkind = \"bpe\"\nload = [\"/no/a.json\", \"Cargo.toml\"]\n";
    let file = test_file("missing.toml", text.as_bytes());
    let name = file.display().to_string();
    let folder = std::env::current_dir().expect("a folder");
    let flag = "--set data.test=no/c.tsv".to_owned();
    for (changes, location, test) in [
        (vec![], format!("{name}:5:8"), "no/b.tsv"),
        (vec![set(&flag[6..])], flag, "no/c.tsv"),
    ] {
        let expected = format!(
            "{name}:10:9: tokenizer.load: no such file: /no/a.json\n\
             {name}:3:10: data.train: no such file: /no/a.en\n\
             {name}:3:22: data.train: no such file: /no/a.zip#a.de\n\
             {location}: data.test: no such file: {test} (relative to {})\n  \
             help: download the data (`cargo xtask hub` downloads from the Hugging Face Hub)\n  \
             help: or set another path: --set data.train=PATH",
            folder.display()
        );
        assert_eq!(missing_files(&file, &changes), expected);
    }
    let misspelt = [Override::set("data.test=Crago.toml").expect("a key and a value")];
    let error = missing_files(&file, &misspelt);
    let expected = format!(
        "Crago.toml (relative to {}): did you mean Cargo.toml?\n",
        folder.display()
    );
    assert!(error.contains(&expected), "{error}");
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

#[test]
fn sources_of_missing_data_are_named() {
    let sections = "[data]\nkind = \"plain\"\ntrain = \"/no/a.txt\"\n[model]\nkind = \"gpt\"\n";
    let hub = "cargo xtask hub a/b --to data/b --text text";
    for (comment, expected) in [
        ("# See https://a.org.", "(`cargo xtask hub` downloads"),
        (
            "# Data: plays, public domain\n# (https://b.org/a.txt), as text.",
            "from https://b.org/a.txt\n",
        ),
        (
            &format!("# https://a.org\n# Data: reviews.\n#\n#     {hub}\n"),
            &format!("with `{hub}`\n"),
        ),
    ] {
        let text = format!("{comment}\n\n# https://c.org\n{sections}");
        let file = test_file("sources.toml", text.as_bytes());
        let config = Config::read(&file, &[]).expect("a valid config");
        let error = config
            .check_files(&file, &[], false)
            .expect_err("a missing file");
        let message = error.to_string();
        let help = format!("\n  help: download the data {expected}");
        assert!(message.contains(&help), "{message}");
        assert!(message.ends_with("\n  help: or set another path: --set data.train=PATH"));
    }
}
