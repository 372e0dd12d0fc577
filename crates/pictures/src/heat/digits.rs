//! Digits as dots, for images: three wide, five high.

/// The rows of each glyph, a bit a dot, the left one first.
fn glyph(letter: char) -> [u8; 5] {
    match letter {
        '0' => [0b111, 0b101, 0b101, 0b101, 0b111],
        '1' => [0b010, 0b110, 0b010, 0b010, 0b111],
        '2' => [0b111, 0b001, 0b111, 0b100, 0b111],
        '3' => [0b111, 0b001, 0b111, 0b001, 0b111],
        '4' => [0b101, 0b101, 0b111, 0b001, 0b001],
        '5' => [0b111, 0b100, 0b111, 0b001, 0b111],
        '6' => [0b111, 0b100, 0b111, 0b101, 0b111],
        '7' => [0b111, 0b001, 0b010, 0b010, 0b010],
        '8' => [0b111, 0b101, 0b111, 0b101, 0b111],
        '9' => [0b111, 0b101, 0b111, 0b001, 0b111],
        '-' => [0b000, 0b000, 0b111, 0b000, 0b000],
        '.' => [0b000, 0b000, 0b000, 0b000, 0b010],
        'e' => [0b000, 0b111, 0b111, 0b100, 0b111],
        _ => [0b000; 5],
    }
}

/// Dots from the beginning of one glyph to that of the next.
const ADVANCE: usize = 4;
pub(super) const HEIGHT: usize = 5;

/// The places of the dots of a number, from its upper left corner.
pub(super) fn dots(text: &str) -> Vec<(usize, usize)> {
    let mut dots = Vec::new();
    for (at, letter) in text.chars().enumerate() {
        for (y, row) in glyph(letter).into_iter().enumerate() {
            for x in 0..3 {
                if row >> (2 - x) & 1 == 1 {
                    dots.push((ADVANCE * at + x, y));
                }
            }
        }
    }
    dots
}

/// How many dots wide a number is.
pub(super) fn width(text: &str) -> usize {
    (ADVANCE * text.chars().count()).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_differ_and_fit() {
        let all: Vec<[u8; 5]> = "0123456789-.e".chars().map(glyph).collect();
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one));
        }
        assert_eq!(width("123"), 11);
        assert!(dots("888").iter().all(|(x, y)| *x < 11 && *y < HEIGHT));
    }
}
