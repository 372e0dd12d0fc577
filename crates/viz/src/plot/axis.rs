//! Axes of a plot: scales and ticks.

use crate::units::Unit;

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Linear scale.
    #[default]
    Linear,
    /// Logarithmic scale, for positive values only.
    Log,
}

/// Tick positions of an axis.
#[derive(Debug, Clone, PartialEq)]
pub enum Ticks {
    /// Round decimal numbers: 1, 2, 5, 10, ...
    Decimal,
    /// Powers of two.
    Binary,
    /// Given values.
    Fixed(Vec<f64>),
}

/// An axis of a plot.
#[derive(Debug, Clone)]
pub struct Axis {
    /// Axis title.
    pub title: String,
    /// Scale.
    pub scale: Scale,
    /// Tick positions.
    pub ticks: Ticks,
    /// Unit of the values.
    pub unit: Unit,
    /// Margin at both ends, as a fraction of the range.
    pub margin: f64,
    /// A value that is always in the range.
    pub include: Option<f64>,
}

const MAX_TICKS: usize = 8;

impl Axis {
    pub(crate) fn contains(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }

    /// Range of the axis, on its scale, that includes all values.
    pub(super) fn range(&self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        let values = values.chain(self.include);
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
            (low.min(x), high.max(x))
        });
        let (from, to) = (self.transform(low), self.transform(high));
        let margin = match to - from {
            // A single value also gets a range.
            0.0 if self.scale == Scale::Linear => 0.5 * low.abs().max(1.0),
            0.0 => 0.5,
            span => self.margin * span,
        };
        (from - margin, to + margin)
    }

    /// Maps a value to the scale of the axis.
    pub(super) fn transform(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log => value.ln(),
        }
    }

    /// Tick values within a range on the scale of the axis.
    pub(super) fn ticks(&self, range: (f64, f64)) -> Vec<f64> {
        let (low, high) = match self.scale {
            Scale::Linear => range,
            Scale::Log => (range.0.exp(), range.1.exp()),
        };
        let mut ticks = match (&self.ticks, self.scale) {
            (Ticks::Fixed(values), _) => return values.clone(),
            (Ticks::Binary, _) => powers(low, high, 2.0, &[1.0]),
            (Ticks::Decimal, Scale::Linear) => even(low, high),
            (Ticks::Decimal, Scale::Log) => powers(low, high, 10.0, &[1.0, 2.0, 5.0]),
        };
        // A range of less than a decade may contain none of them.
        if ticks.len() < 3 && self.ticks == Ticks::Decimal {
            ticks = even(low, high);
        }
        // Too many ticks: every second one, and so on.
        let keep_every = ticks.len().div_ceil(MAX_TICKS).max(1);
        ticks.into_iter().step_by(keep_every).collect()
    }
}

/// Powers of the base times each step, from `low` to `high`.
fn powers(low: f64, high: f64, base: f64, steps: &[f64]) -> Vec<f64> {
    let first = low.log(base).floor() as i32;
    let last = high.log(base).ceil() as i32;
    let ticks = (first..=last)
        .flat_map(|exponent| steps.iter().map(move |step| step * base.powi(exponent)));
    ticks.filter(|tick| (low..=high).contains(tick)).collect()
}

/// Multiples of a round step, from `low` to `high`.
fn even(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    let tick = |i: i64| {
        if step >= 1.0 {
            return i as f64 * step;
        }
        // Dividing by an integer is more exact than multiplying by a decimal step.
        i as f64 / (1.0 / step).round()
    };
    (first..=last).map(tick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(scale: Scale, ticks: Ticks) -> Axis {
        Axis {
            title: "x".to_owned(),
            scale,
            ticks,
            unit: Unit::Number,
            margin: 0.0,
            include: None,
        }
    }

    #[test]
    fn ticks_are_round_and_few() {
        let log = axis(Scale::Log, Ticks::Decimal);
        let range = |low: f64, high: f64| (low.ln(), high.ln());
        assert_eq!(log.ticks(range(0.9e-3, 11e-3)).len(), 4);
        let binary = axis(Scale::Log, Ticks::Binary);
        let long = binary.ticks(range(1e6, 1e11));
        assert!((3..=9).contains(&long.len()), "{long:?}");
        let linear = axis(Scale::Linear, Ticks::Decimal);
        let large = [0.0, 500.0, 1000.0, 1500.0, 2000.0];
        assert_eq!(linear.ticks((0.0, 2000.0)), large);
        assert_eq!(linear.ticks((0.11, 0.52)), [0.2, 0.3, 0.4, 0.5]);
        assert_eq!(linear.ticks((-1.0, 1.0)), [-1.0, -0.5, 0.0, 0.5, 1.0]);
        // Less than a decade.
        let ticks = log.ticks(range(1.45, 1.93));
        assert_eq!(ticks, [1.5, 1.6, 1.7, 1.8, 1.9]);
    }

    #[test]
    fn single_value_has_a_range() {
        for scale in [Scale::Linear, Scale::Log] {
            let axis = axis(scale, Ticks::Decimal);
            let (low, high) = axis.range([4.0].into_iter());
            assert!(low < axis.transform(4.0) && axis.transform(4.0) < high);
            assert!(!axis.ticks((low, high)).is_empty());
        }
    }

    #[test]
    fn log_axis_contains_positive_values() {
        let values = [1e-9, 0.0, -1.0, f64::NAN];
        let contained = |scale| values.map(|value| axis(scale, Ticks::Decimal).contains(value));
        assert_eq!(contained(Scale::Log), [true, false, false, false]);
        assert_eq!(contained(Scale::Linear), [true, true, true, false]);
    }
}
