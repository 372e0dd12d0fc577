//! sacreBLEU's tokenizers for BLEU.

use std::borrow::Cow;
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
        BleuTokenizer::Zh => split_punctuation(&split_chinese(line.trim_start_matches(is_blank))),
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

fn split_chinese(line: &str) -> Cow<'_, str> {
    CHINESE.replace_all(line, " $0 ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punctuation_is_split_but_not_inside_numbers() {
        let cut = |line| tokenize(line, BleuTokenizer::V13a);
        assert_eq!(cut("It cost $3.50, he said."), "It cost $ 3.50 , he said .");
        assert_eq!(cut("1,234.5 km."), "1,234.5 km .");
        assert_eq!(cut("A 3-year-old, no?"), "A 3 - year-old , no ?");
        assert_eq!(cut("&quot;don't&quot;"), "\" don't \"");
        assert_eq!(cut("   "), "");
    }

    #[test]
    fn chinese_is_split_into_characters() {
        assert_eq!(
            tokenize("好久不见, Tom。", BleuTokenizer::Zh),
            "好 久 不 见 , Tom 。"
        );
        assert_eq!(tokenize("a 久 ", BleuTokenizer::Char), "a   久");
    }
}
