//! Keys, words and values that a terminal would act on: errors have them escaped.

use zoo_config::{Config, Override};

/// Sets the title, clears the screen, reorders what follows; as TOML writes it.
const HOSTILE: &str = "\\u001b]0;t\\u0007\\u001b[2J\\u009b31m\\u202e";

fn check(said: &str) {
    let acted_on = |it: char| it != '\n' && (it.is_control() || it == '\u{202e}');
    assert!(!said.contains(acted_on), "{said:?}");
}

#[test]
fn what_a_terminal_acts_on_is_escaped() {
    let base = "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\n";
    for (text, expected) in [
        (
            format!("{base}\"{HOSTILE}\" = 1\n"),
            "unknown key \"\\u{1b}]0;t",
        ),
        (
            format!("{base}[\"{HOSTILE}\"]\n"),
            "unknown section \"\\u{1b}]0;t",
        ),
        (
            format!("{base}norm = \"{HOSTILE}\"\n"),
            "unknown word \"\\u{1b}]0;t",
        ),
        (
            format!("{base}layers = \"{HOSTILE}\"\n"),
            "model.layers must be",
        ),
        (
            format!("{base}attention = {{ \"{HOSTILE}\" = 1 }}\n"),
            "attention",
        ),
        (
            format!("{base}[backend]\nword = \"{HOSTILE}\"\n"),
            "backend.word",
        ),
        (
            format!("{base}[run]\nname = \"a/{HOSTILE}\"\n"),
            "run.name must be",
        ),
        ("\u{1b}[2J = \u{9b}\n".to_owned(), "this is not TOML"),
        (format!("{base}a = \u{1b}\n"), "this is not TOML"),
        (format!("{base}\u{202e} = 1\n"), "this is not TOML"),
    ] {
        let error = Config::parse("a.toml", &text, &[]).expect_err(&text);
        let said = error.to_string();
        assert!(said.contains(expected), "{said}");
        check(&said);
    }
    let error = Config::parse("\u{1b}[2J.toml", "a", &[]).expect_err("no TOML");
    check(&error.to_string());
    for flag in ["model.\u{1b}[2J=1", "\u{1b}[2J", "model.layers=\u{1b}[2J"] {
        let said = match Override::set(flag) {
            Ok(set) => Config::parse("a.toml", base, &[set]).map(|_| ()),
            Err(error) => Err(error),
        };
        check(&said.expect_err(flag).to_string());
    }
}
