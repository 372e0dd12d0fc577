//! A heat map as SVG.

use std::fmt::Write;

use super::Heat;
use crate::shade::hex;
use crate::text::{STYLE, shortened, width};
use crate::units::number;
use crate::{Theme, escape, visible};

/// Sizes in the SVG's own units.
const MARGIN: f64 = 12.0;
const TITLE: f64 = 26.0;
const SCALE: f64 = 52.0;
/// A label leans by 60 degrees, so that neighbours do not touch.
const LEAN: f64 = 60.0;

/// Shades that are told apart; each is a class of rectangles.
const SHADES: i32 = 24;

/// Up to this many cells, each tells its tokens and weight; above, neighbours of one
/// shade are one rectangle, or a browser would take long.
const MOST_TITLES: usize = 2_500;

/// Letters of a label; the rest of a longer one is left out.
const LETTERS: usize = 24;

impl Heat<'_> {
    /// As an SVG that stands alone and suits light and dark pages, with the tokens at its
    /// sides and a scale below.
    pub fn to_svg(&self) -> String {
        let (rows, columns) = (self.weights.rows(), self.weights.columns());
        // Labels need 14 units; few cells can be larger.
        let cell = (420.0 / rows.max(columns) as f64).clamp(14.0, 30.0);
        let label = |token: &String| shortened(&visible(token), LETTERS);
        let queries: Vec<String> = self.queries.iter().map(label).collect();
        let keys: Vec<String> = self.keys.iter().map(label).collect();
        let widest = |labels: &[String]| labels.iter().map(|text| width(text)).fold(0.0, f64::max);
        let (sine, cosine) = LEAN.to_radians().sin_cos();
        let left = MARGIN + widest(&queries) + 8.0;
        let top = TITLE + widest(&keys) * sine + 18.0;
        let grid = (columns as f64 * cell, rows as f64 * cell);
        // The last label leans out of the grid to the right.
        let lean = (0..columns).rev().zip(keys.iter().rev());
        let lean = lean.map(|(at, text)| (at as f64 + 0.5) * cell + width(text) * cosine + 8.0);
        let right = lean.fold(grid.0.max(170.0), f64::max);
        let title_width = width(&self.title) * 1.3 + MARGIN;
        let total = (
            (left + right + MARGIN).max(title_width),
            top + grid.1 + SCALE,
        );

        let title = escape(&self.title);
        let mut svg = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {:.0} {:.0}" width="{0:.0}" height="{1:.0}" role="img" aria-label="{title}">
<style>{}</style>
<text class="zoo-title" x="{MARGIN}" y="20">{title}</text>
"#,
            total.0,
            total.1,
            style(),
        );
        for (at, text) in queries.iter().enumerate() {
            let _ = writeln!(
                svg,
                r#"<text class="zoo-text" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                left - 6.0,
                top + (at as f64 + 0.5) * cell + 4.0,
                escape(text)
            );
        }
        for (at, text) in keys.iter().enumerate() {
            let (x, y) = (left + (at as f64 + 0.5) * cell, top - 6.0);
            // A single letter has room enough to stand upright.
            let place = match text.chars().count() {
                1 => format!(r#"x="{x:.1}" y="{y:.1}" text-anchor="middle""#),
                _ => format!(
                    r#"transform="translate({:.1} {y:.1}) rotate(-{LEAN})""#,
                    x + 3.0
                ),
            };
            let text = escape(text);
            let _ = writeln!(svg, r#"<text class="zoo-text" {place}>{text}</text>"#);
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

fn class(share: f32) -> i32 {
    (share * SHADES as f32).round() as i32
}

fn class_name(class: i32) -> String {
    let sign = if class < 0 { "n" } else { "s" };
    format!("{sign}{}", class.abs())
}

/// A colour for each class, on light pages and on dark ones.
fn style() -> String {
    let mut style = format!("{STYLE}rect {{ shape-rendering: crispEdges }}\n");
    for theme in Theme::ALL {
        let mut colours = String::new();
        for at in -SHADES..=SHADES {
            let colour = hex(theme.shade(at as f32 / SHADES as f32));
            let _ = write!(colours, ".{}{{fill:{colour}}}", class_name(at));
        }
        style += &match theme {
            Theme::Light => format!("{colours}\n"),
            Theme::Dark => format!("@media (prefers-color-scheme: dark) {{ {colours} }}\n"),
        };
    }
    style
}

fn cells(svg: &mut String, heat: &Heat<'_>, (left, top): (f64, f64), cell: f64) {
    let (rows, columns) = (heat.weights.rows(), heat.weights.columns());
    let titled = rows * columns <= MOST_TITLES;
    for row in 0..rows {
        let y = top + row as f64 * cell;
        let mut column = 0;
        while column < columns {
            let weight = heat.weights.at(row, column);
            let own = class(heat.weights.share(weight));
            let mut end = column + 1;
            if !titled {
                let same = |at: usize| class(heat.weights.share(heat.weights.at(row, at))) == own;
                while end < columns && same(end) {
                    end += 1;
                }
            }
            let rect = format!(
                r#"<rect class="{}" x="{:.1}" y="{y:.1}" width="{:.1}" height="{cell:.1}""#,
                class_name(own),
                left + column as f64 * cell,
                (end - column) as f64 * cell,
            );
            if titled {
                let _ = writeln!(
                    svg,
                    "{rect}><title>{} → {}: {weight:.4}</title></rect>",
                    escape(&visible(&heat.queries[row])),
                    escape(&visible(&heat.keys[column])),
                );
            } else if own != 0 {
                // What has no weight is the ground.
                let _ = writeln!(svg, "{rect}/>");
            }
            column = end;
        }
    }
}

/// Which shade is which weight.
fn scale(svg: &mut String, heat: &Heat<'_>, (left, top): (f64, f64)) {
    let (lowest, most) = heat.weights.scale();
    let first = if lowest < 0.0 { -SHADES } else { 0 };
    let step = 160.0 / f64::from(SHADES - first + 1);
    for at in first..=SHADES {
        let _ = writeln!(
            svg,
            r#"<rect class="{}" x="{:.1}" y="{top:.1}" width="{:.1}" height="10"/>"#,
            class_name(at),
            left + f64::from(at - first) * step,
            step + 0.3,
        );
    }
    for (x, anchor, weight) in [(left, "start", lowest), (left + 160.0, "end", most)] {
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
    use super::super::tests::{heat, words};
    use crate::Matrix;

    fn draw(weights: &Matrix, queries: &[String], keys: &[String]) -> String {
        heat("a <title>", queries, keys, weights).to_svg()
    }

    #[test]
    fn tokens_and_weights_are_there_and_escaped() {
        let weights = Matrix::new(2, 2, vec![0.25, 0.75, 1.0, 0.0]).unwrap();
        let svg = draw(&weights, &words("<s> 好"), &words("a&b \""));
        assert!(
            svg.contains("<title>&lt;s&gt; → a&amp;b: 0.2500</title>"),
            "{svg}"
        );
        assert!(svg.contains("<title>好 → &quot;: 0.0000</title>"));
        assert!(svg.contains("aria-label=\"a &lt;title&gt;\""));
        assert!(svg.contains(r#"<rect class="s24""#) && svg.contains(r#"<rect class="s6""#));
    }

    #[test]
    fn below_zero_is_another_hue() {
        let weights = Matrix::new(1, 2, vec![-0.5, 1.0]).unwrap();
        let svg = draw(&weights, &words("q"), &words("a b"));
        assert!(svg.contains(r#"<rect class="n12""#), "{svg}");
        assert!(svg.contains(">-1</text>"), "the scale begins below zero");
        let zeros = Matrix::new(1, 2, vec![0.0, 0.0]).unwrap();
        assert!(!draw(&zeros, &words("q"), &words("a b")).contains("NaN"));
    }

    #[test]
    fn a_large_one_is_merged() {
        let n = 400;
        let diagonal = (0..n * n).map(|at| f32::from(at / n == at % n)).collect();
        let weights = Matrix::new(n, n, diagonal).unwrap();
        let tokens: Vec<String> = (0..n).map(|at| at.to_string()).collect();
        let svg = draw(&weights, &tokens, &tokens);
        // The cells of the diagonal, the ground and the scale.
        assert_eq!(svg.matches("<rect").count(), n + 1 + 25);
        assert!(svg.len() < 200_000, "{} bytes", svg.len());
    }

    #[test]
    fn a_long_token_is_cut() {
        let weights = Matrix::new(1, 1, vec![1.0]).unwrap();
        let svg = draw(&weights, &["x".repeat(200)], &words("k"));
        let label = format!("{}…</text>", "x".repeat(23));
        assert!(svg.contains(&label), "{svg}");
    }
}
