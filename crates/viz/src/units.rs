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
    fn thousands_separators() {
        let grouped = [1, 128, 1024, 16_384, 1_000_000].map(count);
        assert_eq!(grouped, ["1", "128", "1,024", "16,384", "1,000,000"]);
    }
}
