//! Numbers the way people read them.

/// A time in the unit that fits it: `840 us`, `12.3 ms`, `1.50 s`.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{} us", three_digits(s * 1e6)),
        s if s < 1.0 => format!("{} ms", three_digits(s * 1e3)),
        s => format!("{} s", three_digits(s)),
    }
}

/// Bytes in the unit that fits them: `512 KiB`, `12.0 MiB`, `8.00 GiB`.
pub fn bytes(bytes: f64) -> String {
    const KIB: f64 = 1024.0;
    match bytes {
        b if b < KIB => format!("{b:.0} B"),
        b if b < KIB.powi(2) => format!("{} KiB", three_digits(b / KIB)),
        b if b < KIB.powi(3) => format!("{} MiB", three_digits(b / KIB.powi(2))),
        b => format!("{} GiB", three_digits(b / KIB.powi(3))),
    }
}

/// A count with its thousands apart: `16,384`.
pub fn count(n: usize) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number with three digits that mean something, and no more.
pub fn three_digits(x: f64) -> String {
    match x.abs() {
        size if size < 9.995 => format!("{x:.2}"),
        size if size < 99.95 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_number() {
        assert_eq!(time(0.000_84), "840 us");
        assert_eq!(time(0.012_34), "12.3 ms");
        assert_eq!(time(1.5), "1.50 s");
        assert_eq!(bytes(512.0 * 1024.0), "512 KiB");
        assert_eq!(bytes(8.0 * 1024f64.powi(3)), "8.00 GiB");
        assert_eq!(three_digits(9.996), "10.0");
    }

    #[test]
    fn thousands_are_set_apart() {
        let grouped = [1, 128, 1024, 16_384, 1_000_000].map(count);
        assert_eq!(grouped, ["1", "128", "1,024", "16,384", "1,000,000"]);
    }
}
