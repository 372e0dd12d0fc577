//! Number formatting.

/// Integer with thousands separators: `16,384`.
pub fn count(n: usize) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Number with three significant digits.
pub fn three_digits(x: f64) -> String {
    match x.abs() {
        size if size < 9.995 => format!("{x:.2}"),
        size if size < 99.95 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}

/// Number with four significant digits, without trailing zeros.
pub fn number(x: f64) -> String {
    if x == 0.0 {
        return "0".to_owned();
    }
    if !x.is_finite() {
        return x.to_string();
    }
    let exponent = x.abs().log10().floor() as i32;
    if !(-4..=5).contains(&exponent) {
        return format!("{x:.3e}").replace(".000e", "e").replace("00e", "e");
    }
    if exponent >= 3 && (x - x.round()).abs() < 1e-9 {
        let sign = if x < 0.0 { "-" } else { "" };
        return format!("{sign}{}", count(x.abs().round() as usize));
    }
    let text = format!("{x:.*}", (3 - exponent).max(0) as usize);
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

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

/// Unit of the values on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number without a unit.
    Number,
    /// An integer.
    Count,
    /// A time in seconds.
    Seconds,
    /// A size in bytes.
    Bytes,
}

impl Unit {
    /// Formats a value.
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Number => number(value),
            Self::Count => count(value.max(0.0) as usize),
            Self::Seconds => time(value),
            Self::Bytes => bytes(value),
        }
    }

    /// Formats the value of a tick: `10 ms` for `10.0 ms`.
    pub(crate) fn tick(self, value: f64) -> String {
        self.format(value).replace(".00 ", " ").replace(".0 ", " ")
    }

    /// Name of the format in the script of charts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Count => "count",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_digits() {
        assert_eq!(three_digits(9.996), "10.0");
        let small = [0.0, 0.0001, 0.5, 1.0, 1.88, -3.25, 12.345678].map(number);
        assert_eq!(small.join(" "), "0 0.0001 0.5 1 1.88 -3.25 12.35");
        let others = [1234.5, 25_000.0, 3e-7, f64::INFINITY].map(number);
        assert_eq!(others.join(" "), "1234 25,000 3e-7 inf");
    }

    #[test]
    fn units_fit_the_magnitude() {
        assert_eq!(time(0.000_84), "840 us");
        assert_eq!(time(0.012_34), "12.3 ms");
        assert_eq!(Unit::Seconds.format(1.5), "1.50 s");
        assert_eq!(Unit::Seconds.tick(0.01), "10 ms");
        assert_eq!(Unit::Bytes.format(512.0 * 1024.0), "512 KiB");
        assert_eq!(bytes(8.0 * 1024f64.powi(3)), "8.00 GiB");
    }

    #[test]
    fn thousands_separators() {
        let grouped = [1, 128, 1024, 16_384, 1_000_000].map(count);
        assert_eq!(grouped, ["1", "128", "1,024", "16,384", "1,000,000"]);
    }
}
