//! Which numbers are allowed.

use std::fmt;

/// Numbers between two bounds; never NaN, never infinite.
#[derive(Clone, Copy)]
pub struct Range {
    least: Bound,
    most: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    None,
    /// Up to this, and this itself.
    At(f64),
    /// Up to this, but not this itself.
    Open(f64),
}

impl Range {
    /// A probability or share below 1.
    pub const SHARE: Self = Self::new(Bound::At(0.0), Bound::Open(1.0));
    /// A share above 0.
    pub const FRACTION: Self = Self::new(Bound::Open(0.0), Bound::At(1.0));
    /// A share from 0 to 1.
    pub const PART: Self = Self::new(Bound::At(0.0), Bound::At(1.0));
    /// A factor between 0 and 1.
    pub const SHRINKING: Self = Self::new(Bound::Open(0.0), Bound::Open(1.0));
    /// Above 0.
    pub const POSITIVE: Self = Self::new(Bound::Open(0.0), Bound::None);
    /// At least 0.
    pub const NOT_NEGATIVE: Self = Self::new(Bound::At(0.0), Bound::None);
    /// A temperature of attention.
    pub const TEMPERATURE: Self = Self::new(Bound::At(1e-6), Bound::At(1e6));
    /// A cap of attention scores.
    pub const SOFTCAP: Self = Self::new(Bound::At(1e-30), Bound::At(1e30));
    /// A coefficient of a loss term, of either sign.
    pub const COEFFICIENT: Self = Self::new(Bound::At(-1e6), Bound::At(1e6));

    const fn new(least: Bound, most: Bound) -> Self {
        Self { least, most }
    }

    /// Whether the number is in the range.
    pub fn contains(self, number: f64) -> bool {
        let above = match self.least {
            Bound::None => true,
            Bound::At(least) => number >= least,
            Bound::Open(least) => number > least,
        };
        let below = match self.most {
            Bound::None => true,
            Bound::At(most) => number <= most,
            Bound::Open(most) => number < most,
        };
        number.is_finite() && above && below
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.least {
            Bound::None => {}
            Bound::At(least) => write!(f, "at least {}", Plain(least))?,
            Bound::Open(least) => write!(f, "above {}", Plain(least))?,
        }
        if !matches!((self.least, self.most), (Bound::None, _) | (_, Bound::None)) {
            f.write_str(" and ")?;
        }
        match self.most {
            Bound::None => Ok(()),
            Bound::At(most) => write!(f, "at most {}", Plain(most)),
            Bound::Open(most) => write!(f, "below {}", Plain(most)),
        }
    }
}

/// A number without a row of zeros.
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
    fn bounds_are_where_they_are_said_to_be() {
        for (range, said, inside, outside) in [
            (
                Range::SHARE,
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
                Range::PART,
                "at least 0 and at most 1",
                vec![0.0, 1.0],
                vec![-0.1, 1.1],
            ),
            (
                Range::SHRINKING,
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
            assert_eq!(range.to_string(), said);
            assert!(inside.iter().all(|x| range.contains(*x)), "{said}");
            assert!(!outside.iter().any(|x| range.contains(*x)), "{said}");
            assert!(!range.contains(f64::NAN) && !range.contains(f64::INFINITY));
        }
    }
}
