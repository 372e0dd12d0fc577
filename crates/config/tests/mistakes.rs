//! Everything a person can get wrong in a file, in flags and on the disk, and what is said of it.

use std::path::{Path, PathBuf};

use zoo_config::{Config, Override};

/// Files, or what is added to [`REVERSE`], each with the error.
const CASES: &str = include_str!("mistakes.txt");

const REVERSE: &str = "[data]\nkind = \"reverse\"\n\n[model]\nkind = \"transformer\"\n";

fn said(text: &str) -> String {
    match Config::parse("a.toml", text, &[]) {
        Ok(config) => panic!("{text} was read as {config:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_mistake_is_told_with_its_place_and_what_is_allowed() {
    let cases = CASES.split("\n====").skip(1);
    let mut count = 0;
    for case in cases {
        // A heading may follow the mark.
        let (_, case) = case.split_once('\n').expect(case);
        let (text, message) = case.split_once("\n----\n").expect(case);
        let is_whole = text.lines().any(|line| line == "[model]");
        let text = match is_whole {
            true => format!("{text}\n"),
            false => format!("{REVERSE}{text}"),
        };
        let (said, message) = (said(&text), message.trim_end());
        match message.strip_suffix("...") {
            Some(start) => assert!(said.starts_with(start), "{text}\n{said}"),
            None => assert_eq!(said, message, "{text}"),
        }
        assert_escaped(&said);
        count += 1;
    }
    assert_eq!(count, 95);
}

#[test]
fn independent_mistakes_are_told_together_in_their_order() {
    let said = said(&format!(
        "{REVERSE}heads = 0\nnorm = \"in\"\n[training]\nkeep = -1\n"
    ));
    let places: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("a.toml"))
        .map(|line| &line[..12])
        .collect();
    assert_eq!(places, ["a.toml:6:9: ", "a.toml:7:8: ", "a.toml:9:8: "]);
}

#[test]
fn a_vocabulary_without_bytes_or_a_saved_one_may_be_small() {
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
fn a_file_that_is_not_there_is_named() {
    let path = std::path::Path::new("no/such.toml");
    let said = Config::read(path, &[])
        .expect_err("there is none")
        .to_string();
    assert!(
        said.starts_with("no/such.toml: the config cannot be read: "),
        "{said}"
    );
}

#[test]
fn a_template_that_is_not_there_gets_the_nearest() {
    let said = zoo_config::template("transfomer")
        .expect_err("misspelt")
        .to_string();
    assert_eq!(
        said,
        "unknown template \"transfomer\": did you mean transformer?\n  \
         known: transformer, seq2seq, han, gpt, classifier"
    );
}

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

/// Errors have nothing in them that a terminal acts on.
fn assert_escaped(said: &str) {
    let acted_on = |it: char| it != '\n' && (it.is_control() || it == '\u{202e}');
    assert!(!said.contains(acted_on), "{said:?}");
}

#[test]
fn what_a_terminal_acts_on_is_escaped_outside_of_strings_too() {
    for line in ["\u{1b}[2J = \u{9b}", "a = \u{1b}", "\u{202e} = 1"] {
        let said = said(&format!("{REVERSE}{line}\n"));
        assert!(said.contains("this is not TOML"), "{said}");
        assert_escaped(&said);
    }
    let error = Config::parse("\u{1b}[2J.toml", "a", &[]).expect_err("no TOML");
    assert_escaped(&error.to_string());
    for flag in ["model.\u{1b}[2J=1", "\u{1b}[2J", "model.layers=\u{1b}[2J"] {
        let said = match Override::set(flag) {
            Ok(set) => Config::parse("a.toml", REVERSE, &[set]).map(|_| ()),
            Err(error) => Err(error),
        };
        assert_escaped(&said.expect_err(flag).to_string());
    }
}

fn test_file(name: &str, text: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("it can be written");
    path
}

#[test]
fn a_config_in_another_encoding_is_told_so() {
    for (bytes, expected) in [
        (
            &b"\xff\xfe[\0r\0"[..],
            "line 1: it begins with the mark of UTF-16",
        ),
        (
            b"[run]\n# caf\xe9\n",
            "line 2: byte 11 of the file is not UTF-8",
        ),
    ] {
        let file = test_file("encoding.toml", bytes);
        let said = Config::read(&file, &[]).expect_err("it is not UTF-8");
        let said = said.to_string();
        assert!(
            said.contains(&format!("encoding.toml, {expected}")),
            "{said}"
        );
        assert!(said.contains("\n  do: iconv -f "), "{said}");
    }
}

#[test]
fn missing_files_are_told_with_their_lines_and_keys() {
    let text = "[data]\nkind = \"parallel\"\ntrain = [\"/no/a.en\", \"/no/a.zip#a.de\"]\n\
                valid = \"Cargo.toml\"\ntest = \"no/b.tsv\"\n[model]\nkind = \"transformer\"\n\
                [tokenizer]\nkind = \"bpe\"\nload = [\"/no/a.json\", \"Cargo.toml\"]\n";
    let file = test_file("missing.toml", text.as_bytes());
    let name = file.display().to_string();
    let folder = std::env::current_dir().expect("there is one");
    let flag = Override::set("data.test=no/c.tsv").expect("it can be read");
    for (changes, last) in [
        (
            vec![],
            format!("{name}:5:8: data.test: there is no no/b.tsv"),
        ),
        (
            vec![flag],
            "--set data.test=no/c.tsv: data.test: there is no no/c.tsv".to_owned(),
        ),
    ] {
        let config = Config::read(&file, &changes).expect("it is right");
        let said = config
            .check_files(&file, &changes, false)
            .expect_err("none is there");
        let expected = format!(
            "{name}:10:9: tokenizer.load: there is no /no/a.json\n\
             {name}:3:10: data.train: there is no /no/a.en\n\
             {name}:3:22: data.train: there is no /no/a.zip#a.de\n\
             {last} in {}\n  \
             do: put the data there, the config says where it comes from, or name it: --set \
             tokenizer.load=PATH",
            folder.display()
        );
        assert_eq!(said.to_string(), expected);
    }
    // A file in an archive is there if the archive is.
    let inside = format!("{}#in/a#b.txt", test_file("a.zip", b"").display());
    let there = text
        .replace("/no/a.en", "Cargo.toml")
        .replace("/no/a.zip#a.de", &inside)
        .replace("no/b.tsv", "src")
        .replace("/no/a.json", "src");
    let file = test_file("there.toml", there.as_bytes());
    let config = Config::read(&file, &[]).expect("it is right");
    assert!(config.check_files(&file, &[], false).is_ok());
}
