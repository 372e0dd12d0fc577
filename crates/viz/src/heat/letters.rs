//! Letters as dots, for images: eight wide and high, ASCII and Latin-1.

use font8x8::{BASIC_FONTS, LATIN_FONTS, UnicodeFonts};

/// Dots of a glyph in both directions.
pub(super) const SIZE: usize = 8;

/// The rows of a glyph from above, the left dot of a row its lowest bit.
fn glyph(letter: char) -> Option<[u8; SIZE]> {
    let known = BASIC_FONTS.get(letter).or_else(|| LATIN_FONTS.get(letter));
    known.filter(|_| !letter.is_control())
}

pub(super) fn can_write(text: &str) -> bool {
    text.chars().all(|letter| glyph(letter).is_some())
}

/// The places of the dots of a text, from its upper left corner.
pub(super) fn dots(text: &str) -> Vec<(usize, usize)> {
    let mut dots = Vec::new();
    for (at, letter) in text.chars().enumerate() {
        for (y, row) in glyph(letter).into_iter().flatten().enumerate() {
            let set = (0..SIZE).filter(|x| row >> x & 1 == 1);
            dots.extend(set.map(|x| (SIZE * at + x, y)));
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
    fn a_letter_looks_like_itself() {
        let mut rows = [[' '; SIZE]; SIZE];
        for (x, y) in dots("L") {
            rows[y][x] = '#';
        }
        let rows = rows.map(|row| row.iter().collect::<String>());
        let drawn = [
            "####", " ##", " ##", " ##", " ##   #", " ##  ##", "#######", "",
        ];
        assert_eq!(rows.map(|row| row.trim_end().to_owned()), drawn);
        assert_eq!(width("123"), 24);
    }

    #[test]
    fn other_letters_cannot_be_written() {
        assert!(can_write("</s> ~é") && can_write(""));
        assert!(!can_write("好") && !can_write("\n"));
    }
}
