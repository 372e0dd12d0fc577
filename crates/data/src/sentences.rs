//! Documents as sentences, for models that read them so.

use std::sync::LazyLock;

use regex::Regex;
use zoo_config::Sentences;

/// The sentences of a document, without the blanks around them; none is blank. By marks they are
/// found in English, what is written like it, and Chinese.
pub fn split_sentences(document: &str, by: Sentences) -> Vec<&str> {
    let sentences = match by {
        Sentences::Lines => document.lines().collect(),
        Sentences::Marks => by_marks(document),
    };
    sentences
        .into_iter()
        .map(str::trim)
        .filter(|sentence| !sentence.is_empty())
        .collect()
}

/// What a point follows without an end: a name or a number comes next.
const BEFORE_MORE: [&str; 34] = [
    "mr", "mrs", "ms", "dr", "prof", "st", "mt", "gen", "col", "capt", "lt", "sgt", "maj", "sen",
    "rep", "gov", "rev", "hon", "messrs", "mme", "mlle", "vs", "cf", "e.g", "i.e", "viz", "fig",
    "figs", "no", "nos", "vol", "pp", "approx", "ca",
];

/// What a point follows anyway, in the middle of a sentence or at its end: a capital tells.
const MAYBE_LAST: [&str; 30] = [
    "etc", "inc", "ltd", "co", "corp", "jr", "sr", "bros", "a.m", "p.m", "u.s", "u.k", "u.n",
    "e.u", "d.c", "ph.d", "b.a", "m.a", "jan", "feb", "mar", "apr", "aug", "sept", "oct", "nov",
    "dec", "al", "dept", "univ",
];

/// Marks that end a sentence, with spaces between them in tokenized text, and what closes behind
/// them: `?!`, `. . .`, `."`. A quotation mark that stands apart may as well open what follows. Or
/// the end of a line.
static ENDS: LazyLock<Regex> = LazyLock::new(|| {
    let ends = r#"[.!?…。！？｡](?: *[.!?…。！？｡]|["')\]}”’»」』）》】])*|\n"#;
    Regex::new(ends).expect("a regular expression")
});

fn by_marks(document: &str) -> Vec<&str> {
    let mut sentences = vec![];
    let mut start = 0;
    for found in ENDS.find_iter(document) {
        let after = &document[found.end()..];
        let is_end = match found.as_str() {
            "\n" => {
                // A line without anything on it is the end of a paragraph.
                let next_line = after.split('\n').next().unwrap_or("");
                next_line.trim().is_empty() && !after.is_empty()
            }
            run => {
                let next = Next::of(after);
                let is_mark =
                    |c: char| matches!(c, '.' | '!' | '?' | '…' | '。' | '！' | '？' | '｡');
                let mut marks = run.char_indices().filter(|(_, c)| is_mark(*c));
                let last = marks.clone().next_back().map(|(at, _)| at);
                marks.any(|(at, mark)| {
                    let before = &document[start..found.start() + at];
                    let only_a_point = mark == '.' && Some(at) == last;
                    matches!(mark, '。' | '！' | '？' | '｡') || next.is_end(before, only_a_point)
                })
            }
        };
        if is_end {
            sentences.push(&document[start..found.end()]);
            start = found.end();
        }
    }
    sentences.push(&document[start..]);
    sentences
}

/// What comes after marks.
enum Next<'a> {
    Nothing,
    /// Without a space: `3.5`, `example.com`, `!important`.
    Glued,
    /// Chinese goes on without a space.
    Chinese,
    /// A small letter after a space.
    Small,
    /// Anything else after a space.
    Other(&'a str),
}

impl<'a> Next<'a> {
    fn of(after: &'a str) -> Self {
        let chinese = |c: char| ('\u{3000}'..='\u{9fff}').contains(&c);
        let opens = |c: char| matches!(c, '"' | '\'' | '(' | '[' | '“' | '‘' | '«');
        match after.chars().next() {
            None => return Self::Nothing,
            // U+3000 lies among the Chinese characters, and is a space all the same.
            Some(c) if c.is_whitespace() => {}
            Some(c) if chinese(c) => return Self::Chinese,
            Some(_) => return Self::Glued,
        }
        let next = after.trim_start();
        let letters = next.trim_start_matches(opens);
        match letters.starts_with(char::is_lowercase) {
            true => Self::Small,
            false => Self::Other(next),
        }
    }

    /// Whether a sentence ends with a mark behind `before`, where this comes next.
    fn is_end(&self, before: &str, only_a_point: bool) -> bool {
        // It stands apart: the text is tokenized, and may have small letters only.
        let apart = before.ends_with(char::is_whitespace);
        match self {
            Self::Nothing | Self::Chinese => true,
            Self::Glued => false,
            Self::Small => apart,
            Self::Other(next) => apart || !(only_a_point && is_abbreviation(before, next)),
        }
    }
}

/// Whether the point behind `before` belongs to its last word and not to the sentence.
fn is_abbreviation(before: &str, next: &str) -> bool {
    let last = before
        .rsplit(|c: char| c.is_whitespace() || matches!(c, '(' | '[' | '"' | '“' | '‘' | '-'))
        .next()
        .unwrap_or("");
    let word = last.to_lowercase();
    if BEFORE_MORE.contains(&word.as_str()) {
        // "No." is also an answer; before a number it is not.
        return word != "no" || next.starts_with(|c: char| c.is_ascii_digit());
    }
    if MAYBE_LAST.contains(&word.as_str()) {
        return !next.starts_with(char::is_uppercase);
    }
    // An initial; but "I" is mostly the pronoun.
    let mut letters = last.chars();
    let initial = letters.next().is_some_and(char::is_uppercase) && letters.next().is_none();
    initial && last != "I"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_marks(document: &str) -> Vec<&str> {
        split_sentences(document, Sentences::Marks)
    }

    #[test]
    fn marks_end_sentences_where_they_are_no_part_of_one() {
        let cases: [&[&str]; 8] = [
            &["It rains.", "Does it?", "Yes!", "Well…", "It did"],
            &[
                "He left...",
                "She stayed ?!",
                "\"Why?\"",
                "(Nobody knows.)",
                "Good.",
            ],
            &[
                "Dr. Who met Mrs. Smith at 3.5 km, e.g. in St. Ives.",
                "They left.",
            ],
            &["See example.com for No. 7 and fig. 3.", "No.", "Then go."],
            &["J. S. Bach wrote it.", "So did I.", "Really."],
            &[
                "We met at 5 p.m. on Monday.",
                "It ended at 6 p.m.",
                "He works at Foo Inc.",
                "Fine.",
            ],
            &["\"Is it?\" he asked.", "He waited... and waited."],
            // Tokenized text in small letters.
            &[
                "damn that bug .",
                "little do they know . . .",
                "is it ( really ) ?",
            ],
        ];
        for expected in cases {
            assert_eq!(by_marks(&expected.join(" ")), expected);
        }
    }

    #[test]
    fn chinese_needs_no_space() {
        let document = "好久不见！你好吗？我说：“很好。”他走了。It is 3.5元。";
        assert_eq!(
            by_marks(document),
            [
                "好久不见！",
                "你好吗？",
                "我说：“很好。”",
                "他走了。",
                "It is 3.5元。"
            ]
        );
    }

    #[test]
    fn lines_are_sentences_if_they_are_said_to_be() {
        let document = "A title\n\nOne sentence\nover lines. Another\n \nLast\n";
        assert_eq!(
            by_marks(document),
            ["A title", "One sentence\nover lines.", "Another", "Last"]
        );
        let document = "one . two .\r\n\n three \n";
        let lines = split_sentences(document, Sentences::Lines);
        assert_eq!(lines, ["one . two .", "three"]);
        for by in [Sentences::Lines, Sentences::Marks] {
            assert_eq!(split_sentences(" \n\n ", by), Vec::<&str>::new());
        }
    }

    #[test]
    fn long_rows_of_marks_take_no_longer() {
        for end in [".x", ". x", ".", "。x", " . x"] {
            let document = format!("a{}{end}", ".".repeat(200_000));
            assert!(!by_marks(&document).is_empty(), "{end:?}");
        }
        let spaces = format!("a{} {} b", ".".repeat(100_000), " ".repeat(100_000));
        assert_eq!(by_marks(&spaces).len(), 1);
    }
}
