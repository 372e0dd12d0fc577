//! Documents as sentences, for models that read them so.

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

fn ends_western(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '…')
}

fn ends_chinese(c: char) -> bool {
    matches!(c, '。' | '！' | '？' | '｡')
}

fn closes(c: char) -> bool {
    matches!(
        c,
        '"' | '\'' | ')' | ']' | '}' | '”' | '’' | '»' | '」' | '』' | '）' | '》' | '】'
    )
}

fn by_marks(document: &str) -> Vec<&str> {
    let mut sentences = vec![];
    let mut start = 0;
    let mut rest = document.char_indices().peekable();
    // Of a row of marks, the last are looked at again, but not what comes after it.
    let mut run = Run::default();
    while let Some((at, mark)) = rest.next() {
        let end = match mark {
            '\n' => {
                // A line without anything on it is the end of a paragraph.
                let after = &document[at + 1..];
                let next_line = after.split('\n').next().unwrap_or("");
                let blank = next_line.trim().is_empty() && !after.is_empty();
                blank.then_some(at + 1)
            }
            mark if ends_chinese(mark) || ends_western(mark) => {
                run = match at < run.end {
                    true => run.without_first(),
                    false => Run::after(document, at + mark.len_utf8()),
                };
                match ends_chinese(mark) || run.is_end(document, start, at, mark) {
                    true => Some(run.end),
                    false => None,
                }
            }
            _ => None,
        };
        if let Some(end) = end {
            sentences.push(&document[start..end]);
            start = end;
            while rest.peek().is_some_and(|(place, _)| *place < end) {
                rest.next();
            }
        }
    }
    sentences.push(&document[start..]);
    sentences
}

/// Marks that follow the first one and belong to the same end: `?!`, `. . .`, `."`.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// Where it is over.
    end: usize,
    /// How many more marks there are.
    marks: usize,
    next: Next,
}

/// What comes after marks.
#[derive(Debug, Clone, Copy, Default)]
enum Next {
    #[default]
    Nothing,
    /// Without a space: `3.5`, `example.com`, `!important`.
    Glued,
    /// Chinese goes on without a space.
    Chinese,
    /// A small letter after a space.
    Small,
    /// Anything else after a space, from this byte on.
    Other(usize),
}

impl Next {
    fn of(document: &str, end: usize) -> Self {
        let after = &document[end..];
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
        let small = next
            .trim_start_matches(opens)
            .starts_with(char::is_lowercase);
        match small {
            true => Self::Small,
            false => Self::Other(document.len() - next.len()),
        }
    }
}

impl Run {
    fn after(document: &str, from: usize) -> Self {
        let (mut end, mut marks) = (from, 0);
        loop {
            let rest = &document[end..];
            // In tokenized text, marks stand apart: `. . .`, `. "`. A quotation mark that
            // stands apart may as well open what follows, so only marks count there.
            let apart = rest.trim_start_matches(' ');
            let spaces = rest.len() - apart.len();
            match apart.chars().next() {
                Some(c) if ends_western(c) || ends_chinese(c) => {
                    end += spaces + c.len_utf8();
                    marks += 1;
                }
                Some(c) if closes(c) && spaces == 0 => end += c.len_utf8(),
                _ => break,
            }
        }
        let next = Next::of(document, end);
        Self { end, marks, next }
    }

    /// The same for the mark after the first.
    fn without_first(self) -> Self {
        Self {
            marks: self.marks.saturating_sub(1),
            ..self
        }
    }

    /// Whether a sentence that began at `start` ends with the mark at `at` and this run.
    fn is_end(&self, document: &str, start: usize, at: usize, mark: char) -> bool {
        let before = &document[start..at];
        // It stands apart: the text is tokenized, and may have small letters only.
        let apart = before.ends_with(char::is_whitespace);
        match self.next {
            Next::Nothing | Next::Chinese => true,
            Next::Glued => false,
            Next::Small => apart,
            Next::Other(next) => {
                let only_a_point = mark == '.' && self.marks == 0;
                apart || !(only_a_point && is_abbreviation(before, &document[next..]))
            }
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
