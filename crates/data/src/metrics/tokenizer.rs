//! How a line is cut into the words that BLEU counts.

use std::ops::RangeInclusive;

use super::text::is_blank;
use crate::words::words;

words! {
    /// One of sacreBLEU's tokenizers, by its name there and in its signature.
    #[derive(Default)]
    pub enum Tokenizer of "tokenizer of BLEU" {
        /// That of WMT's `mteval-v13a`: punctuation apart, numbers whole.
        #[default]
        V13a = "13a",
        /// Words lie between blanks already.
        None = "none",
        /// Every character is a word.
        Char = "char",
        /// Every Chinese character is a word; the rest is cut as by `13a`.
        Zh = "zh",
    }
}

impl Tokenizer {
    /// The line with blanks between its words.
    ///
    /// ```
    /// # use zoo_data::metrics::Tokenizer;
    /// let line = Tokenizer::V13a.tokenize("It cost $3.50, he said.");
    /// assert_eq!(line, "It cost $ 3.50 , he said .");
    /// ```
    pub fn tokenize(self, line: &str) -> String {
        let line = line.trim_end_matches(is_blank);
        match self {
            Self::None => line.to_owned(),
            Self::Char => joined(line.chars().map(String::from)),
            Self::V13a => western(&plain(line)),
            Self::Zh => western(&chinese_apart(line.trim_start_matches(is_blank))),
        }
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

/// Punctuation apart from words. The four passes come one after the other, as in the
/// original: each sees the blanks that the ones before it have put.
fn western(line: &str) -> String {
    let letters: Vec<char> = line.chars().collect();
    let letters: Vec<char> = letters
        .into_iter()
        .flat_map(|letter| match is_symbol(letter) {
            true => vec![' ', letter, ' '],
            false => vec![letter],
        })
        .collect();
    // A point or comma that does not follow a digit, one that none follows, and a dash
    // behind a digit.
    let letters = pairs(letters, |left, right| {
        (!left.is_ascii_digit() && is_point(right)).then(|| vec![left, ' ', right, ' '])
    });
    let letters = pairs(letters, |left, right| {
        (is_point(left) && !right.is_ascii_digit()).then(|| vec![' ', left, ' ', right])
    });
    let letters = pairs(letters, |left, right| {
        (left.is_ascii_digit() && right == '-').then(|| vec![left, ' ', '-', ' '])
    });
    let line: String = letters.into_iter().collect();
    joined(super::text::words(&line).map(str::to_owned))
}

/// Replaces pairs of neighbours from left to right; a letter is in one pair at most.
fn pairs(letters: Vec<char>, replace: impl Fn(char, char) -> Option<Vec<char>>) -> Vec<char> {
    let mut replaced = Vec::with_capacity(letters.len() + 8);
    let mut at = 0;
    while at < letters.len() {
        let next = letters.get(at + 1);
        match next.and_then(|right| replace(letters[at], *right)) {
            Some(pair) => {
                replaced.extend(pair);
                at += 2;
            }
            None => {
                replaced.push(letters[at]);
                at += 1;
            }
        }
    }
    replaced
}

fn is_point(letter: char) -> bool {
    matches!(letter, '.' | ',')
}

/// ASCII's punctuation but for the apostrophe, and the point, comma and dash that numbers
/// have inside of them.
fn is_symbol(letter: char) -> bool {
    letter.is_ascii_punctuation() && !matches!(letter, '\'' | '.' | ',' | '-')
}

/// What sacreBLEU takes for Chinese. Its table means the characters above U+FFFF too, but
/// is written so that it has U+2001 to U+2A6D instead: dashes and quotation marks come apart
/// and rare characters do not. Scores are the same only if this is.
const CHINESE: [RangeInclusive<char>; 17] = [
    '\u{2001}'..='\u{2a6d}',
    '\u{2e80}'..='\u{2eff}',
    '\u{2f00}'..='\u{2fdf}',
    '\u{2ff0}'..='\u{2fff}',
    '\u{3000}'..='\u{303f}',
    '\u{3100}'..='\u{312f}',
    '\u{31a0}'..='\u{31bf}',
    '\u{31c0}'..='\u{31ef}',
    '\u{3200}'..='\u{33ff}',
    '\u{3400}'..='\u{4db5}',
    '\u{4e00}'..='\u{9fbb}',
    '\u{f900}'..='\u{fa2d}',
    '\u{fa30}'..='\u{fa6a}',
    '\u{fa70}'..='\u{fad9}',
    '\u{fe10}'..='\u{fe1f}',
    '\u{fe30}'..='\u{fe4f}',
    '\u{ff00}'..='\u{ffef}',
];

fn chinese_apart(line: &str) -> String {
    let mut apart = String::with_capacity(3 * line.len());
    for letter in line.chars() {
        if CHINESE.iter().any(|range| range.contains(&letter)) {
            apart.extend([' ', letter, ' ']);
        } else {
            apart.push(letter);
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_whole_and_points_come_apart() {
        let cut = |line| Tokenizer::V13a.tokenize(line);
        assert_eq!(cut("1,234.5 km."), "1,234.5 km .");
        assert_eq!(cut("A 3-year-old, no?"), "A 3 - year-old , no ?");
        assert_eq!(cut("&quot;don't&quot;"), "\" don't \"");
        assert_eq!(cut("   "), "");
    }

    #[test]
    fn chinese_is_cut_by_characters() {
        assert_eq!(
            Tokenizer::Zh.tokenize("好久不见, Tom。"),
            "好 久 不 见 , Tom 。"
        );
        assert_eq!(Tokenizer::Char.tokenize("a 久 "), "a   久");
    }
}
