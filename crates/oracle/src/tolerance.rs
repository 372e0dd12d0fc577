//! How far a backend may be off, and why.

use std::fmt;

/// The number type a mechanism's tensors are stored in. Computing is in `f32` for
/// all of them, so that the half ones are rounded on the way in, which the oracle
/// sees too, and once on the way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 24 bits.
    F32,
    /// 11 bits.
    F16,
    /// 8 bits.
    Bf16,
}

/// Half the gap between neighbouring `f32` numbers near 1: a unit.
const F32_UNIT: f64 = 1.0 / (1u64 << 24) as f64;

impl Precision {
    /// For results and weights of a problem with scores up to `largest_score`.
    ///
    /// A weight carries the roundings of its score's dot product, of `exp` (which
    /// WGSL lets be off by `3 + 2|x|` units) and of the division; a result averages
    /// over weights. The worst seen on flex, ndarray, llvmpipe and LibTorch is 14
    /// units at scores up to 5.
    pub fn forward(self, largest_score: f64) -> Tolerance {
        self.tolerance("forward", 32.0, largest_score)
    }

    /// For gradients of a problem with scores up to `largest_score`: a second chain
    /// of products on top of the forward one, with a difference of near-equal terms
    /// (`do·v - do·o`) inside. The worst seen is 27 units at scores up to 5.
    pub fn backward(self, largest_score: f64) -> Tolerance {
        self.tolerance("backward", 64.0, largest_score)
    }

    fn tolerance(self, pass: &'static str, units: f64, largest_score: f64) -> Tolerance {
        // A score of size s is rounded by s units, and `exp` turns that into as many
        // units of the weight: no way of computing in f32 escapes it. Up to 4 it is
        // covered by the other roundings.
        let computing = units * F32_UNIT * (largest_score / 4.0).max(1.0);
        // Rounding once loses half a gap: 2^-12 of an f16, 2^-9 of a bf16. Twice
        // that, because a largest number may lie just above a power of two while
        // others lie just below.
        let (name, storing) = match self {
            Self::F32 => ("f32", 0.0),
            Self::F16 => ("f16", 2.0 / f64::from(1 << 12)),
            Self::Bf16 => ("bf16", 2.0 / f64::from(1 << 9)),
        };
        Tolerance {
            name,
            pass,
            relative: computing + storing,
        }
    }
}

/// A bound on the largest error in a tensor, relative to its largest number.
///
/// Attention sums many terms of like size, so an error is judged against the
/// tensor's own scale: element by element, a sum that happens to cancel would
/// look wrong however well it was computed. A tensor that must be zero has no
/// scale, and then every element must be exactly zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// The number type, for a failure's words.
    pub name: &'static str,
    /// `forward` or `backward`, likewise.
    pub pass: &'static str,
    /// The bound.
    pub relative: f64,
}

impl Tolerance {
    /// Compares `got` with `want` and returns the error relative to the scale of `want`.
    ///
    /// # Errors
    ///
    /// The worst element, if it is too far off.
    pub fn check(&self, what: &str, got: &[f32], want: &[f64]) -> Result<f64, Mismatch> {
        self.check_as_large_as(0.0, what, got, want)
    }

    /// [`check`](Self::check) for two results that were both computed in `f32`.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn compare(&self, what: &str, got: &[f32], want: &[f32]) -> Result<f64, Mismatch> {
        let want: Vec<f64> = want.iter().copied().map(f64::from).collect();
        self.check(what, got, &want)
    }

    /// [`check`](Self::check) for a tensor that may be the small rest of larger numbers:
    /// its scale is at least `least`.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn check_as_large_as(
        &self,
        least: f64,
        what: &str,
        got: &[f32],
        want: &[f64],
    ) -> Result<f64, Mismatch> {
        let mismatch = |at: usize, error: f64| Mismatch {
            what: what.to_owned(),
            at,
            got: got.get(at).copied().unwrap_or(f32::NAN),
            want: want.get(at).copied().unwrap_or(f64::NAN),
            error,
            tolerance: *self,
        };
        if got.len() != want.len() {
            return Err(mismatch(got.len().min(want.len()), f64::INFINITY));
        }
        let size = want.iter().fold(least, |size: f64, x| size.max(x.abs()));
        let error_at = |at: usize| {
            let difference = (f64::from(got[at]) - want[at]).abs();
            match (difference == 0.0, size == 0.0) {
                (true, _) => 0.0,
                (false, true) => f64::INFINITY,
                // NaN compares false with everything; here it is the worst error there is.
                (false, false) if difference.is_nan() => f64::INFINITY,
                (false, false) => difference / size,
            }
        };
        let (at, error) = (0..got.len())
            .map(|at| (at, error_at(at)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or((0, 0.0));
        if error <= self.relative {
            Ok(error)
        } else {
            Err(mismatch(at, error))
        }
    }
}

/// The worst element of a tensor that is too far off.
#[derive(Debug, Clone, PartialEq)]
pub struct Mismatch {
    /// Which tensor.
    pub what: String,
    /// Where in it, counted row by row.
    pub at: usize,
    /// What was computed.
    pub got: f32,
    /// What the oracle says.
    pub want: f64,
    /// The error relative to the tensor's largest number.
    pub error: f64,
    /// The tolerance it missed.
    pub tolerance: Tolerance,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}[{}] is {}, should be {}: relative error {:.1e}, {} {} allows {:.1e}",
            self.what,
            self.at,
            self.got,
            self.want,
            self.error,
            self.tolerance.name,
            self.tolerance.pass,
            self.tolerance.relative
        )
    }
}

impl std::error::Error for Mismatch {}

#[cfg(test)]
mod tests {
    use super::*;

    const TIGHT: Tolerance = Tolerance {
        name: "tight",
        pass: "forward",
        relative: 1e-3,
    };

    #[test]
    fn an_error_is_judged_against_the_largest_number() {
        assert!(TIGHT.check("x", &[100.0, 0.05], &[100.0, 0.0]).is_ok());
        let mismatch = TIGHT
            .check("x", &[1.0, 0.05], &[1.0, 0.0])
            .expect_err("0.05 of 1 is far over 1e-3");
        assert_eq!((mismatch.at, mismatch.got), (1, 0.05));
    }

    #[test]
    fn nan_missing_elements_and_non_zero_zeros_are_mismatches() {
        assert!(TIGHT.check("nan", &[f32::NAN], &[1.0]).is_err());
        assert!(TIGHT.check("short", &[1.0], &[1.0, 2.0]).is_err());
        assert!(TIGHT.check("zero", &[1e-30], &[0.0]).is_err());
        assert_eq!(TIGHT.check("zero", &[0.0], &[0.0]), Ok(0.0));
    }
}
