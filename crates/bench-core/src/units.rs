//! Human-readable times and sizes.

pub use zoo_viz::units::{count, three_digits};

/// Formats a time: `840 us`, `12.3 ms`, `1.50 s`.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{} us", three_digits(s * 1e6)),
        s if s < 1.0 => format!("{} ms", three_digits(s * 1e3)),
        s => format!("{} s", three_digits(s)),
    }
}

/// Formats a size: `512 KiB`, `12.0 MiB`, `8.00 GiB`.
pub fn bytes(bytes: f64) -> String {
    const KIB: f64 = 1024.0;
    match bytes {
        b if b < KIB => format!("{b:.0} B"),
        b if b < KIB.powi(2) => format!("{} KiB", three_digits(b / KIB)),
        b if b < KIB.powi(3) => format!("{} MiB", three_digits(b / KIB.powi(2))),
        b => format!("{} GiB", three_digits(b / KIB.powi(3))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_magnitude() {
        assert_eq!(time(0.000_84), "840 us");
        assert_eq!(time(0.012_34), "12.3 ms");
        assert_eq!(time(1.5), "1.50 s");
        assert_eq!(bytes(512.0 * 1024.0), "512 KiB");
        assert_eq!(bytes(8.0 * 1024f64.powi(3)), "8.00 GiB");
    }
}
