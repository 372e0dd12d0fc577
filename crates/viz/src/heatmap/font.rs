//! Bitmap font of 8x8 dots for ASCII and Latin-1.

use font8x8::{BASIC_FONTS, LATIN_FONTS, UnicodeFonts};

/// Width and height of a glyph in dots.
pub(super) const SIZE: usize = 8;

/// Rows of a glyph from the top; the leftmost dot is the lowest bit.
fn glyph(c: char) -> Option<[u8; SIZE]> {
    let known = BASIC_FONTS.get(c).or_else(|| LATIN_FONTS.get(c));
    known.filter(|_| !c.is_control())
}

pub(super) fn supports(text: &str) -> bool {
    text.chars().all(|c| glyph(c).is_some())
}

/// Positions of the dots of a text, from its top left corner.
pub(super) fn dots(text: &str) -> Vec<(usize, usize)> {
    let mut dots = Vec::new();
    for (i, c) in text.chars().enumerate() {
        for (y, row) in glyph(c).into_iter().flatten().enumerate() {
            let set = (0..SIZE).filter(|x| row >> x & 1 == 1);
            dots.extend(set.map(|x| (SIZE * i + x, y)));
        }
    }
    dots
}

pub(super) fn width(text: &str) -> usize {
    SIZE * text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_of_a_letter() {
        let mut rows = [[' '; SIZE]; SIZE];
        for (x, y) in dots("L") {
            rows[y][x] = '#';
        }
        let rows = rows.map(|row| row.iter().collect::<String>());
        let expected = [
            "####", " ##", " ##", " ##", " ##   #", " ##  ##", "#######", "",
        ];
        assert_eq!(rows.map(|row| row.trim_end().to_owned()), expected);
        assert_eq!(width("123"), 24);
    }

    #[test]
    fn supported_characters() {
        assert!(supports("</s> ~é") && supports(""));
        assert!(!supports("好") && !supports("\n"));
    }
}
