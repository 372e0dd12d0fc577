//! Everything a person can get wrong in a file, and what is said of it.

use zoo_config::{Config, ConfigError};

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
        count += 1;
    }
    assert_eq!(count, 85);
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
    let error = Config::read(path, &[]).expect_err("there is none");
    assert!(matches!(error, ConfigError::Read { .. }));
    let said = error.to_string();
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
