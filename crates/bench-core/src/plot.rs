//! Log-log plots of time or memory over sequence length, as standalone SVG.

use zoo_viz::plot::{self, Line, Plot, Scale, Ticks};

use crate::findings::power_law;
use crate::units::{bytes, count, time};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    Time,
    Memory,
}

impl Axis {
    fn to_plot_axis(self) -> plot::Axis {
        let (title, ticks, label): (_, _, fn(f64) -> String) = match self {
            Self::Time => ("time of one pass", Ticks::Decimal, |s| {
                trim_decimals(time(s))
            }),
            Self::Memory => ("peak memory", Ticks::Binary, |size| {
                trim_decimals(bytes(size))
            }),
        };
        plot::Axis {
            title: title.to_owned(),
            scale: Scale::Log,
            ticks,
            label,
            margin: 0.06,
            include: None,
        }
    }
}

/// Removes zero decimals.
fn trim_decimals(text: String) -> String {
    text.replace(".00 ", " ").replace(".0 ", " ")
}

/// Plots the lines with their scaling exponents in the legend. Points that are not positive, such
/// as memory below the measuring resolution, are left out.
pub fn svg(title: &str, axis: Axis, lines: &[Line]) -> String {
    let positive = |line: &Line| -> Vec<(f64, f64)> {
        let points = line.points.iter().copied();
        points.filter(|(n, cost)| *n > 0.0 && *cost > 0.0).collect()
    };
    let lines: Vec<Line> = lines
        .iter()
        .map(|line| Line {
            note: power_law(&positive(line))
                .map(|law| format!(", grows as n^{:.2}", law.exponent))
                .unwrap_or_default(),
            markers: true,
            ..line.clone()
        })
        .collect();
    let lengths = lines.iter().flat_map(positive).map(|point| point.0);
    let y = axis.to_plot_axis();
    Plot {
        title: format!("{title}: {}", y.title),
        x: plot::Axis {
            title: "n".to_owned(),
            scale: Scale::Log,
            ticks: Ticks::Fixed(lengths.collect()),
            label: |n| count(n as usize),
            margin: 0.03,
            include: None,
        },
        y,
        lines,
        empty_message: "nothing was measured",
    }
    .to_svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, points: Vec<(f64, f64)>) -> Line {
        Line {
            name: name.to_owned(),
            points,
            ..Line::default()
        }
    }

    #[test]
    fn plot_has_points_and_scaling_exponent() {
        let points = vec![(256.0, 1e-3), (512.0, 4e-3), (1024.0, 16e-3)];
        let picture = svg("layer", Axis::Time, &[line("a <b>", points)]);
        // Three points, and one in the legend.
        assert_eq!(picture.matches("<circle").count(), 4);
        assert!(
            picture.contains("a &lt;b&gt;, grows as n^2.00"),
            "{picture}"
        );
        assert!(
            picture.contains("1,024") && picture.contains("10 ms"),
            "{picture}"
        );
    }

    #[test]
    fn non_positive_points_are_left_out() {
        // A point in the plot, and one in the legend.
        for (points, circles) in [
            (vec![(256.0, 4096.0)], 2),
            (vec![(256.0, 0.0), (512.0, 4096.0)], 2),
            (vec![(256.0, 0.0)], 0),
            (vec![], 0),
        ] {
            let picture = svg("x", Axis::Memory, &[line("a", points)]);
            assert_eq!(picture.matches("<circle").count(), circles);
            assert_eq!(picture.contains("nothing was measured"), circles == 0);
            assert!(!picture.contains("NaN"), "{picture}");
        }
        assert!(svg("x", Axis::Memory, &[]).contains("nothing was measured"));
    }
}
