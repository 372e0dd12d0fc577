//! How a line is cut into the words that BLEU counts.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use zoo_config::BleuTokenizer;

use super::text::is_blank;

/// The line with blanks between its words.
pub fn tokenize(line: &str, tokenizer: BleuTokenizer) -> String {
    let line = line.trim_end_matches(is_blank);
    match tokenizer {
        BleuTokenizer::None => line.to_owned(),
        BleuTokenizer::Char => joined(line.chars().map(String::from)),
        BleuTokenizer::V13a => western(&plain(line)),
        BleuTokenizer::Zh => western(&chinese_apart(line.trim_start_matches(is_blank))),
    }
}

fn joined(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(" ")
}

/// Undoes what files of evaluation campaigns do to text. A blank is put at both ends, so
/// that a point there has a neighbour.
fn plain(line: &str) -> String {
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

/// What is put apart from words, and how. The four passes come one after the other, as in the
/// original: each sees the blanks that the ones before it have put.
static PASSES: LazyLock<[(Regex, &str); 4]> = LazyLock::new(|| {
    [
        // ASCII's punctuation but for the apostrophe, and the point, comma and dash that numbers
        // have inside of them.
        (r"[!-&(-+/:-@\[-`{-~]", " $0 "),
        // A point or comma that does not follow a digit, one that none follows, and a dash
        // behind a digit.
        (r"([^0-9])([.,])", "$1 $2 "),
        (r"([.,])([^0-9])", " $1 $2"),
        (r"([0-9])-", "$1 - "),
    ]
    .map(|(pattern, apart)| (regex(pattern), apart))
});

/// What sacreBLEU takes for Chinese. Its table means the characters above U+FFFF too, but
/// is written so that it has U+2001 to U+2A6D instead: dashes and quotation marks come apart
/// and rare characters do not. Scores are the same only if this is.
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

/// Punctuation apart from words.
fn western(line: &str) -> String {
    let mut line = line.to_owned();
    for (pattern, apart) in PASSES.iter() {
        line = pattern.replace_all(&line, *apart).into_owned();
    }
    joined(super::text::words(&line).map(str::to_owned))
}

fn chinese_apart(line: &str) -> Cow<'_, str> {
    CHINESE.replace_all(line, " $0 ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_whole_and_points_come_apart() {
        let cut = |line| tokenize(line, BleuTokenizer::V13a);
        assert_eq!(cut("It cost $3.50, he said."), "It cost $ 3.50 , he said .");
        assert_eq!(cut("1,234.5 km."), "1,234.5 km .");
        assert_eq!(cut("A 3-year-old, no?"), "A 3 - year-old , no ?");
        assert_eq!(cut("&quot;don't&quot;"), "\" don't \"");
        assert_eq!(cut("   "), "");
    }

    #[test]
    fn chinese_is_cut_by_characters() {
        assert_eq!(
            tokenize("好久不见, Tom。", BleuTokenizer::Zh),
            "好 久 不 见 , Tom 。"
        );
        assert_eq!(tokenize("a 久 ", BleuTokenizer::Char), "a   久");
    }
}
