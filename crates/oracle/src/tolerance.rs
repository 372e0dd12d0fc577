//! Tolerances of comparisons with the oracle, with reasons.

use std::fmt;

/// Data type of a mechanism's tensors. All compute in `f32`, so that tensors in half precision are
/// rounded once as inputs, which the oracle takes into account, and once as outputs. The exception
/// are matmuls in TF32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 24-bit significand.
    F32,
    /// `f32` with matmuls that round their operands to a significand of 11 bits.
    Tf32,
    /// 11-bit significand.
    F16,
    /// 8-bit significand.
    Bf16,
}

/// Half the spacing of `f32` values near 1: a unit.
const F32_UNIT: f64 = 1.0 / (1u64 << 24) as f64;

/// Half the spacing of TF32 values near 1.
const TF32_UNIT: f64 = 1.0 / (1u64 << 11) as f64;

impl Precision {
    /// Tolerance of outputs and weights of a problem with scores up to `largest_score`.
    ///
    /// A weight has the rounding errors of its score's dot product, of `exp` (for which WGSL allows
    /// `3 + 2|x|` units) and of the division; an output averages over weights. The largest error
    /// measured on flex, ndarray, llvmpipe and LibTorch is 14 units at scores up to 5.
    pub fn forward(self, largest_score: f64) -> Tolerance {
        self.tolerance("forward", 32.0, largest_score)
    }

    /// Tolerance of gradients of a problem with scores up to `largest_score`: a second chain of
    /// products after the forward one, with a difference of near-equal terms (`do·v - do·o`). The
    /// largest error measured is 27 units at scores up to 5.
    pub fn backward(self, largest_score: f64) -> Tolerance {
        self.tolerance("backward", 64.0, largest_score)
    }

    fn tolerance(self, pass: &'static str, units: f64, largest_score: f64) -> Tolerance {
        // A score of size s is rounded by s units, and `exp` turns that into as many units of the
        // weight, which is unavoidable in f32. Up to 4 it is covered by the other rounding errors.
        let (unit, units) = match self {
            Self::F32 | Self::F16 | Self::Bf16 => (F32_UNIT, units),
            // Only operands are rounded; sums and exponentials are not.
            Self::Tf32 => (TF32_UNIT, units / 8.0),
        };
        let compute_error = units * unit * (largest_score / 4.0).max(1.0);
        // Rounding once costs half a spacing: 2^-12 of an f16, 2^-9 of a bf16. Twice that, because
        // the largest value may be just above a power of two and others just below.
        let (name, storage_error) = match self {
            Self::F32 => ("f32", 0.0),
            Self::Tf32 => ("tf32", 0.0),
            Self::F16 => ("f16", 2.0 / f64::from(1 << 12)),
            Self::Bf16 => ("bf16", 2.0 / f64::from(1 << 9)),
        };
        Tolerance {
            name,
            pass,
            relative: compute_error + storage_error,
        }
    }
}

/// A bound on the largest error in a tensor, relative to its largest absolute value.
///
/// Attention sums many terms of similar size, so errors are relative to the tensor's scale:
/// relative to single elements, a sum that happens to cancel would fail however well it was
/// computed. A tensor of zeros has no scale, so that every element must be exactly zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Data type, for error messages.
    pub name: &'static str,
    /// `forward` or `backward`, for error messages.
    pub pass: &'static str,
    /// Maximum relative error.
    pub relative: f64,
}

impl Tolerance {
    /// Compares `got` with `want` and returns the error relative to the scale of `want`.
    ///
    /// # Errors
    ///
    /// The worst element, if its error exceeds the tolerance.
    pub fn check(&self, tensor: &str, got: &[f32], want: &[f64]) -> Result<f64, Mismatch> {
        self.check_with_min_scale(0.0, tensor, got, want)
    }

    /// [`check`](Self::check) for two results that were both computed in `f32`.
    pub fn compare(&self, tensor: &str, got: &[f32], want: &[f32]) -> Result<f64, Mismatch> {
        let want: Vec<f64> = want.iter().copied().map(f64::from).collect();
        self.check(tensor, got, &want)
    }

    /// [`check`](Self::check) for a tensor whose terms may cancel: its scale is at least
    /// `min_scale`.
    pub fn check_with_min_scale(
        &self,
        min_scale: f64,
        tensor: &str,
        got: &[f32],
        want: &[f64],
    ) -> Result<f64, Mismatch> {
        let mismatch = |index: usize, error: f64| Mismatch {
            tensor: tensor.to_owned(),
            index,
            got: got.get(index).copied().unwrap_or(f32::NAN),
            want: want.get(index).copied().unwrap_or(f64::NAN),
            error,
            tolerance: *self,
        };
        if got.len() != want.len() {
            return Err(mismatch(got.len().min(want.len()), f64::INFINITY));
        }
        let scale = want.iter().fold(min_scale, |max: f64, x| max.max(x.abs()));
        let error = |index: usize| {
            let difference = (f64::from(got[index]) - want[index]).abs();
            if difference == 0.0 {
                0.0
            } else if scale == 0.0 || difference.is_nan() {
                f64::INFINITY
            } else {
                difference / scale
            }
        };
        let (index, error) = (0..got.len())
            .map(|index| (index, error(index)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or((0, 0.0));
        if error <= self.relative {
            Ok(error)
        } else {
            Err(mismatch(index, error))
        }
    }
}

/// The element of a tensor with the largest error, which exceeds the tolerance.
#[derive(Debug, Clone, PartialEq)]
pub struct Mismatch {
    /// Name of the tensor.
    pub tensor: String,
    /// Flat index of the element.
    pub index: usize,
    /// Computed value.
    pub got: f32,
    /// Expected value, computed by the oracle.
    pub want: f64,
    /// Error relative to the tensor's scale.
    pub error: f64,
    /// Exceeded tolerance.
    pub tolerance: Tolerance,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}[{}] is {}, expected {}: relative error {:.1e} exceeds the {} {} tolerance {:.1e}",
            self.tensor,
            self.index,
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
    fn errors_are_relative_to_the_largest_value() {
        assert!(TIGHT.check("x", &[100.0, 0.05], &[100.0, 0.0]).is_ok());
        let mismatch = TIGHT
            .check("x", &[1.0, 0.05], &[1.0, 0.0])
            .expect_err("0.05 of 1 is far over 1e-3");
        assert_eq!((mismatch.index, mismatch.got), (1, 0.05));
    }

    #[test]
    fn nan_missing_elements_and_non_zero_zeros_are_mismatches() {
        assert!(TIGHT.check("nan", &[f32::NAN], &[1.0]).is_err());
        assert!(TIGHT.check("short", &[1.0], &[1.0, 2.0]).is_err());
        assert!(TIGHT.check("zero", &[1e-30], &[0.0]).is_err());
        assert_eq!(TIGHT.check("zero", &[0.0], &[0.0]), Ok(0.0));
    }
}
