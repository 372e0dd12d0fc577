//! A cost against the length on log axes, as an SVG that stands alone.

use zoo_viz::plot::{self, Line, Plot, Scale, Ticks};

use crate::findings::power_law;
use crate::units::{bytes, count, time};

/// What is drawn up the left side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    Time,
    Memory,
}

impl Axis {
    fn drawn(self) -> plot::Axis {
        let (title, ticks, label): (_, _, fn(f64) -> String) = match self {
            Self::Time => ("time of one pass", Ticks::Decimal, |s| short(time(s))),
            Self::Memory => ("peak memory", Ticks::Binary, |size| short(bytes(size))),
        };
        plot::Axis {
            title: title.to_owned(),
            scale: Scale::Log,
            ticks,
            label,
            air: 0.06,
            with: None,
        }
    }
}

/// A round number needs no digits behind the point.
fn short(text: String) -> String {
    text.replace(".00 ", " ").replace(".0 ", " ")
}

/// Draws the lines, each with how it grows; an empty plot says that there is nothing to
/// draw. A cost of nothing, such as memory too little to be noticed, has no place.
pub fn svg(title: &str, axis: Axis, lines: &[Line]) -> String {
    let above_zero = |line: &Line| -> Vec<(f64, f64)> {
        let points = line.points.iter().copied();
        points.filter(|(n, cost)| *n > 0.0 && *cost > 0.0).collect()
    };
    let lines: Vec<Line> = lines
        .iter()
        .map(|line| Line {
            note: power_law(&above_zero(line))
                .map(|law| format!(", grows as n^{:.2}", law.exponent))
                .unwrap_or_default(),
            marked: true,
            ..line.clone()
        })
        .collect();
    let lengths = lines.iter().flat_map(above_zero).map(|point| point.0);
    let y = axis.drawn();
    Plot {
        title: format!("{title}: {}", y.title),
        x: plot::Axis {
            title: "n".to_owned(),
            scale: Scale::Log,
            ticks: Ticks::At(lengths.collect()),
            label: |n| count(n as usize),
            air: 0.03,
            with: None,
        },
        y,
        lines,
        nothing: "nothing was measured",
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
    fn lines_points_and_growth_are_drawn() {
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
    fn nothing_and_a_cost_of_nothing_are_no_points() {
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
