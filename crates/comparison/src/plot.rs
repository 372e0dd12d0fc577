//! A cost against the length on log axes, as an SVG that stands alone.

use std::fmt::Write;

use crate::fit::power_law;
use crate::units::{bytes, count, time};

/// What is drawn up the left side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Seconds.
    Time,
    /// Bytes.
    Memory,
}

impl Axis {
    fn title(self) -> &'static str {
        match self {
            Self::Time => "time of one pass",
            Self::Memory => "peak memory",
        }
    }

    fn label(self, value: f64) -> String {
        let text = match self {
            Self::Time => time(value),
            Self::Memory => bytes(value),
        };
        // A round number needs no digits behind the point.
        text.replace(".00 ", " ").replace(".0 ", " ")
    }

    /// Round numbers from `low` to `high`, about one for each step of the eye.
    fn ticks(self, low: f64, high: f64) -> Vec<f64> {
        let (base, steps): (f64, &[f64]) = match self {
            Self::Time => (10.0, &[1.0, 2.0, 5.0]),
            Self::Memory => (2.0, &[1.0]),
        };
        let mut ticks = Vec::new();
        let mut power = base.powf(low.log(base).floor());
        while power <= high {
            ticks.extend(steps.iter().map(|step| step * power));
            power *= base;
        }
        ticks.retain(|tick| (low..=high).contains(tick));
        // Too many to read: every other, and so on.
        let keep_every = ticks.len().div_ceil(8).max(1);
        ticks.into_iter().step_by(keep_every).collect()
    }
}

/// One line of a plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Which colour, counted over mechanisms.
    pub colour: usize,
    /// Which stroke, counted over backends.
    pub stroke: usize,
    /// `(n, cost)` by rising `n`.
    pub points: Vec<(f64, f64)>,
}

/// Sizes in the SVG's own units.
const WIDTH: f64 = 620.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 38.0;
const BOTTOM: f64 = 46.0;
const LEGEND_LINE: f64 = 19.0;

/// Colours that differ for eyes that see fewer of them (Okabe and Ito 2008, the
/// yellow left out: it is too pale on white).
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888",
];
const STROKES: [&str; 5] = ["", "7 4", "2 3", "10 3 2 3", "1 5"];

/// Draws the lines; an empty plot says that there is nothing to draw.
pub fn svg(title: &str, axis: Axis, lines: &[Line]) -> String {
    // A cost of nothing, such as memory too little to be noticed, has no place on
    // a log axis.
    let lines: Vec<Line> = lines
        .iter()
        .map(|line| Line {
            points: line
                .points
                .iter()
                .copied()
                .filter(|(n, cost)| *n > 0.0 && *cost > 0.0)
                .collect(),
            ..line.clone()
        })
        .collect();
    let drawn: Vec<&Line> = lines
        .iter()
        .filter(|line| !line.points.is_empty())
        .collect();
    let height = HEIGHT + LEGEND_LINE * drawn.len() as f64;
    let mut svg = String::new();
    let _ = write!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">
<style>
.zoo-text {{ font: 12px system-ui, sans-serif; fill: #333 }}
.zoo-title {{ font: 600 14px system-ui, sans-serif; fill: #111 }}
.zoo-grid {{ stroke: #8884; stroke-width: 1 }}
@media (prefers-color-scheme: dark) {{ .zoo-text {{ fill: #ccc }} .zoo-title {{ fill: #eee }} }}
</style>
<text class="zoo-title" x="{LEFT}" y="20">{label}</text>
"#,
        label = escape(&format!("{title}: {}", axis.title())),
    );
    let costs = || drawn.iter().flat_map(|line| &line.points);
    if costs().next().is_none() {
        let _ = writeln!(
            svg,
            r#"<text class="zoo-text" x="{LEFT}" y="{}">nothing was measured</text>
</svg>"#,
            HEIGHT / 2.0
        );
        return svg;
    }
    let span = |numbers: &mut dyn Iterator<Item = f64>| {
        numbers.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), x| {
            (low.min(x), high.max(x))
        })
    };
    let (n_low, n_high) = span(&mut costs().map(|point| point.0));
    let (low, high) = span(&mut costs().map(|point| point.1));
    // Air above and below, and a range even for a single point.
    let (n_low, n_high) = (n_low / 1.15, n_high * 1.15);
    let (low, high) = (low / 1.4, high * 1.4);
    let x =
        |n: f64| LEFT + (n.ln() - n_low.ln()) / (n_high.ln() - n_low.ln()) * (WIDTH - LEFT - RIGHT);
    let y = |cost: f64| {
        let share = (cost.ln() - low.ln()) / (high.ln() - low.ln());
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    };

    for tick in axis.ticks(low, high) {
        let (at, label) = (y(tick), axis.label(tick));
        let _ = writeln!(
            svg,
            r#"<line class="zoo-grid" x1="{LEFT}" x2="{x2}" y1="{at:.1}" y2="{at:.1}"/><text class="zoo-text" x="{tx}" y="{ty:.1}" text-anchor="end">{label}</text>"#,
            x2 = WIDTH - RIGHT,
            tx = LEFT - 8.0,
            ty = at + 4.0,
        );
    }
    let mut lengths: Vec<f64> = costs().map(|point| point.0).collect();
    lengths.sort_by(f64::total_cmp);
    lengths.dedup();
    // Labels that would run into each other are left out.
    let mut last_label = f64::NEG_INFINITY;
    for n in lengths {
        let at = x(n);
        let _ = writeln!(
            svg,
            r#"<line class="zoo-grid" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{}"/>"#,
            HEIGHT - BOTTOM
        );
        if at - last_label > 44.0 {
            last_label = at;
            let _ = writeln!(
                svg,
                r#"<text class="zoo-text" x="{at:.1}" y="{}" text-anchor="middle">{}</text>"#,
                HEIGHT - BOTTOM + 17.0,
                count(n as usize)
            );
        }
    }
    let _ = writeln!(
        svg,
        r#"<text class="zoo-text" x="{}" y="{}" text-anchor="middle">n</text>"#,
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - BOTTOM + 34.0
    );

    for (at, line) in drawn.iter().enumerate() {
        let colour = COLOURS[line.colour % COLOURS.len()];
        let dashes = STROKES[line.stroke % STROKES.len()];
        let path: Vec<String> = line
            .points
            .iter()
            .map(|(n, cost)| format!("{:.1},{:.1}", x(*n), y(*cost)))
            .collect();
        let _ = writeln!(
            svg,
            r#"<polyline fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}" points="{}"/>"#,
            path.join(" ")
        );
        for (n, cost) in &line.points {
            let title = format!(
                "{} at n = {}: {}",
                escape(&line.name),
                count(*n as usize),
                axis.label(*cost)
            );
            svg.push_str(&mark(line.colour, x(*n), y(*cost), &title));
        }
        let key = HEIGHT + LEGEND_LINE * at as f64 - 2.0;
        let growth = power_law(&line.points)
            .map(|law| format!(", grows as n^{:.2}", law.exponent))
            .unwrap_or_default();
        let _ = writeln!(
            svg,
            r#"<line x1="{LEFT}" x2="{x2}" y1="{key}" y2="{key}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/><text class="zoo-text" x="{tx}" y="{ty}">{name}{growth}</text>"#,
            x2 = LEFT + 34.0,
            tx = LEFT + 42.0,
            ty = key + 4.0,
            name = escape(&line.name),
        );
        svg.push_str(&mark(line.colour, LEFT + 17.0, key, &escape(&line.name)));
    }
    svg.push_str("</svg>\n");
    svg
}

/// A point of a line: when colours begin again, another shape.
fn mark(colour: usize, x: f64, y: f64, title: &str) -> String {
    let (round, colour) = (colour / COLOURS.len(), COLOURS[colour % COLOURS.len()]);
    let shape = match round {
        0 => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{colour}">"#),
        1 => format!(
            r#"<rect x="{:.1}" y="{:.1}" width="8" height="8" fill="{colour}">"#,
            x - 4.0,
            y - 4.0
        ),
        _ => format!(
            r#"<path d="M {x:.1} {:.1} l 5 9 h -10 z" fill="{colour}">"#,
            y - 5.5
        ),
    };
    let name = ["circle", "rect", "path"][round.min(2)];
    format!("{shape}<title>{title}</title></{name}>\n")
}

/// Text as it stands in HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, points: Vec<(f64, f64)>) -> Line {
        Line {
            name: name.to_owned(),
            colour: 0,
            stroke: 0,
            points,
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
    fn colours_that_begin_again_have_another_shape() {
        let points = vec![(256.0, 1e-3)];
        let lines = [0, COLOURS.len(), 2 * COLOURS.len()].map(|colour| Line {
            colour,
            ..line("a", points.clone())
        });
        let picture = svg("x", Axis::Time, &lines);
        for shape in ["<circle", "<rect", "<path"] {
            assert!(picture.matches(shape).count() >= 2, "{shape}: {picture}");
        }
    }

    #[test]
    fn longer_is_further_right_and_slower_is_higher() {
        let picture = svg(
            "x",
            Axis::Time,
            &[line("a", vec![(256.0, 1.0), (512.0, 2.0)])],
        );
        let number = |text: &str, name: &str| -> f64 {
            let rest = text
                .split_once(&format!("{name}=\""))
                .expect("an attribute")
                .1;
            rest.split_once('"')
                .expect("its end")
                .0
                .parse()
                .expect("a number")
        };
        let circles: Vec<&str> = picture.split("<circle").skip(1).collect();
        assert!(number(circles[0], "cx") < number(circles[1], "cx"));
        assert!(number(circles[0], "cy") > number(circles[1], "cy"));
    }

    #[test]
    fn nothing_and_a_single_point_are_drawn_too() {
        assert!(svg("x", Axis::Memory, &[]).contains("nothing was measured"));
        let single = svg("x", Axis::Memory, &[line("a", vec![(256.0, 4096.0)])]);
        assert!(
            single.contains("<circle") && !single.contains("NaN"),
            "{single}"
        );
    }

    #[test]
    fn a_cost_of_nothing_is_not_drawn() {
        let points = vec![(256.0, 0.0), (512.0, 4096.0)];
        let picture = svg("x", Axis::Memory, &[line("a", points)]);
        assert_eq!(picture.matches("<circle").count(), 2);
        let nothing = svg("x", Axis::Memory, &[line("a", vec![(256.0, 0.0)])]);
        assert!(nothing.contains("nothing was measured"));
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(Axis::Time.ticks(0.9e-3, 11e-3).len(), 4);
        let long = Axis::Memory.ticks(1e6, 1e11);
        assert!((3..=9).contains(&long.len()), "{long:?}");
    }
}
