//! How a loss or another measure went while a model was trained.

use std::fmt::Write;

use crate::plot::{Axis, Line, Plot, Scale, Ticks};
use crate::units::{count, number};

/// What a good value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// As of a loss.
    Lower,
    /// As of an accuracy.
    Higher,
}

/// One curve: training, validation, another run.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// `(step, value)` by rising step. Values that are not finite are not drawn, and the
    /// legend says how many there were.
    pub points: Vec<(f64, f64)>,
}

/// Curves of one measure over the steps of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// What is measured.
    pub title: String,
    /// How values are spread.
    pub scale: Scale,
    /// Which value the legend names as the best.
    pub better: Better,
    /// Training, validation, ...
    pub curves: Vec<Curve>,
}

/// More points than this are put together: the picture is about 500 units wide, and
/// noise would make a solid block of a line.
const MOST_POINTS: usize = 160;

/// Fewer than this are marked, for there are steps between them.
const MOST_MARKS: usize = 40;

impl Curves {
    /// Draws the curves on one plot. Long ones are drawn as the mean of neighbours, with the
    /// smallest and largest of them as a band.
    pub fn to_svg(&self) -> String {
        let axis = |title: &str, scale, label, air, with| Axis {
            title: title.to_owned(),
            scale,
            ticks: Ticks::Decimal,
            label,
            air,
            with,
        };
        let lines = self.curves.iter().enumerate();
        Plot {
            title: self.title.clone(),
            x: axis(
                "step",
                Scale::Linear,
                |step| count(step.max(0.0) as usize),
                0.0,
                Some(0.0),
            ),
            y: axis(&self.title, self.scale, number, 0.06, None),
            lines: lines.map(|(at, curve)| self.line(at, curve)).collect(),
            nothing: "nothing was measured",
        }
        .to_svg()
    }

    fn line(&self, at: usize, curve: &Curve) -> Line {
        let drawn: Vec<(f64, f64)> = curve
            .points
            .iter()
            .copied()
            .filter(|(step, value)| step.is_finite() && value.is_finite())
            .collect();
        let mut line = Line {
            name: curve.name.clone(),
            note: self.note(curve, &drawn),
            colour: at,
            stroke: at,
            marked: drawn.len() <= MOST_MARKS,
            ..Line::default()
        };
        if drawn.len() <= MOST_POINTS {
            line.points = drawn;
            return line;
        }
        for neighbours in drawn.chunks(drawn.len().div_ceil(MOST_POINTS)) {
            let mean = |side: fn(&(f64, f64)) -> f64| {
                neighbours.iter().map(side).sum::<f64>() / neighbours.len() as f64
            };
            let step = mean(|point| point.0);
            let values = || neighbours.iter().map(|point| point.1);
            let (low, high) = (
                values().fold(f64::INFINITY, f64::min),
                values().fold(f64::NEG_INFINITY, f64::max),
            );
            line.points.push((step, mean(|point| point.1)));
            line.band.push((step, low, high));
        }
        line
    }

    /// The best value, and what is not to be seen.
    fn note(&self, curve: &Curve, drawn: &[(f64, f64)]) -> String {
        let mut note = String::new();
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let (word, best) = match self.better {
            Better::Lower => ("lowest", drawn.iter().min_by(by_value)),
            // Of equals the first, as above.
            Better::Higher => ("highest", drawn.iter().rev().max_by(by_value)),
        };
        if let Some((step, value)) = best {
            let step = count(step.max(0.0) as usize);
            let _ = write!(note, ", {word} {} at step {step}", number(*value));
        }
        let lost = curve.points.len() - drawn.len();
        if lost > 0 {
            let _ = write!(note, "; {lost} not a number");
        }
        let below = drawn.iter().filter(|point| point.1 <= 0.0).count();
        if self.scale == Scale::Log && below > 0 {
            let _ = write!(note, "; {below} not above zero");
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
    fn the_legend_names_the_best() {
        let points = vec![(0.0, 3.0), (10.0, 1.0), (20.0, 1.0), (30.0, 3.0)];
        let low = curves(Scale::Linear, Better::Lower, points.clone());
        assert!(low.contains("training, lowest 1 at step 10<"), "{low}");
        let high = curves(Scale::Linear, Better::Higher, points);
        assert!(high.contains("training, highest 3 at step 0<"), "{high}");
    }

    #[test]
    fn what_cannot_be_drawn_is_counted() {
        let points = vec![
            (0.0, f64::NAN),
            (1.0, 0.0),
            (2.0, 2.0),
            (3.0, f64::INFINITY),
        ];
        let svg = curves(Scale::Log, Better::Higher, points);
        assert!(
            svg.contains("highest 2 at step 2; 2 not a number; 1 not above zero"),
            "{svg}"
        );
        assert_eq!(svg.matches("<circle").count(), 2);
    }

    #[test]
    fn many_points_become_a_mean_and_a_band() {
        let noisy = |step: usize| 2.0 + if step.is_multiple_of(2) { 0.5 } else { -0.5 };
        let points = (0..100_000)
            .map(|step| (step as f64, noisy(step)))
            .collect();
        let svg = curves(Scale::Linear, Better::Lower, points);
        assert!(svg.len() < 20_000, "{} bytes", svg.len());
        assert_eq!(svg.matches("<polygon").count(), 1);
        assert!(!svg.contains("<circle"));
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        assert!(curves(Scale::Log, Better::Lower, vec![]).contains("nothing was measured"));
    }
}
