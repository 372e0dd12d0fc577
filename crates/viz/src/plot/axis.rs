//! One axis of a plot: where a number lies on it, and which numbers are written there.

/// How numbers are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// The same distance for the same difference.
    #[default]
    Linear,
    /// The same distance for the same factor; only what is above zero has a place.
    Log,
}

/// Which numbers are written at an axis.
#[derive(Debug, Clone, PartialEq)]
pub enum Ticks {
    /// Round ones in tens: 1, 2, 5, 10, ...
    Decimal,
    /// Powers of two.
    Binary,
    /// These.
    At(Vec<f64>),
}

/// An axis of a plot.
#[derive(Debug, Clone)]
pub struct Axis {
    /// What it measures.
    pub title: String,
    /// How it is spread.
    pub scale: Scale,
    /// What is written at it.
    pub ticks: Ticks,
    /// How a number is written.
    pub label: fn(f64) -> String,
    /// The share of the whole that is left free at both ends, so that no line runs along
    /// the frame.
    pub air: f64,
    /// A number that is shown in any case.
    pub with: Option<f64>,
}

/// More would not be read.
const MOST_TICKS: usize = 8;

impl Axis {
    pub(super) fn holds(&self, number: f64) -> bool {
        number.is_finite() && (self.scale == Scale::Linear || number > 0.0)
    }

    /// The ends of an axis that shows all `numbers`, which it holds.
    pub(super) fn ends(&self, numbers: impl Iterator<Item = f64>) -> (f64, f64) {
        let numbers = numbers.chain(self.with);
        let (low, high) = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
            (low.min(x), high.max(x))
        });
        let (from, to) = (self.place(low), self.place(high));
        let air = match to - from {
            // A single number gets a range all the same.
            0.0 if self.scale == Scale::Linear => 0.5 * low.abs().max(1.0),
            0.0 => 0.5,
            whole => self.air * whole,
        };
        (from - air, to + air)
    }

    /// A number on the axis' own scale.
    pub(super) fn place(&self, number: f64) -> f64 {
        match self.scale {
            Scale::Linear => number,
            Scale::Log => number.ln(),
        }
    }

    /// The numbers to write between the ends, which are places.
    pub(super) fn ticks(&self, ends: (f64, f64)) -> Vec<f64> {
        let (low, high) = match self.scale {
            Scale::Linear => ends,
            Scale::Log => (ends.0.exp(), ends.1.exp()),
        };
        let mut ticks = match (&self.ticks, self.scale) {
            (Ticks::At(numbers), _) => numbers.clone(),
            (Ticks::Binary, _) => powers(low, high, 2.0, &[1.0]),
            (Ticks::Decimal, Scale::Linear) => even(low, high),
            (Ticks::Decimal, Scale::Log) => powers(low, high, 10.0, &[1.0, 2.0, 5.0]),
        };
        // Less than a decade may have none of them.
        if ticks.len() < 3 && self.ticks == Ticks::Decimal {
            ticks = even(low, high);
        }
        if matches!(self.ticks, Ticks::At(_)) {
            return ticks;
        }
        // Too many to read: every other, and so on.
        let keep_every = ticks.len().div_ceil(MOST_TICKS).max(1);
        ticks.into_iter().step_by(keep_every).collect()
    }
}

/// Products of a power of the base and a step, from `low` to `high`.
fn powers(low: f64, high: f64, base: f64, steps: &[f64]) -> Vec<f64> {
    let first = low.log(base).floor() as i32;
    let last = high.log(base).ceil() as i32;
    let mut ticks: Vec<f64> = (first..=last)
        .flat_map(|exponent| steps.iter().map(move |step| step * base.powi(exponent)))
        .collect();
    ticks.retain(|tick| (low..=high).contains(tick));
    ticks
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
    // A whole number times a power of ten has fewer digits than a product of steps.
    (first..=last)
        .map(|at| match step < 1.0 {
            true => at as f64 / (1.0 / step).round(),
            false => at as f64 * step,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(scale: Scale, ticks: Ticks) -> Axis {
        Axis {
            title: "x".to_owned(),
            scale,
            ticks,
            label: |x| x.to_string(),
            air: 0.0,
            with: None,
        }
    }

    #[test]
    fn ticks_are_round_and_few() {
        let log = axis(Scale::Log, Ticks::Decimal);
        let ends = |low: f64, high: f64| (low.ln(), high.ln());
        assert_eq!(log.ticks(ends(0.9e-3, 11e-3)).len(), 4);
        let binary = axis(Scale::Log, Ticks::Binary);
        let long = binary.ticks(ends(1e6, 1e11));
        assert!((3..=9).contains(&long.len()), "{long:?}");
        let linear = axis(Scale::Linear, Ticks::Decimal);
        assert_eq!(
            linear.ticks((0.0, 2000.0)),
            [0.0, 500.0, 1000.0, 1500.0, 2000.0]
        );
        assert_eq!(linear.ticks((0.11, 0.52)), [0.2, 0.3, 0.4, 0.5]);
        assert_eq!(linear.ticks((-1.0, 1.0)), [-1.0, -0.5, 0.0, 0.5, 1.0]);
    }

    #[test]
    fn a_log_axis_of_less_than_a_decade_has_ticks() {
        let log = axis(Scale::Log, Ticks::Decimal);
        let ticks = log.ticks((1.45f64.ln(), 1.93f64.ln()));
        assert_eq!(ticks, [1.5, 1.6, 1.7, 1.8, 1.9]);
    }

    #[test]
    fn a_single_number_has_a_range() {
        for scale in [Scale::Linear, Scale::Log] {
            let axis = axis(scale, Ticks::Decimal);
            let (low, high) = axis.ends([4.0].into_iter());
            assert!(low < axis.place(4.0) && axis.place(4.0) < high);
            assert!(!axis.ticks((low, high)).is_empty());
        }
    }

    #[test]
    fn a_log_axis_holds_what_is_above_zero() {
        let log = axis(Scale::Log, Ticks::Decimal);
        assert!(log.holds(1e-9) && !log.holds(0.0) && !log.holds(-1.0) && !log.holds(f64::NAN));
        assert!(axis(Scale::Linear, Ticks::Decimal).holds(-1.0));
    }
}
