//! How a cost grows with the length, and where one line crosses another.

/// Costs by length: `(n, cost)`, by rising `n`.
pub type Curve = Vec<(f64, f64)>;

/// A power law through some points: `cost ≈ factor · n^exponent`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerLaw {
    /// How the cost grows.
    pub exponent: f64,
    /// The shortest length it was fitted from.
    pub from: f64,
    /// The longest.
    pub to: f64,
}

/// Fits a power law to the longer half of a curve, three lengths or more: at
/// short lengths fixed costs hide how the rest grows. `None` of fewer than three.
pub fn power_law(curve: &[(f64, f64)]) -> Option<PowerLaw> {
    let usable: Vec<_> = curve
        .iter()
        .filter(|(n, cost)| *n > 0.0 && *cost > 0.0)
        .collect();
    if usable.len() < 3 {
        return None;
    }
    let half = &usable[usable.len() - usable.len().div_ceil(2).max(3)..];
    let logs: Vec<(f64, f64)> = half.iter().map(|(n, cost)| (n.ln(), cost.ln())).collect();
    let count = logs.len() as f64;
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (x, y) in logs {
        covariance += (x - mean_x) * (y - mean_y);
        variance += (x - mean_x) * (x - mean_x);
    }
    (variance > 0.0).then(|| PowerLaw {
        exponent: covariance / variance,
        from: half[0].0,
        to: half[half.len() - 1].0,
    })
}

/// A length at which one curve goes below another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossing {
    /// Where, between two lengths that were measured.
    pub n: f64,
    /// Whether the first curve is the lower one from there on.
    pub first_overtakes: bool,
}

/// The last length at which two curves cross, by straight lines on log axes
/// between the lengths both have.
pub fn crossing(first: &[(f64, f64)], second: &[(f64, f64)]) -> Option<Crossing> {
    let common: Vec<(f64, f64)> = first
        .iter()
        .filter_map(|(n, a)| {
            let (_, b) = second.iter().find(|(other, _)| other == n)?;
            Some((n.ln(), a.ln() - b.ln()))
        })
        .collect();
    common
        .windows(2)
        .rev()
        .find(|pair| pair[0].1 * pair[1].1 < 0.0)
        .map(|pair| {
            let [(x0, d0), (x1, d1)] = [pair[0], pair[1]];
            Crossing {
                n: (x0 + (x1 - x0) * d0 / (d0 - d1)).exp(),
                first_overtakes: d1 < 0.0,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(cost: impl Fn(f64) -> f64) -> Curve {
        (7..=14)
            .map(|power| f64::from(1 << power))
            .map(|n| (n, cost(n)))
            .collect()
    }

    #[test]
    fn a_power_is_found_again_under_a_fixed_cost() {
        let fitted = power_law(&curve(|n| 3.0 * n * n + 1e4)).expect("eight lengths");
        assert!((fitted.exponent - 2.0).abs() < 0.01, "{fitted:?}");
        assert_eq!((fitted.from, fitted.to), (2048.0, 16_384.0));
        assert_eq!(power_law(&[(1.0, 1.0), (2.0, 2.0)]), None);
    }

    /// 1e-9·n² meets 1e-6·n at n = 1000.
    #[test]
    fn the_crossing_lies_where_the_costs_are_equal() {
        let (square, line) = (curve(|n| 1e-9 * n * n), curve(|n| 1e-6 * n));
        let found = crossing(&line, &square).expect("they cross");
        assert!((found.n - 1000.0).abs() < 1.0, "{found:?}");
        assert!(found.first_overtakes);
        assert!(
            !crossing(&square, &line)
                .expect("they cross")
                .first_overtakes
        );
        assert_eq!(crossing(&line, &curve(|n| 2e-6 * n)), None);
    }
}
