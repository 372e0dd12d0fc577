//! Interactive line plots of a page: [uPlot](https://github.com/leeoniya/uPlot) draws them, with
//! zoom, values on hover, labels at the line ends and a legend that shows and hides lines.

use std::fmt::Write;

use serde_json::json;

use crate::plot::{Axis, Line, Plot, Scale, Ticks};
use crate::{escape, json_script};

/// The style sheets of a page with charts, for a `<style>` element. Colours are taken from the
/// properties `--ink`, `--soft`, `--line` and `--page` of the page.
pub const STYLE: &str = concat!(
    include_str!("../../vendor/uplot/uPlot.min.css"),
    "\n",
    include_str!("chart.css")
);

/// The scripts of a page with charts, for a `<script>` element after them.
pub const SCRIPT: &str = concat!(
    include_str!("../../vendor/uplot/uPlot.iife.min.js"),
    "\n",
    include_str!("chart.js")
);

/// Writes plots side by side, with one legend for the lines of all of them. Lines of the same name
/// are shown and hidden together; the legend lists them by [group](Line::group). Without scripts,
/// the plots are static.
pub fn charts(plots: &[Plot]) -> String {
    let mut html = "<div class=\"charts\">\n".to_owned();
    html.push_str("<div class=\"chart-row\">\n");
    for plot in plots {
        let _ = writeln!(
            html,
            "<figure class=\"chart\"><figcaption>{}</figcaption><div class=\"chart-area\" role=\"img\" \
             aria-label=\"{0}; the table lists the values\"></div><noscript>{}</noscript>{}</figure>",
            escape(&plot.title),
            plot.to_svg(),
            json_script("chart-data", &data(plot)),
        );
    }
    html.push_str("</div>\n");
    write_legend(&mut html, plots);
    html.push_str("</div>\n");
    html
}

fn write_legend(html: &mut String, plots: &[Plot]) {
    let mut lines: Vec<&Line> = Vec::new();
    for line in plots.iter().flat_map(|plot| &plot.lines) {
        if !lines.iter().any(|known| known.name == line.name) {
            lines.push(line);
        }
    }
    html.push_str(
        "<div class=\"chart-legend\" role=\"group\" aria-label=\"lines of the plots\">\n",
    );
    let mut groups: Vec<&str> = Vec::new();
    for line in &lines {
        if !groups.contains(&line.group.as_str()) {
            groups.push(&line.group);
        }
    }
    for group in groups {
        html.push_str("<div class=\"chart-group\">");
        if !group.is_empty() {
            let _ = write!(
                html,
                "<button type=\"button\" class=\"chart-toggle-group\" aria-pressed=\"true\">{}</button>",
                escape(group)
            );
        }
        for line in lines.iter().filter(|line| line.group == group) {
            let name = escape(&line.name);
            let _ = write!(
                html,
                "<button type=\"button\" class=\"chart-toggle\" aria-pressed=\"true\" data-name=\"{name}\">\
                 <span class=\"chart-swatch\"></span>{name}</button>"
            );
        }
        html.push_str("</div>\n");
    }
    html.push_str(
        "<p class=\"chart-help\">Click a name to hide or show its lines, a group to do so for all of \
         its lines; double-click a name to show only that one. Drag in a plot to zoom, double-click \
         to reset.</p></div>\n",
    );
}

/// A plot for the script.
fn data(plot: &Plot) -> serde_json::Value {
    let axis = |axis: &Axis| {
        let (base, fixed) = match &axis.ticks {
            Ticks::Decimal => (10, None),
            Ticks::Binary => (2, None),
            Ticks::Fixed(values) => (2, Some(values)),
        };
        json!({
            "title": axis.title,
            "log": (axis.scale == Scale::Log).then_some(base),
            "unit": axis.unit.name(),
            "ticks": fixed,
            "margin": axis.margin,
            "include": axis.include,
        })
    };
    let mut groups: Vec<&str> = Vec::new();
    for line in &plot.lines {
        if !groups.contains(&line.group.as_str()) {
            groups.push(&line.group);
        }
    }
    let first_of_colour = |line: &Line| {
        let first = plot
            .lines
            .iter()
            .position(|other| other.colour == line.colour);
        first.unwrap_or_default()
    };
    let line = |(i, line): (usize, &Line)| {
        let is_drawn = |x: f64, y: f64| plot.x.contains(x) && plot.y.contains(y);
        let points = line.points.iter().filter(|(x, y)| is_drawn(*x, *y));
        let band = line
            .band
            .iter()
            .filter(|(x, low, high)| is_drawn(*x, *low) && is_drawn(*x, *high));
        // Lines of a group have shades of a hue, those of the same colour index the same shade;
        // without groups, every line has a hue.
        let (hue, shade) = if line.group.is_empty() {
            (i, 0.5)
        } else {
            let first = first_of_colour(line);
            let group = &plot.lines[first].group;
            let has_own_shade =
                |(i, other): &(usize, &Line)| other.group == *group && first_of_colour(other) == *i;
            let shades = plot.lines.iter().enumerate().filter(has_own_shade);
            let before = shades.clone().filter(|(i, _)| *i < first).count();
            let hue = groups.iter().position(|known| known == group);
            let shade = (before as f64 + 0.5) / shades.count() as f64;
            (hue.unwrap_or(i), shade)
        };
        json!({
            "name": line.name,
            "note": line.note.trim_start_matches(", "),
            "hue": hue,
            "shade": shade,
            "stroke": line.stroke,
            "strong": line.strong,
            "markers": line.markers,
            "points": points.collect::<Vec<_>>(),
            "band": band.collect::<Vec<_>>(),
        })
    };
    json!({
        "x": axis(&plot.x),
        "y": axis(&plot.y),
        "lines": plot.lines.iter().enumerate().map(line).collect::<Vec<_>>(),
        "empty": plot.empty_message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Unit;

    fn plot(lines: &[(&str, &str)]) -> Plot {
        let axis = Axis {
            title: "n".to_owned(),
            scale: Scale::Log,
            ticks: Ticks::Decimal,
            unit: Unit::Number,
            margin: 0.05,
            include: None,
        };
        let line = |(colour, (group, name)): (usize, &(&str, &str))| Line {
            name: (*name).to_owned(),
            group: (*group).to_owned(),
            colour,
            points: vec![(1.0, 2.0), (2.0, -1.0)],
            ..Line::default()
        };
        Plot {
            title: "a & b".to_owned(),
            x: axis.clone(),
            y: axis,
            lines: lines.iter().enumerate().map(line).collect(),
            empty_message: "none",
        }
    }

    #[test]
    fn legend_is_shared_and_grouped() {
        let first = plot(&[
            ("soft", "flash"),
            ("sparse", "</script>"),
            ("soft", "standard"),
        ]);
        let second = plot(&[("soft", "flash"), ("linear", "linear")]);
        let html = charts(&[first, second]);
        assert_eq!(html.matches("class=\"chart-toggle\"").count(), 4);
        assert_eq!(html.matches("class=\"chart-toggle-group\"").count(), 3);
        assert_eq!(html.matches("<figure").count(), 2);
        // Only the data of the plots end with the tag, and points below zero are not drawn.
        assert_eq!(html.matches("</script>").count(), 2);
        assert!(html.contains("\"points\":[[1.0,2.0]]"), "{html}");
    }

    #[test]
    fn lines_of_a_group_share_a_hue() {
        let hues = |lines: &[(&str, &str)]| -> Vec<u64> {
            let data = data(&plot(lines));
            let lines = data["lines"].as_array().unwrap().iter();
            lines.map(|line| line["hue"].as_u64().unwrap()).collect()
        };
        assert_eq!(
            hues(&[("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")]),
            [0, 1, 0, 2]
        );
        assert_eq!(hues(&[("", "1"), ("", "2")]), [0, 1]);
    }

    #[test]
    fn lines_with_the_same_colour_index_share_hue_and_shade() {
        let mut plot = plot(&[("a", "1"), ("a", "2"), ("b", "other 2"), ("b", "3")]);
        plot.lines[2].colour = plot.lines[1].colour;
        let data = data(&plot);
        let colour = |i: usize| {
            let line = &data["lines"][i];
            (
                line["hue"].as_u64().unwrap(),
                line["shade"].as_f64().unwrap(),
            )
        };
        assert_eq!(
            [0, 1, 2, 3].map(colour),
            [(0, 0.25), (0, 0.75), (0, 0.75), (1, 0.5)]
        );
    }
}
