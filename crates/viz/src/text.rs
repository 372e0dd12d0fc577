//! Text in pages and pictures: what of it is escaped, how much room it takes, guessed, for no font is
//! at hand where a picture is drawn; and how it looks.

/// The text and the title of every SVG, on light pages and on dark ones.
pub(crate) const STYLE: &str = "
.zoo-text { font: 12px system-ui, sans-serif; fill: #333 }
.zoo-title { font: 600 14px system-ui, sans-serif; fill: #111 }
@media (prefers-color-scheme: dark) { .zoo-text { fill: #ccc } .zoo-title { fill: #eee } }
";

/// The width of a text at 12 units a letter's height. Chinese and its like are square.
pub(crate) fn width(text: &str) -> f64 {
    text.chars()
        .map(|letter| match letter {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | '\'' | '|' | '!' => 4.0,
            'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 11.0,
            '\u{300}'..='\u{36f}' => 0.0,
            '\0'..='\u{2fff}' => 7.2,
            _ => 13.0,
        })
        .sum()
}

/// The text, or its beginning and `…`, in at most `letters` characters.
pub(crate) fn shortened(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(letters.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// The text with the five characters that mean something there written out; characters
/// that XML cannot hold become the one for what cannot be shown.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(letter),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// A token with what nobody would see of it made visible: blanks, line breaks, nothing
/// at all, and marks that would reverse or join what stands around them.
pub fn visible(token: &str) -> String {
    if token.is_empty() {
        return "∅".to_owned();
    }
    token
        .chars()
        .map(|letter| match letter {
            ' ' => '␣',
            '\n' => '⏎',
            '\r' => '␍',
            '\t' => '⇥',
            '\u{3000}' => '□',
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '·',
            letter if letter.is_control() => '\u{fffd}',
            letter if letter.is_whitespace() => '␣',
            letter => letter,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted_not_bytes() {
        assert_eq!(shortened("好久不见", 4), "好久不见");
        assert_eq!(shortened("好久不见了", 4), "好久不…");
        assert!(width("好") > width("a") && width("e\u{301}") == width("e"));
    }

    #[test]
    fn markup_is_text() {
        assert_eq!(
            escape("<a href=\"x\" b='y'>&amp;</a>"),
            "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;amp;&lt;/a&gt;"
        );
        assert_eq!(escape("好\n\u{1}"), "好\n\u{fffd}");
    }

    #[test]
    fn what_is_not_seen_is_shown() {
        assert_eq!(visible(""), "∅");
        assert_eq!(visible(" a\n"), "␣a⏎");
        assert_eq!(visible("\u{202e}x\u{7}"), "·x\u{fffd}");
        assert_eq!(visible("▁好"), "▁好");
    }
}
