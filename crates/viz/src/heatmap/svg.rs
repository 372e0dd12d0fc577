//! SVG output of heatmaps.

use std::fmt::Write;

use super::Heatmap;
use crate::colormap::hex;
use crate::text::{STYLE, truncated, width};
use crate::units::number;
use crate::{Theme, escape, visible};

const MARGIN: f64 = 12.0;
const TITLE: f64 = 26.0;
const SCALE: f64 = 52.0;
/// Space for the title of an axis.
const AXIS: f64 = 18.0;
/// Rotation of column labels in degrees, so that they do not overlap.
const LABEL_ANGLE: f64 = 60.0;

/// Number of colour steps; each is a CSS class.
const COLOUR_STEPS: i32 = 24;

/// Maximum number of cells with tooltips. In larger heatmaps, neighbours of one colour are merged
/// into one rectangle, since browsers are slow with many elements.
const MAX_TOOLTIPS: usize = 2_500;

const MAX_LABEL_LEN: usize = 24;

impl Heatmap<'_> {
    /// Renders a standalone SVG for light and dark themes, with token labels and a colour scale.
    pub fn to_svg(&self) -> String {
        let (rows, columns) = (self.weights.rows(), self.weights.columns());
        // Labels need 14 units; cells of small matrices are larger.
        let cell = (420.0 / rows.max(columns) as f64).clamp(14.0, 30.0);
        let label = |token: &String| truncated(&visible(token), MAX_LABEL_LEN);
        let queries: Vec<String> = self.queries.iter().map(label).collect();
        let keys: Vec<String> = self.keys.iter().map(label).collect();
        let widest = |labels: &[String]| labels.iter().map(|text| width(text)).fold(0.0, f64::max);
        let (sine, cosine) = LABEL_ANGLE.to_radians().sin_cos();
        let left = MARGIN + AXIS + widest(&queries) + 8.0;
        let top = TITLE + AXIS + widest(&keys) * sine + 18.0;
        let grid = (columns as f64 * cell, rows as f64 * cell);
        // Rotated labels extend beyond the grid on the right.
        let label_end =
            |(i, text): (usize, &String)| (i as f64 + 0.5) * cell + width(text) * cosine + 8.0;
        let label_ends = keys.iter().enumerate().map(label_end);
        let right = label_ends.fold(grid.0.max(170.0), f64::max);
        let title_width = width(&self.title) * 1.3 + MARGIN;
        let total_width = (left + right + MARGIN).max(title_width);
        let total_height = top + grid.1 + SCALE;

        let title = escape(&self.title);
        let mut svg = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_width:.0} {total_height:.0}" width="{total_width:.0}" height="{total_height:.0}" role="img" aria-label="{title}">
<style>{}</style>
<text class="zoo-title" x="{MARGIN}" y="20">{title}</text>
"#,
            style(),
        );
        let [query, key] = self.axes.map(escape);
        let _ = writeln!(
            svg,
            r#"<text class="zoo-text" x="{left:.1}" y="{:.1}">{key} →</text>
<text class="zoo-text" transform="translate({:.1} {top:.1}) rotate(-90)" text-anchor="end">← {query}</text>"#,
            TITLE + AXIS - 4.0,
            MARGIN + 10.0,
        );
        for (i, text) in queries.iter().enumerate() {
            let _ = writeln!(
                svg,
                r#"<text class="zoo-text" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                left - 6.0,
                top + (i as f64 + 0.5) * cell + 4.0,
                escape(text)
            );
        }
        for (i, text) in keys.iter().enumerate() {
            let (x, y) = (left + (i as f64 + 0.5) * cell, top - 6.0);
            // Single characters are not rotated.
            let position = match text.chars().count() {
                1 => format!(r#"x="{x:.1}" y="{y:.1}" text-anchor="middle""#),
                _ => format!(
                    r#"transform="translate({:.1} {y:.1}) rotate(-{LABEL_ANGLE})""#,
                    x + 3.0
                ),
            };
            let text = escape(text);
            let _ = writeln!(svg, r#"<text class="zoo-text" {position}>{text}</text>"#);
        }
        let _ = writeln!(
            svg,
            r#"<rect class="s0" x="{left:.1}" y="{top:.1}" width="{:.1}" height="{:.1}"/>"#,
            grid.0, grid.1
        );
        cells(&mut svg, self, (left, top), cell);
        scale(&mut svg, self, (left, top + grid.1 + 16.0));
        svg.push_str("</svg>\n");
        svg
    }
}

fn class_name(class: i32) -> String {
    let sign = if class < 0 { "n" } else { "s" };
    format!("{sign}{}", class.abs())
}

fn style() -> String {
    let mut style = format!("{STYLE}rect {{ shape-rendering: crispEdges }}\n");
    for theme in Theme::ALL {
        let mut colours = String::new();
        for i in -COLOUR_STEPS..=COLOUR_STEPS {
            let colour = hex(theme.colour(i as f32 / COLOUR_STEPS as f32));
            let _ = write!(colours, ".{}{{fill:{colour}}}", class_name(i));
        }
        style += &match theme {
            Theme::Light => format!("{colours}\n"),
            Theme::Dark => format!("@media (prefers-color-scheme: dark) {{ {colours} }}\n"),
        };
    }
    style
}

fn cells(svg: &mut String, heatmap: &Heatmap<'_>, (left, top): (f64, f64), cell: f64) {
    let (rows, columns) = (heatmap.weights.rows(), heatmap.weights.columns());
    let has_tooltips = rows * columns <= MAX_TOOLTIPS;
    let class_at = |row: usize, column: usize| {
        let value = heatmap.weights.normalized(heatmap.weights.get(row, column));
        (value * COLOUR_STEPS as f32).round() as i32
    };
    for row in 0..rows {
        let y = top + row as f64 * cell;
        let mut column = 0;
        while column < columns {
            let own = class_at(row, column);
            let mut end = column + 1;
            while !has_tooltips && end < columns && class_at(row, end) == own {
                end += 1;
            }
            let rect = format!(
                r#"<rect class="{}" x="{:.1}" y="{y:.1}" width="{:.1}" height="{cell:.1}""#,
                class_name(own),
                left + column as f64 * cell,
                (end - column) as f64 * cell,
            );
            if has_tooltips {
                let _ = writeln!(
                    svg,
                    "{rect}><title>{} → {}: {:.4}</title></rect>",
                    escape(&visible(&heatmap.queries[row])),
                    escape(&visible(&heatmap.keys[column])),
                    heatmap.weights.get(row, column),
                );
            } else if own != 0 {
                // Zero weights show the background.
                let _ = writeln!(svg, "{rect}/>");
            }
            column = end;
        }
    }
}

fn scale(svg: &mut String, heatmap: &Heatmap<'_>, (left, top): (f64, f64)) {
    let (min, max) = heatmap.weights.scale();
    let first = if min < 0.0 { -COLOUR_STEPS } else { 0 };
    let step = 160.0 / f64::from(COLOUR_STEPS - first + 1);
    for i in first..=COLOUR_STEPS {
        let _ = writeln!(
            svg,
            r#"<rect class="{}" x="{:.1}" y="{top:.1}" width="{:.1}" height="10"/>"#,
            class_name(i),
            left + f64::from(i - first) * step,
            step + 0.3,
        );
    }
    for (x, anchor, weight) in [(left, "start", min), (left + 160.0, "end", max)] {
        let _ = writeln!(
            svg,
            r#"<text class="zoo-text" x="{x:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
            top + 24.0,
            number(f64::from(weight))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{heatmap, words};
    use crate::Matrix;

    fn draw(weights: &Matrix, queries: &[String], keys: &[String]) -> String {
        heatmap("a <title>", queries, keys, weights).to_svg()
    }

    #[test]
    fn tooltips_are_escaped() {
        let weights = Matrix::new(2, 2, vec![0.25, 0.75, 1.0, 0.0]).unwrap();
        let svg = draw(&weights, &words("<s> 好"), &words("a&b \""));
        for expected in [
            ">key →</text>",
            ">← query</text>",
            "<title>&lt;s&gt; → a&amp;b: 0.2500</title>",
            "<title>好 → &quot;: 0.0000</title>",
            "aria-label=\"a &lt;title&gt;\"",
            "<rect class=\"s24\"",
            "<rect class=\"s6\"",
        ] {
            assert!(svg.contains(expected), "{expected}: {svg}");
        }
    }

    #[test]
    fn negative_weights_have_another_hue() {
        let weights = Matrix::new(1, 2, vec![-0.5, 1.0]).unwrap();
        let svg = draw(&weights, &words("q"), &words("a b"));
        assert!(svg.contains(r#"<rect class="n12""#), "{svg}");
        // The scale starts at a negative weight.
        assert!(svg.contains(">-1</text>"), "{svg}");
        let zeros = Matrix::new(1, 2, vec![0.0, 0.0]).unwrap();
        assert!(!draw(&zeros, &words("q"), &words("a b")).contains("NaN"));
    }

    #[test]
    fn large_heatmaps_merge_cells() {
        let n = 400;
        let diagonal = (0..n * n).map(|i| f32::from(i / n == i % n)).collect();
        let weights = Matrix::new(n, n, diagonal).unwrap();
        let tokens: Vec<String> = (0..n).map(|i| i.to_string()).collect();
        let svg = draw(&weights, &tokens, &tokens);
        // Diagonal, background and scale.
        assert_eq!(svg.matches("<rect").count(), n + 1 + 25);
        assert!(svg.len() < 200_000, "{} bytes", svg.len());
    }

    #[test]
    fn long_labels_are_truncated() {
        let weights = Matrix::new(1, 1, vec![1.0]).unwrap();
        let svg = draw(&weights, &["x".repeat(200)], &words("k"));
        let label = format!("{}…</text>", "x".repeat(23));
        assert!(svg.contains(&label), "{svg}");
    }
}
