//! Ranges of floating-point keys.

use std::fmt;
use std::ops::{Bound, RangeBounds};

/// A range of finite numbers.
#[derive(Clone, Copy)]
pub struct Range {
    min: Bound<f64>,
    max: Bound<f64>,
}

impl Range {
    /// A probability below 1.
    pub const PROBABILITY: Self = Self::new(Bound::Included(0.0), Bound::Excluded(1.0));
    /// A probability above 0.
    pub const FRACTION: Self = Self::new(Bound::Excluded(0.0), Bound::Included(1.0));
    /// A probability from 0 to 1.
    pub const UNIT_INTERVAL: Self = Self::new(Bound::Included(0.0), Bound::Included(1.0));
    /// A decay factor: above 0 and below 1.
    pub const DECAY: Self = Self::new(Bound::Excluded(0.0), Bound::Excluded(1.0));
    /// Above 0.
    pub const POSITIVE: Self = Self::new(Bound::Excluded(0.0), Bound::Unbounded);
    /// At least 0.
    pub const NOT_NEGATIVE: Self = Self::new(Bound::Included(0.0), Bound::Unbounded);
    /// A factor by which something becomes longer.
    pub const FACTOR: Self = Self::new(Bound::Included(1.0), Bound::Unbounded);
    /// Temperature of attention scores.
    pub const TEMPERATURE: Self = Self::new(Bound::Included(1e-6), Bound::Included(1e6));
    /// Softcap of attention scores.
    pub const SOFTCAP: Self = Self::new(Bound::Included(1e-30), Bound::Included(1e30));
    /// Coefficient of a loss term, of either sign.
    pub const COEFFICIENT: Self = Self::new(Bound::Included(-1e6), Bound::Included(1e6));

    const fn new(min: Bound<f64>, max: Bound<f64>) -> Self {
        Self { min, max }
    }

    /// Whether the value is in the range. NaN and infinities are in none.
    pub fn contains(self, value: f64) -> bool {
        value.is_finite() && (self.min, self.max).contains(&value)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min {
            Bound::Unbounded => {}
            Bound::Included(min) => write!(f, "at least {}", Plain(min))?,
            Bound::Excluded(min) => write!(f, "above {}", Plain(min))?,
        }
        // Every range has a lower bound.
        match self.max {
            Bound::Unbounded => Ok(()),
            Bound::Included(max) => write!(f, " and at most {}", Plain(max)),
            Bound::Excluded(max) => write!(f, " and below {}", Plain(max)),
        }
    }
}

/// A number in scientific notation where plain digits would be many zeros.
struct Plain(f64);

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.abs() {
            size if size != 0.0 && !(1e-3..1e5).contains(&size) => write!(f, "{:e}", self.0),
            _ => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions() {
        for (range, description) in [
            (Range::PROBABILITY, "at least 0 and below 1"),
            (Range::FRACTION, "above 0 and at most 1"),
            (Range::UNIT_INTERVAL, "at least 0 and at most 1"),
            (Range::DECAY, "above 0 and below 1"),
            (Range::POSITIVE, "above 0"),
            (Range::NOT_NEGATIVE, "at least 0"),
            (Range::FACTOR, "at least 1"),
            (Range::TEMPERATURE, "at least 1e-6 and at most 1e6"),
        ] {
            assert_eq!(range.to_string(), description);
        }
    }

    #[test]
    fn bounds() {
        for (range, inside, outside) in [
            (Range::PROBABILITY, [0.0, 0.999], [-0.1, 1.0]),
            (Range::FRACTION, [0.001, 1.0], [0.0, 1.1]),
            (Range::UNIT_INTERVAL, [0.0, 1.0], [-0.1, 1.1]),
            (Range::DECAY, [0.5, 0.5], [0.0, 1.0]),
            (Range::POSITIVE, [1e-9, 1e9], [0.0, -1.0]),
            (Range::NOT_NEGATIVE, [0.0, 0.0], [-1e-9, -1.0]),
            (Range::FACTOR, [1.0, 1e9], [0.999, -1.0]),
            (Range::TEMPERATURE, [1e-6, 1e6], [0.0, 2e6]),
        ] {
            assert!(inside.iter().all(|x| range.contains(*x)), "{range}");
            assert!(!outside.iter().any(|x| range.contains(*x)), "{range}");
            assert!(!range.contains(f64::NAN) && !range.contains(f64::INFINITY));
        }
    }
}
