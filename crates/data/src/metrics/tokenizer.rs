//! sacreBLEU's tokenizers for BLEU.

use std::sync::LazyLock;

use regex::Regex;
use zoo_config::BleuTokenizer;

use super::text::is_blank;

/// Separates the tokens of a line by spaces.
pub fn tokenize(line: &str, tokenizer: BleuTokenizer) -> String {
    let line = line.trim_end_matches(is_blank);
    match tokenizer {
        BleuTokenizer::None => line.to_owned(),
        BleuTokenizer::Char => join(line.chars().map(String::from)),
        BleuTokenizer::V13a => split_punctuation(&unescape(line)),
        BleuTokenizer::Zh => {
            let line = line.trim_start_matches(is_blank);
            split_punctuation(&CHINESE.replace_all(line, " $0 "))
        }
    }
}

fn join(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(" ")
}

/// Undoes the escapes of evaluation campaign files. A space at both ends gives every punctuation
/// mark two neighbours.
fn unescape(line: &str) -> String {
    let line = line
        .replace("<skipped>", "")
        .replace("-\n", "")
        .replace('\n', " ")
        .replace("&quot;", "\"")
        .replace("&amp;", "&")
        .replace("&lt;", "<")
        .replace("&gt;", ">");
    format!(" {line} ")
}

/// Substitutions that separate punctuation, applied in order as in the original: each sees the
/// spaces inserted before it.
static PASSES: LazyLock<[(Regex, &str); 4]> = LazyLock::new(|| {
    [
        // ASCII punctuation except the apostrophe and the period, comma and hyphen, which occur
        // inside numbers.
        (r"[!-&(-+/:-@\[-`{-~]", " $0 "),
        // A period or comma that does not follow a digit or precede one, and a hyphen after a
        // digit.
        (r"([^0-9])([.,])", "$1 $2 "),
        (r"([.,])([^0-9])", " $1 $2"),
        (r"([0-9])-", "$1 - "),
    ]
    .map(|(pattern, replacement)| (regex(pattern), replacement))
});

/// sacreBLEU's Chinese characters. Its table is meant to include characters above U+FFFF, but is
/// written such that it contains U+2001 to U+2A6D instead: dashes and quotation marks are split and
/// rare characters are not. Reproduced for equal scores.
static CHINESE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x)[
            \u{2001}-\u{2a6d} \u{2e80}-\u{2fdf} \u{2ff0}-\u{303f} \u{3100}-\u{312f}
            \u{31a0}-\u{31ef} \u{3200}-\u{4db5} \u{4e00}-\u{9fbb} \u{f900}-\u{fa2d}
            \u{fa30}-\u{fa6a} \u{fa70}-\u{fad9} \u{fe10}-\u{fe1f} \u{fe30}-\u{fe4f}
            \u{ff00}-\u{ffef}
        ]",
    )
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a regular expression")
}

fn split_punctuation(line: &str) -> String {
    let mut line = line.to_owned();
    for (pattern, replacement) in PASSES.iter() {
        line = pattern.replace_all(&line, *replacement).into_owned();
    }
    join(super::text::words(&line).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use BleuTokenizer::{Char, V13a, Zh};

    use super::*;

    #[test]
    fn tokens_are_separated_by_spaces() {
        for (line, tokenizer, tokens) in [
            ("For $3.50, he said.", V13a, "For $ 3.50 , he said ."),
            ("1,234.5 km.", V13a, "1,234.5 km ."),
            ("A 3-year-old, no?", V13a, "A 3 - year-old , no ?"),
            ("&quot;don't&quot;", V13a, "\" don't \""),
            ("   ", V13a, ""),
            ("好久不见, Tom。", Zh, "好 久 不 见 , Tom 。"),
            ("a 久 ", Char, "a   久"),
        ] {
            assert_eq!(tokenize(line, tokenizer), tokens);
        }
    }
}
