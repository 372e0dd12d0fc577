//! Weights as text in a page: 16 bits each, in base64. As decimals they would take three
//! times the room.

use crate::Matrix;

/// The weights of a matrix in steps between `low` and `high`, which the page needs too.
pub(super) struct Packed {
    pub(super) low: f32,
    pub(super) high: f32,
    pub(super) text: String,
}

pub(super) fn pack(matrix: &Matrix) -> Packed {
    let (low, high) = matrix.range();
    let whole = high - low;
    let mut bytes = Vec::with_capacity(2 * matrix.weights().len());
    for weight in matrix.weights() {
        let share = if whole > 0.0 {
            (weight - low) / whole
        } else {
            0.0
        };
        let step = (share * f32::from(u16::MAX)).round() as u16;
        bytes.extend(step.to_le_bytes());
    }
    let text = base64(&bytes);
    Packed { low, high, text }
}

/// RFC 4648: six bits a letter, and `=` to a multiple of four letters.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            if at <= chunk.len() {
                let six = (bits >> (18 - 6 * at)) as usize & 63;
                text.push(char::from(LETTERS[six]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let pairs = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in pairs {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn weights_are_steps_of_their_range() {
        let packed = pack(&Matrix::new(1, 3, vec![-0.5, 0.5, 0.0]).unwrap());
        assert_eq!((packed.low, packed.high), (-0.5, 0.5));
        // 0, 65535 and 32768, the low byte first.
        assert_eq!(packed.text, base64(&[0, 0, 255, 255, 0, 128]));
        let zeros = pack(&Matrix::new(1, 1, vec![0.0]).unwrap());
        assert_eq!(zeros.text, "AAA=");
    }
}
