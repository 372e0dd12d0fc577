//! Training curves: loss and metrics by step.

use std::fmt::Write;

use crate::plot::{Axis, Line, Plot, Scale, Ticks};
use crate::units::{Unit, count, number};

/// Whether lower or higher values are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// For example a loss.
    Lower,
    /// For example an accuracy.
    Higher,
}

/// One curve, for example of the training loss.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// `(step, value)` by increasing step. Non-finite values are not drawn, but counted in the
    /// legend.
    pub points: Vec<(f64, f64)>,
}

/// Curves of one metric in one plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// Name of the metric.
    pub title: String,
    /// Scale of the y axis.
    pub scale: Scale,
    /// Which value the legend reports as the best.
    pub better: Better,
    /// Curves, for example training and validation.
    pub curves: Vec<Curve>,
}

/// Longer curves are averaged: the plot is about 500 units wide, and noise would fill the area.
const MAX_POINTS: usize = 160;

/// Curves with at most this many points have markers.
const MAX_MARKERS: usize = 40;

impl Curves {
    /// Draws the curves in one plot.
    pub fn to_svg(&self) -> String {
        self.to_plot().to_svg()
    }

    /// The curves in one plot. Long curves are averaged over neighbouring points, with a band from
    /// minimum to maximum.
    pub fn to_plot(&self) -> Plot {
        let y = Axis {
            title: self.title.clone(),
            scale: self.scale,
            ticks: Ticks::Decimal,
            unit: Unit::Number,
            margin: 0.06,
            include: None,
        };
        let x = Axis {
            title: "step".to_owned(),
            scale: Scale::Linear,
            unit: Unit::Count,
            margin: 0.0,
            include: Some(0.0),
            ..y.clone()
        };
        let lines = self.curves.iter().enumerate();
        Plot {
            title: self.title.clone(),
            x,
            y,
            lines: lines.map(|(i, curve)| self.line(i, curve)).collect(),
            empty_message: "no data",
        }
    }

    fn line(&self, i: usize, curve: &Curve) -> Line {
        let mut finite = curve.points.clone();
        finite.retain(|(step, value)| step.is_finite() && value.is_finite());
        let mut line = Line {
            name: curve.name.clone(),
            note: self.note(curve, &finite),
            colour: i,
            stroke: i,
            markers: finite.len() <= MAX_MARKERS,
            ..Line::default()
        };
        if finite.len() <= MAX_POINTS {
            line.points = finite;
            return line;
        }
        for neighbours in finite.chunks(finite.len().div_ceil(MAX_POINTS)) {
            let mean = |side: fn(&(f64, f64)) -> f64| {
                neighbours.iter().map(side).sum::<f64>() / neighbours.len() as f64
            };
            let step = mean(|point| point.0);
            let values = || neighbours.iter().map(|point| point.1);
            let low = values().fold(f64::INFINITY, f64::min);
            let high = values().fold(f64::NEG_INFINITY, f64::max);
            line.points.push((step, mean(|point| point.1)));
            line.band.push((step, low, high));
        }
        line
    }

    /// The best value, and the number of values that are not drawn.
    fn note(&self, curve: &Curve, finite: &[(f64, f64)]) -> String {
        let mut note = String::new();
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let (name, best) = match self.better {
            Better::Lower => ("lowest", finite.iter().min_by(by_value)),
            // Ties go to the first, as above.
            Better::Higher => ("highest", finite.iter().rev().max_by(by_value)),
        };
        if let Some((step, value)) = best {
            let step = count(step.max(0.0) as usize);
            let _ = write!(note, ", {name} {} at step {step}", number(*value));
        }
        let non_finite = curve.points.len() - finite.len();
        if non_finite > 0 {
            let _ = write!(note, "; {non_finite} non-finite");
        }
        let below = finite.iter().filter(|point| point.1 <= 0.0).count();
        if self.scale == Scale::Log && below > 0 {
            let _ = write!(note, "; {below} not positive");
        }
        note
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves(scale: Scale, better: Better, points: Vec<(f64, f64)>) -> String {
        Curves {
            title: "loss".to_owned(),
            scale,
            better,
            curves: vec![Curve {
                name: "training".to_owned(),
                points,
            }],
        }
        .to_svg()
    }

    #[test]
    fn legend_reports_the_best_value() {
        let points = vec![(0.0, 3.0), (10.0, 1.0), (20.0, 1.0), (30.0, 3.0)];
        let low = curves(Scale::Linear, Better::Lower, points.clone());
        assert!(low.contains("training, lowest 1 at step 10<"), "{low}");
        let high = curves(Scale::Linear, Better::Higher, points);
        assert!(high.contains("training, highest 3 at step 0<"), "{high}");
    }

    #[test]
    fn values_that_are_not_drawn_are_counted() {
        let values = [f64::NAN, 0.0, 2.0, f64::INFINITY];
        let points = [0.0, 1.0, 2.0, 3.0].into_iter().zip(values).collect();
        let svg = curves(Scale::Log, Better::Higher, points);
        let note = "highest 2 at step 2; 2 non-finite; 1 not positive";
        assert!(svg.contains(note), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(curves(Scale::Log, Better::Lower, vec![]).contains("no data"));
    }

    #[test]
    fn long_curves_are_averaged_with_a_band() {
        let noisy = |step: usize| 2.0 + if step.is_multiple_of(2) { 0.5 } else { -0.5 };
        let points = (0..100_000).map(|step| (step as f64, noisy(step)));
        let svg = curves(Scale::Linear, Better::Lower, points.collect());
        assert!(svg.len() < 20_000, "{} bytes", svg.len());
        assert_eq!(svg.matches("<polygon").count(), 1);
        assert!(!svg.contains("<circle"));
    }
}
