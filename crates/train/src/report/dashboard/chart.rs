//! A chart over steps, with a linear or logarithmic y axis.

use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType};

pub(super) struct Curve<'a> {
    pub(super) name: &'a str,
    pub(super) points: &'a [(f64, f64)],
    pub(super) color: Color,
    pub(super) marker: Marker,
}

/// The curves as points on the chart's axes: logarithms on a logarithmic one.
pub(super) struct Scaled {
    points: Vec<Vec<(f64, f64)>>,
    bounds: [f64; 2],
    is_log: bool,
}

impl Scaled {
    /// Without the points that cannot be shown: NaN, infinite, or not positive on a logarithmic
    /// axis.
    pub(super) fn new(curves: &[Curve<'_>], is_log: bool) -> Self {
        let scale = |value: f64| if is_log { value.log10() } else { value };
        let scaled = |curve: &Curve<'_>| {
            let points = curve.points.iter().map(|(step, y)| (*step, scale(*y)));
            points.filter(|(_, y)| y.is_finite()).collect::<Vec<_>>()
        };
        let points: Vec<_> = curves.iter().map(scaled).collect();
        let values = points.iter().flatten().map(|(_, y)| *y);
        let (min, max) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), y| {
            (min.min(y), max.max(y))
        });
        let bounds = match max - min {
            range if range > 0.0 => [min, max],
            // A single value, in the middle of the axis.
            0.0 if min != 0.0 => [min - min.abs() / 2.0, max + max.abs() / 2.0],
            // Zero, or no values.
            _ => [0.0, 1.0],
        };
        Self {
            points,
            bounds,
            is_log,
        }
    }

    /// The values at the bottom, the middle and the top of the y axis.
    pub(super) fn labels(&self) -> [String; 3] {
        let [min, max] = self.bounds;
        [min, (min + max) / 2.0, max].map(|y| {
            let value = if self.is_log { 10f64.powf(y) } else { y };
            short_number(value)
        })
    }

    pub(super) fn chart<'a>(
        &'a self,
        title: Line<'a>,
        curves: &[Curve<'a>],
        step: usize,
    ) -> Chart<'a> {
        let datasets = curves.iter().zip(&self.points).map(|(curve, points)| {
            // A line needs two points.
            let graph_type = match points.len() {
                1 => GraphType::Scatter,
                _ => GraphType::Line,
            };
            Dataset::default()
                .marker(curve.marker)
                .graph_type(graph_type)
                .style(Style::new().fg(curve.color))
                .data(points)
        });
        let last = step.max(2);
        // In the label and not as a title, which would cover the end of the curves.
        let steps = [
            "0".to_owned(),
            (last / 2).to_string(),
            format!("step {last}"),
        ];
        let dim = Style::new().dim();
        Chart::new(datasets.collect())
            .block(Block::bordered().title(title))
            // The title names the curves.
            .legend_position(None)
            .x_axis(
                Axis::default()
                    .style(dim)
                    .bounds([0.0, last as f64])
                    .labels(steps),
            )
            .y_axis(
                Axis::default()
                    .style(dim)
                    .bounds(self.bounds)
                    .labels(self.labels()),
            )
    }
}

/// At most seven characters for values of common size.
fn short_number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if (1e-3..10.0).contains(&size) => format!("{value:.3}"),
        size if (10.0..1000.0).contains(&size) => format!("{value:.1}"),
        size if (1000.0..1e6).contains(&size) => format!("{value:.0}"),
        _ => format!("{value:.1e}"),
    }
}
