//! Line plots as standalone SVGs for light and dark themes.

mod axis;
mod labels;

use std::fmt::Write;

pub use axis::{Axis, Scale, Ticks};

use crate::escape;
use crate::text::{STYLE, truncated};

/// One line of a plot.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Text after the name in the legend.
    pub note: String,
    /// Heading of the lines that belong together in the legend of a page; may be empty.
    pub group: String,
    /// Index of the colour; lines with the same index have the same colour.
    pub colour: usize,
    /// Index of the dash pattern.
    pub stroke: usize,
    /// Points by increasing `x`.
    pub points: Vec<(f64, f64)>,
    /// Band around the line, `(x, low, high)` by increasing `x`; may be empty.
    pub band: Vec<(f64, f64, f64)>,
    /// Whether points have markers.
    pub markers: bool,
    /// Text beside the last point; may be empty.
    pub label: String,
    /// Whether others are compared with this line.
    pub strong: bool,
}

/// A line plot.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Title above the plot.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Lines.
    pub lines: Vec<Line>,
    /// Text of a plot without points.
    pub empty_message: &'static str,
}

const WIDTH: f64 = 620.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 38.0;
const BOTTOM: f64 = 46.0;
const LEGEND_LINE: f64 = 19.0;
/// Minimum distance of labels of the horizontal axis.
const LABEL_WIDTH: f64 = 44.0;
/// Maximum length of a legend line, at about 6 units per character.
const MAX_LEGEND_LEN: usize = 84;

/// Colour-blind safe palette (Okabe and Ito 2008) without yellow, which is too pale on white.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888",
];
const STROKES: [&str; 5] = ["", "7 4", "2 3", "10 3 2 3", "1 5"];

/// The first colour is too dark for a dark theme.
const LINES: &str = "
.zoo-grid { stroke: #8884; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
[stroke=\"#0072b2\"] { stroke: #3ea0e0 } [fill=\"#0072b2\"] { fill: #3ea0e0 }
}
";

impl Plot {
    /// Renders the plot. Points outside of the domain of an axis are skipped.
    pub fn to_svg(&self) -> String {
        let contains = |x: f64, y: f64| self.x.contains(x) && self.y.contains(y);
        let mut lines = self.lines.clone();
        for line in &mut lines {
            line.points.retain(|(x, y)| contains(*x, *y));
            let band = |(x, low, high): &(f64, f64, f64)| contains(*x, *low) && contains(*x, *high);
            line.band.retain(band);
        }
        lines.retain(|line| !line.points.is_empty());
        let height = HEIGHT + LEGEND_LINE * lines.len() as f64 + 8.0;
        let title = escape(&self.title);
        let mut svg = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">
<style>{STYLE}{LINES}</style>
<text class="zoo-title" x="{LEFT}" y="20">{title}</text>
"#
        );
        if lines.is_empty() {
            let _ = writeln!(
                svg,
                r#"<text class="zoo-text" x="{LEFT}" y="{}">{}</text>"#,
                HEIGHT / 2.0,
                escape(self.empty_message)
            );
        } else {
            let frame = Frame::new(self, &lines);
            frame.draw_axes(&mut svg);
            // Bands are below all lines.
            for line in &lines {
                frame.draw_band(&mut svg, line);
            }
            for (i, line) in lines.iter().enumerate() {
                frame.draw_line(&mut svg, line);
                draw_legend(&mut svg, line, i);
            }
            labels::draw(&mut svg, &frame, &lines);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

struct Frame<'a> {
    plot: &'a Plot,
    x_range: (f64, f64),
    y_range: (f64, f64),
}

impl<'a> Frame<'a> {
    fn new(plot: &'a Plot, lines: &[Line]) -> Self {
        let points = || lines.iter().flat_map(|line| &line.points);
        let bands = || lines.iter().flat_map(|line| &line.band);
        let low_and_high = bands().flat_map(|(_, low, high)| [*low, *high]);
        let values = points().map(|point| point.1).chain(low_and_high);
        Self {
            plot,
            x_range: plot.x.range(points().map(|point| point.0)),
            y_range: plot.y.range(values),
        }
    }

    fn x(&self, value: f64) -> f64 {
        let (low, high) = self.x_range;
        LEFT + (self.plot.x.transform(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let (low, high) = self.y_range;
        let fraction = (self.plot.y.transform(value) - low) / (high - low);
        HEIGHT - BOTTOM - fraction * (HEIGHT - TOP - BOTTOM)
    }

    fn draw_axes(&self, svg: &mut String) {
        for tick in self.plot.y.ticks(self.y_range) {
            let (y, label) = (self.y(tick), escape(&self.plot.y.unit.tick(tick)));
            let _ = writeln!(
                svg,
                r#"<line class="zoo-grid" x1="{LEFT}" x2="{x2}" y1="{y:.1}" y2="{y:.1}"/><text class="zoo-text" x="{tx}" y="{ty:.1}" text-anchor="end">{label}</text>"#,
                x2 = WIDTH - RIGHT,
                tx = LEFT - 8.0,
                ty = y + 4.0,
            );
        }
        let mut ticks = self.plot.x.ticks(self.x_range);
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        // Labels that would overlap are skipped.
        let mut last_label = f64::NEG_INFINITY;
        for tick in ticks {
            let x = self.x(tick);
            let _ = writeln!(
                svg,
                r#"<line class="zoo-grid" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{}"/>"#,
                HEIGHT - BOTTOM
            );
            if x - last_label > LABEL_WIDTH {
                last_label = x;
                let _ = writeln!(
                    svg,
                    r#"<text class="zoo-text" x="{x:.1}" y="{}" text-anchor="middle">{}</text>"#,
                    HEIGHT - BOTTOM + 17.0,
                    escape(&self.plot.x.unit.tick(tick))
                );
            }
        }
        let _ = writeln!(
            svg,
            r#"<text class="zoo-text" x="{}" y="{}" text-anchor="middle">{}</text>"#,
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - BOTTOM + 34.0,
            escape(&self.plot.x.title)
        );
    }

    fn draw_band(&self, svg: &mut String, line: &Line) {
        if line.band.is_empty() {
            return;
        }
        let above = line.band.iter().map(|(x, _, high)| (*x, *high));
        let below = line.band.iter().rev().map(|(x, low, _)| (*x, *low));
        let _ = writeln!(
            svg,
            r#"<polygon fill="{}" fill-opacity="0.18" points="{}"/>"#,
            COLOURS[line.colour % COLOURS.len()],
            self.path(above.chain(below))
        );
    }

    fn draw_line(&self, svg: &mut String, line: &Line) {
        let _ = writeln!(
            svg,
            r#"<polyline fill="none" stroke="{}" stroke-width="2" stroke-linejoin="round" stroke-dasharray="{}" points="{}"/>"#,
            COLOURS[line.colour % COLOURS.len()],
            STROKES[line.stroke % STROKES.len()],
            self.path(line.points.iter().copied())
        );
        if !line.markers {
            return;
        }
        let (x_axis, y_axis) = (&self.plot.x, &self.plot.y);
        for (x, y) in &line.points {
            let (x_label, y_label) = (x_axis.unit.format(*x), y_axis.unit.format(*y));
            let title = format!("{} at {} = {x_label}: {y_label}", line.name, x_axis.title);
            svg.push_str(&marker(line.colour, self.x(*x), self.y(*y), &title));
        }
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let path: Vec<String> = points
            .map(|(x, y)| format!("{:.1},{:.1}", self.x(x), self.y(y)))
            .collect();
        path.join(" ")
    }
}

fn draw_legend(svg: &mut String, line: &Line, index: usize) {
    let y = HEIGHT + LEGEND_LINE * index as f64 + 6.0;
    let colour = COLOURS[line.colour % COLOURS.len()];
    let dashes = STROKES[line.stroke % STROKES.len()];
    let text = format!("{}{}", line.name, line.note);
    let _ = writeln!(
        svg,
        r#"<line x1="{LEFT}" x2="{x2}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/><text class="zoo-text" x="{tx}" y="{ty}">{text}</text>"#,
        x2 = LEFT + 34.0,
        tx = LEFT + 42.0,
        ty = y + 4.0,
        text = escape(&truncated(&text, MAX_LEGEND_LEN)),
    );
    if line.markers {
        svg.push_str(&marker(line.colour, LEFT + 17.0, y, &line.name));
    }
}

/// Marker of a point. When colours repeat, the shape changes.
fn marker(colour: usize, x: f64, y: f64, title: &str) -> String {
    let (round, colour) = (colour / COLOURS.len(), COLOURS[colour % COLOURS.len()]);
    let (left, top, tip) = (x - 4.0, y - 4.0, y - 5.5);
    let (name, shape) = match round {
        0 => ("circle", format!(r#"cx="{x:.1}" cy="{y:.1}" r="3.5""#)),
        1 => {
            let corner = format!(r#"x="{left:.1}" y="{top:.1}""#);
            ("rect", corner + r#" width="8" height="8""#)
        }
        _ => ("path", format!(r#"d="M {x:.1} {tip:.1} l 5 9 h -10 z""#)),
    };
    let title = escape(title);
    format!("<{name} {shape} fill=\"{colour}\"><title>{title}</title></{name}>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Unit;

    fn plot(scale: Scale, lines: Vec<Line>) -> Plot {
        let axis = |title: &str, scale| Axis {
            title: title.to_owned(),
            scale,
            ticks: Ticks::Decimal,
            unit: Unit::Number,
            margin: 0.05,
            include: None,
        };
        Plot {
            title: "a & b".to_owned(),
            x: axis("x", Scale::Linear),
            y: axis("y", scale),
            lines,
            empty_message: "no <data>",
        }
    }

    fn line(points: Vec<(f64, f64)>) -> Line {
        Line {
            name: "a <b>".to_owned(),
            points,
            markers: true,
            ..Line::default()
        }
    }

    /// Number of the first attribute of this name.
    fn attribute(text: &str, name: &str) -> f64 {
        let (_, value) = text.split_once(&format!("{name}=\"")).unwrap();
        let (number, _) = value.split_once('"').unwrap();
        number.parse().unwrap()
    }

    #[test]
    fn points_are_in_order() {
        for scale in [Scale::Linear, Scale::Log] {
            let svg = plot(scale, vec![line(vec![(1.0, 1.0), (2.0, 2.0)])]).to_svg();
            let circles: Vec<&str> = svg.split("<circle").skip(1).collect();
            assert_eq!(circles.len(), 3, "two points and the legend");
            assert!(attribute(circles[0], "cx") < attribute(circles[1], "cx"));
            assert!(attribute(circles[0], "cy") > attribute(circles[1], "cy"));
        }
    }

    #[test]
    fn legend_is_below_the_plot() {
        let svg = plot(Scale::Linear, vec![line(vec![(1.0, 1.0), (2.0, 2.0)]); 3]).to_svg();
        let texts = svg
            .split("<text")
            .filter(|text| text.contains("a &lt;b&gt;<"));
        let positions: Vec<f64> = texts.map(|text| attribute(text, "y")).collect();
        assert_eq!(positions.len(), 3);
        assert!(positions[0] > HEIGHT - BOTTOM + 34.0, "{positions:?}");
        let mut pairs = positions.windows(2);
        assert!(pairs.all(|pair| pair[1] - pair[0] > 12.0), "{positions:?}");
    }

    #[test]
    fn values_outside_of_the_domain_are_skipped() {
        let values = [0.0, 3.0, f64::NAN, f64::INFINITY];
        let points: Vec<(f64, f64)> = [1.0, 2.0, 3.0, 4.0].into_iter().zip(values).collect();
        let log = plot(Scale::Log, vec![line(points.clone())]).to_svg();
        assert_eq!(log.matches("<circle").count(), 2);
        let linear = plot(Scale::Linear, vec![line(points)]).to_svg();
        assert_eq!(linear.matches("<circle").count(), 3);
        let is_finite = !linear.contains("NaN") && !linear.contains("inf");
        assert!(is_finite, "{linear}");
        let empty = plot(Scale::Log, vec![line(vec![(1.0, -1.0)])]).to_svg();
        assert!(empty.contains("no &lt;data&gt;"));
    }

    #[test]
    fn repeated_colours_have_another_shape() {
        let lines = [0, COLOURS.len(), 2 * COLOURS.len()].map(|colour| Line {
            colour,
            ..line(vec![(1.0, 1.0)])
        });
        let svg = plot(Scale::Linear, lines.to_vec()).to_svg();
        for shape in ["<circle", "<rect", "<path"] {
            assert_eq!(svg.matches(shape).count(), 2, "{shape}: {svg}");
        }
    }

    #[test]
    fn points_are_labelled() {
        let labelled = |label: &str, x: f64| Line {
            label: label.to_owned(),
            ..line(vec![(1.0, 1.0), (x, 2.0)])
        };
        let lines = vec![
            labelled("a & b", 2.0),
            labelled("c", 3.0),
            labelled("", 4.0),
        ];
        let svg = plot(Scale::Linear, lines).to_svg();
        let labels: Vec<&str> = svg.split("zoo-label").skip(1).collect();
        assert_eq!(labels.len(), 2, "{svg}");
        assert!(labels[0].contains(">a &amp; b</text>") && labels[1].contains(">c</text>"));
        let circles: Vec<&str> = svg.split("<circle").skip(1).collect();
        // Each line has two points and a marker in the legend.
        for (label, circle) in labels.iter().zip([circles[1], circles[4]]) {
            let distance = attribute(label, " x") - attribute(circle, "cx");
            assert!((distance - 7.0).abs() < 0.2, "{label} {circle}");
        }
    }

    #[test]
    fn legend_is_truncated_and_escaped() {
        let mut long = line(vec![(1.0, 1.0)]);
        long.note = "好".repeat(200);
        let svg = plot(Scale::Linear, vec![long]).to_svg();
        assert!(svg.contains("好…</text>") && svg.contains("aria-label=\"a &amp; b\""));
        assert!(!svg.contains("<b>"));
    }
}
