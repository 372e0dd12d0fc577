//! Ranges of floating-point keys.

use std::fmt;

/// A range of finite numbers.
#[derive(Clone, Copy)]
pub struct Range {
    min: Bound,
    max: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    None,
    Inclusive(f64),
    Exclusive(f64),
}

impl Range {
    /// A probability below 1.
    pub const PROBABILITY: Self = Self::new(Bound::Inclusive(0.0), Bound::Exclusive(1.0));
    /// A probability above 0.
    pub const FRACTION: Self = Self::new(Bound::Exclusive(0.0), Bound::Inclusive(1.0));
    /// A probability from 0 to 1.
    pub const UNIT_INTERVAL: Self = Self::new(Bound::Inclusive(0.0), Bound::Inclusive(1.0));
    /// A decay factor: above 0 and below 1.
    pub const DECAY: Self = Self::new(Bound::Exclusive(0.0), Bound::Exclusive(1.0));
    /// Above 0.
    pub const POSITIVE: Self = Self::new(Bound::Exclusive(0.0), Bound::None);
    /// At least 0.
    pub const NOT_NEGATIVE: Self = Self::new(Bound::Inclusive(0.0), Bound::None);
    /// Temperature of attention scores.
    pub const TEMPERATURE: Self = Self::new(Bound::Inclusive(1e-6), Bound::Inclusive(1e6));
    /// Softcap of attention scores.
    pub const SOFTCAP: Self = Self::new(Bound::Inclusive(1e-30), Bound::Inclusive(1e30));
    /// Coefficient of a loss term, of either sign.
    pub const COEFFICIENT: Self = Self::new(Bound::Inclusive(-1e6), Bound::Inclusive(1e6));

    const fn new(min: Bound, max: Bound) -> Self {
        Self { min, max }
    }

    /// Whether the value is in the range. NaN and infinities are in none.
    pub fn contains(self, value: f64) -> bool {
        let above = match self.min {
            Bound::None => true,
            Bound::Inclusive(min) => value >= min,
            Bound::Exclusive(min) => value > min,
        };
        let below = match self.max {
            Bound::None => true,
            Bound::Inclusive(max) => value <= max,
            Bound::Exclusive(max) => value < max,
        };
        value.is_finite() && above && below
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min {
            Bound::None => {}
            Bound::Inclusive(min) => write!(f, "at least {}", Plain(min))?,
            Bound::Exclusive(min) => write!(f, "above {}", Plain(min))?,
        }
        if !matches!((self.min, self.max), (Bound::None, _) | (_, Bound::None)) {
            f.write_str(" and ")?;
        }
        match self.max {
            Bound::None => Ok(()),
            Bound::Inclusive(max) => write!(f, "at most {}", Plain(max)),
            Bound::Exclusive(max) => write!(f, "below {}", Plain(max)),
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
    fn bounds_and_descriptions() {
        for (range, description, inside, outside) in [
            (
                Range::PROBABILITY,
                "at least 0 and below 1",
                vec![0.0, 0.999],
                vec![-0.1, 1.0],
            ),
            (
                Range::FRACTION,
                "above 0 and at most 1",
                vec![0.001, 1.0],
                vec![0.0, 1.1],
            ),
            (
                Range::UNIT_INTERVAL,
                "at least 0 and at most 1",
                vec![0.0, 1.0],
                vec![-0.1, 1.1],
            ),
            (
                Range::DECAY,
                "above 0 and below 1",
                vec![0.5],
                vec![0.0, 1.0],
            ),
            (Range::POSITIVE, "above 0", vec![1e-9, 1e9], vec![0.0, -1.0]),
            (Range::NOT_NEGATIVE, "at least 0", vec![0.0], vec![-1e-9]),
            (
                Range::TEMPERATURE,
                "at least 1e-6 and at most 1e6",
                vec![1e-6, 1e6],
                vec![0.0, 2e6],
            ),
        ] {
            assert_eq!(range.to_string(), description);
            assert!(inside.iter().all(|x| range.contains(*x)), "{description}");
            assert!(!outside.iter().any(|x| range.contains(*x)), "{description}");
            assert!(!range.contains(f64::NAN) && !range.contains(f64::INFINITY));
        }
    }
}
