//! Escaping of untrusted text for a terminal.

use std::borrow::Cow;
use std::fmt;

/// A name from a file, such as a label, a column or a tensor, displayed on one line with control
/// characters escaped as in Rust.
///
/// ```
/// # use zoo_spec::Printable;
/// assert_eq!(Printable("naïve 好").to_string(), "naïve 好");
/// assert_eq!(Printable("red\u{1b}[31m\n").to_string(), "red\\u{1b}[31m\\n");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Printable<'a>(pub &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(self.0, is_control))
    }
}

/// A text with control characters escaped, except line feeds and tabs.
///
/// ```
/// # use zoo_spec::printable_text;
/// assert_eq!(printable_text("a\tb\n"), "a\tb\n");
/// assert_eq!(printable_text("a\u{9b}2J\n"), "a\\u{9b}2J\n");
/// ```
pub fn printable_text(text: &str) -> Cow<'_, str> {
    escape(text, |character| {
        !matches!(character, '\n' | '\t') && is_control(character)
    })
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escaped(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// Whether a character controls the terminal, reorders text or is invisible. Joiners (emoji,
/// Persian) and directional marks (Arabic, Hebrew) are part of normal text.
fn is_control(character: char) -> bool {
    let is_bidi_control = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_line_end = matches!(character, '\u{2028}' | '\u{2029}');
    let is_invisible = matches!(
        character,
        '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    );
    // C0, DEL and C1.
    character.is_control() || is_bidi_control || is_line_end || is_invisible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, escaped) in [
            ("\0\u{7}\u{8}", r"\u{0}\u{7}\u{8}"),
            ("\r\u{1b}\u{7f}", r"\r\u{1b}\u{7f}"),
            ("\u{85}\u{9b}", r"\u{85}\u{9b}"),
            ("\u{202e}\u{2066}", r"\u{202e}\u{2066}"),
            ("\u{2028}\u{200b}", r"\u{2028}\u{200b}"),
            ("\u{e0041}", r"\u{e0041}"),
        ] {
            assert_eq!(Printable(text).to_string(), escaped);
            assert_eq!(printable_text(text), escaped);
        }
        assert_eq!(Printable("a\n\tb").to_string(), r"a\n\tb");
    }

    #[test]
    fn normal_text_is_unchanged() {
        for text in [
            "naïve \"好久不见\"",
            "👩‍👩‍👧",
            "می‌خواهم",
            "a\\b",
            "שלום‎!",
            "é é",
        ] {
            assert_eq!(Printable(text).to_string(), text);
            assert!(matches!(printable_text(text), Cow::Borrowed(_)), "{text}");
        }
    }
}
