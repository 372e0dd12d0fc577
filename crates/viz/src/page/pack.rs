//! Weights as text in a page: 16 bits each, in base64. As decimals they would take three
//! times the room.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

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
    let text = BASE64_STANDARD.encode(&bytes);
    Packed { low, high, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_steps_of_their_range() {
        let packed = pack(&Matrix::new(1, 3, vec![-0.5, 0.5, 0.0]).unwrap());
        assert_eq!((packed.low, packed.high), (-0.5, 0.5));
        // 0, 65535 and 32768, the low byte first.
        assert_eq!(packed.text, "AAD//wCA");
        let zeros = pack(&Matrix::new(1, 1, vec![0.0]).unwrap());
        assert_eq!(zeros.text, "AAA=");
    }
}
