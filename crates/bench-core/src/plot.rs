//! Log-log plots of time or memory over sequence length.

use zoo_viz::plot::{self, Line, Plot, Scale, Ticks};
use zoo_viz::units::Unit;

use crate::findings::power_law;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    Time,
    Memory,
}

impl Axis {
    fn to_plot_axis(self) -> plot::Axis {
        match self {
            Self::Time => log_axis("time of one pass", Ticks::Decimal, Unit::Seconds, 0.06),
            Self::Memory => log_axis("peak memory", Ticks::Binary, Unit::Bytes, 0.06),
        }
    }
}

fn log_axis(title: &str, ticks: Ticks, unit: Unit, margin: f64) -> plot::Axis {
    plot::Axis {
        title: title.to_owned(),
        scale: Scale::Log,
        ticks,
        unit,
        margin,
        include: None,
    }
}

/// Plots the lines with their scaling exponents in the legend. Points that are not positive, such
/// as memory below the measuring resolution, are left out.
pub fn plot(title: &str, axis: Axis, lines: &[Line]) -> Plot {
    let mut lines = lines.to_vec();
    for line in &mut lines {
        line.markers = true;
        if let Some(law) = power_law(&line.points) {
            line.note = format!(", grows as n^{:.2}", law.exponent);
        }
    }
    let points = lines.iter().flat_map(|line| &line.points);
    let positive = points.filter(|(n, cost)| *n > 0.0 && *cost > 0.0);
    let ticks = Ticks::Fixed(positive.map(|(n, _)| *n).collect());
    let y = axis.to_plot_axis();
    Plot {
        title: format!("{title}: {}", y.title),
        x: log_axis("n", ticks, Unit::Count, 0.03),
        y,
        lines,
        empty_message: "nothing was measured",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(title: &str, axis: Axis, lines: &[Line]) -> String {
        plot(title, axis, lines).to_svg()
    }

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
        for text in ["a &lt;b&gt;, grows as n^2.00", "1,024", "10 ms"] {
            assert!(picture.contains(text), "{text} in {picture}");
        }
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
