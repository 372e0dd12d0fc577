//! Text in pictures: how much room it takes, guessed, for no font is at hand where a picture is
//! drawn; and how it looks.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted_not_bytes() {
        assert_eq!(shortened("好久不见", 4), "好久不见");
        assert_eq!(shortened("好久不见了", 4), "好久不…");
        assert!(width("好") > width("a") && width("e\u{301}") == width("e"));
    }
}
