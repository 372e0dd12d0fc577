//! The exponential function, for loops that the compiler vectorizes.

/// `e^x` for `x <= 0`, accurate to two ulps; 0 below -87. The compiler can vectorize it.
///
/// `e^x = 2^n · e^r` with `|r| ≤ ln 2 / 2`, and `e^r` by its Taylor series up to `r^7`, with a
/// remainder below 2e-8.
#[inline(always)]
pub(crate) fn exp_of_negative(x: f32) -> f32 {
    /// Adding and subtracting it rounds to an integer.
    const ROUNDING: f32 = 12_582_912.0; // 1.5 · 2^23
    // Smaller results would be denormal. NaN stays NaN.
    let clamped = if x < -87.0 { -87.0 } else { x };
    let rounded = clamped * std::f32::consts::LOG2_E + ROUNDING;
    let n = rounded - ROUNDING;
    // ln 2 in two parts, the first with few bits, so that its product with n is exact.
    let r = clamped - n * 0.693_359_4;
    let r = r + n * 2.121_944_4e-4;
    let mut series = 1.0 / 5040.0;
    series = series * r + 1.0 / 720.0;
    series = series * r + 1.0 / 120.0;
    series = series * r + 1.0 / 24.0;
    series = series * r + 1.0 / 6.0;
    series = series * r + 0.5;
    series = series * r + 1.0;
    series = series * r + 1.0;
    // The low bits of `rounded` are n, from -126 to 0.
    let exponent = rounded.to_bits().wrapping_sub(ROUNDING.to_bits());
    let power = f32::from_bits(exponent.wrapping_add(127) << 23);
    if x < -87.0 { 0.0 } else { series * power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_below_two_ulps() {
        let mut worst = 0.0_f64;
        for step in 0..=870_000 {
            let x = -(step as f32) * 1e-4;
            let expected = f64::from(x).exp();
            let error = (f64::from(exp_of_negative(x)) - expected).abs() / expected;
            worst = worst.max(error);
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "{worst}");
    }

    #[test]
    fn special_values() {
        assert_eq!(exp_of_negative(0.0), 1.0);
        assert_eq!(exp_of_negative(-200.0), 0.0);
        assert_eq!(exp_of_negative(f32::NEG_INFINITY), 0.0);
        assert!(exp_of_negative(f32::NAN).is_nan());
    }
}
