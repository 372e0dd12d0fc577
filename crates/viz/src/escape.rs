//! Text as it stands in HTML and SVG.

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
