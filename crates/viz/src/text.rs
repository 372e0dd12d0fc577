//! Text in HTML and SVG: escaping, and widths, which are estimated since no font is available.

/// Styles of text in SVGs, for light and dark themes.
pub(crate) const STYLE: &str = "
.zoo-text { font: 12px system-ui, sans-serif; fill: #333 }
.zoo-title { font: 600 14px system-ui, sans-serif; fill: #111 }
@media (prefers-color-scheme: dark) { .zoo-text { fill: #ccc } .zoo-title { fill: #eee } }
";

/// Estimated width of a text at a font size of 12 units. CJK characters are square.
pub(crate) fn width(text: &str) -> f64 {
    text.chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | '\'' | '|' | '!' => 4.0,
            'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 11.0,
            '\u{300}'..='\u{36f}' => 0.0,
            '\0'..='\u{2fff}' => 7.2,
            _ => 13.0,
        })
        .sum()
}

/// Truncates a text to `max_len` characters, with `…` at the end.
pub(crate) fn truncated(text: &str, max_len: usize) -> String {
    if text.chars().count() <= max_len {
        return text.to_owned();
    }
    let mut truncated: String = text.chars().take(max_len.saturating_sub(1)).collect();
    truncated.push('…');
    truncated
}

/// Escapes a text for HTML and XML. Characters that are invalid in XML become U+FFFD.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(c),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Makes whitespace, empty tokens and bidirectional control characters of a token visible.
pub fn visible(token: &str) -> String {
    if token.is_empty() {
        return "∅".to_owned();
    }
    token
        .chars()
        .map(|c| match c {
            ' ' => '␣',
            '\n' => '⏎',
            '\r' => '␍',
            '\t' => '⇥',
            '\u{3000}' => '□',
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '·',
            c if c.is_control() => '\u{fffd}',
            c if c.is_whitespace() => '␣',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_counts_characters() {
        assert_eq!(truncated("好久不见", 4), "好久不见");
        assert_eq!(truncated("好久不见了", 4), "好久不…");
        assert!(width("好") > width("a") && width("e\u{301}") == width("e"));
    }

    #[test]
    fn markup_is_escaped() {
        let escaped = "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;amp;&lt;/a&gt;";
        assert_eq!(escape("<a href=\"x\" b='y'>&amp;</a>"), escaped);
        assert_eq!(escape("好\n\u{1}"), "好\n\u{fffd}");
    }

    #[test]
    fn invisible_characters_are_shown() {
        assert_eq!(visible(""), "∅");
        assert_eq!(visible(" a\n"), "␣a⏎");
        assert_eq!(visible("\u{202e}x\u{7}"), "·x\u{fffd}");
        assert_eq!(visible("▁好"), "▁好");
    }
}
