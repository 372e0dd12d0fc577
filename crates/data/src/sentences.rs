//! Sentence splitting, for hierarchical models.

use std::sync::LazyLock;

use regex::Regex;
use zoo_config::Sentences;

/// Splits a document into trimmed, non-blank sentences. Splitting at punctuation marks supports
/// English, languages with similar punctuation, and Chinese.
pub fn split_sentences(document: &str, by: Sentences) -> Vec<&str> {
    let sentences = match by {
        Sentences::Lines => document.lines().collect(),
        Sentences::Punctuation => by_marks(document),
    };
    sentences
        .into_iter()
        .map(str::trim)
        .filter(|sentence| !sentence.is_empty())
        .collect()
}

/// Abbreviations that a name or a number follows: their period does not end a sentence.
const NEVER_LAST: [&str; 34] = [
    "mr", "mrs", "ms", "dr", "prof", "st", "mt", "gen", "col", "capt", "lt", "sgt", "maj", "sen",
    "rep", "gov", "rev", "hon", "messrs", "mme", "mlle", "vs", "cf", "e.g", "i.e", "viz", "fig",
    "figs", "no", "nos", "vol", "pp", "approx", "ca",
];

/// Abbreviations that may end a sentence: their period does if the next word is capitalised.
const MAYBE_LAST: [&str; 30] = [
    "etc", "inc", "ltd", "co", "corp", "jr", "sr", "bros", "a.m", "p.m", "u.s", "u.k", "u.n",
    "e.u", "d.c", "ph.d", "b.a", "m.a", "jan", "feb", "mar", "apr", "aug", "sept", "oct", "nov",
    "dec", "al", "dept", "univ",
];

/// Sentence-ending marks, possibly separated by spaces in tokenized text, with closing quotes and
/// brackets: `?!`, `. . .`, `."`. A quotation mark after a space may open the next sentence and is
/// excluded. Also matches line ends.
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
                // A blank line ends a paragraph.
                let next_line = after.split('\n').next().unwrap_or("");
                next_line.trim().is_empty() && !after.is_empty()
            }
            run => {
                let next = Next::new(after);
                let is_mark =
                    |c: char| matches!(c, '.' | '!' | '?' | '…' | '。' | '！' | '？' | '｡');
                let mut marks = run.char_indices().filter(|(_, c)| is_mark(*c));
                let last = marks.clone().next_back().map(|(i, _)| i);
                marks.any(|(i, mark)| {
                    let before = &document[start..found.start() + i];
                    let is_period = mark == '.' && Some(i) == last;
                    matches!(mark, '。' | '！' | '？' | '｡') || next.is_end(before, is_period)
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

/// Text after sentence-ending marks.
enum Next<'a> {
    End,
    /// Text without a space: `3.5`, `example.com`, `!important`.
    Adjacent,
    /// A Chinese character without a space.
    Chinese,
    /// A lowercase letter after a space.
    Lowercase,
    /// Anything else after a space.
    Other(&'a str),
}

impl<'a> Next<'a> {
    fn new(after: &'a str) -> Self {
        let chinese = |c: char| ('\u{3000}'..='\u{9fff}').contains(&c);
        let opens = |c: char| matches!(c, '"' | '\'' | '(' | '[' | '“' | '‘' | '«');
        match after.chars().next() {
            None => return Self::End,
            // U+3000 is in the Chinese range, but it is a space.
            Some(c) if c.is_whitespace() => {}
            Some(c) if chinese(c) => return Self::Chinese,
            Some(_) => return Self::Adjacent,
        }
        let next = after.trim_start();
        let letters = next.trim_start_matches(opens);
        if letters.starts_with(char::is_lowercase) {
            Self::Lowercase
        } else {
            Self::Other(next)
        }
    }

    /// Whether a mark between `before` and this text ends a sentence.
    fn is_end(&self, before: &str, is_period: bool) -> bool {
        // Marks separated by a space occur in tokenized text, which may be all lowercase.
        let separate = before.ends_with(char::is_whitespace);
        match self {
            Self::End | Self::Chinese => true,
            Self::Adjacent => false,
            Self::Lowercase => separate,
            Self::Other(next) => separate || !(is_period && is_abbreviation(before, next)),
        }
    }
}

/// Whether a period after `before` belongs to an abbreviation.
fn is_abbreviation(before: &str, next: &str) -> bool {
    let last = before
        .rsplit(|c: char| c.is_whitespace() || matches!(c, '(' | '[' | '"' | '“' | '‘' | '-'))
        .next()
        .unwrap_or("");
    let word = last.to_lowercase();
    if NEVER_LAST.contains(&word.as_str()) {
        // "No." is also an answer, except before a number.
        return word != "no" || next.starts_with(|c: char| c.is_ascii_digit());
    }
    if MAYBE_LAST.contains(&word.as_str()) {
        return !next.starts_with(char::is_uppercase);
    }
    // An initial; "I" is usually the pronoun.
    let mut letters = last.chars();
    let initial = letters.next().is_some_and(char::is_uppercase) && letters.next().is_none();
    initial && last != "I"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_marks(document: &str) -> Vec<&str> {
        split_sentences(document, Sentences::Punctuation)
    }

    #[test]
    fn sentences_end_at_marks_but_not_at_abbreviations() {
        for sentences in [
            "It rains.|Does it?|Yes!|Well…|It did",
            "He left...|She stayed ?!|\"Why?\"|(Nobody knows.)|Good.",
            "Dr. Who met Mrs. Smith at 3.5 km, e.g. in St. Ives.|They left.",
            "See example.com for No. 7 and fig. 3.|No.|Then go.",
            "J. S. Bach wrote it.|So did I.|Really.",
            "We met at 5 p.m. on Monday.|It ended at 6 p.m.|He works at Foo Inc.|Fine.",
            "\"Is it?\" he asked.|He waited... and waited.",
            // Tokenized lowercase text.
            "damn that bug .|little do they know . . .|is it ( really ) ?",
        ] {
            let document = sentences.replace('|', " ");
            assert_eq!(by_marks(&document).join("|"), sentences);
        }
        // Chinese has no spaces between sentences.
        let sentences = "好久不见！|你好吗？|我说：“很好。”|他走了。|It is 3.5元。";
        let document = sentences.replace('|', "");
        assert_eq!(by_marks(&document).join("|"), sentences);
    }

    #[test]
    fn lines_and_paragraphs() {
        let document = "A title\n\nOne sentence\nover lines. Another\n \nLast\n";
        let expected = "A title|One sentence\nover lines.|Another|Last";
        assert_eq!(by_marks(document).join("|"), expected);
        let document = "one . two .\r\n\n three \n";
        let lines = split_sentences(document, Sentences::Lines);
        assert_eq!(lines, ["one . two .", "three"]);
        for by in [Sentences::Lines, Sentences::Punctuation] {
            assert_eq!(split_sentences(" \n\n ", by), Vec::<&str>::new());
        }
    }

    #[test]
    fn long_runs_of_marks_are_linear_time() {
        for end in [".x", ". x", ".", "。x", " . x"] {
            let document = format!("a{}{end}", ".".repeat(200_000));
            assert!(!by_marks(&document).is_empty(), "{end:?}");
        }
        let spaces = format!("a{} {} b", ".".repeat(100_000), " ".repeat(100_000));
        assert_eq!(by_marks(&spaces).len(), 1);
    }
}
