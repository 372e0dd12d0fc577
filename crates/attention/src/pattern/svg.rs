//! Tile plans as SVG pictures.

use std::fmt::Write;

use super::plan::TilePlan;

/// Length of the longer side in pixels.
const SIDE: f64 = 480.0;
/// Margin for the labels at the top and left.
const MARGIN: f64 = 28.0;

impl TilePlan {
    /// The plan of the first example as an SVG: queries from top to bottom, keys from left to
    /// right; full tiles are dark, partial tiles light, and the rest is not computed.
    pub fn to_svg(&self) -> String {
        let [seq_q, seq_k] = self.seq.map(|size| size as f64);
        let unit = SIDE / seq_q.max(seq_k);
        let (width, height) = (seq_k * unit, seq_q * unit);
        let mut svg = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {:.0} {:.0}" font-family="system-ui, sans-serif" font-size="13">
<style>
  .label {{ fill: #444 }} .masked {{ fill: #eee }} .partial {{ fill: #9ecae1 }} .full {{ fill: #2171b5 }}
  @media (prefers-color-scheme: dark) {{ .label {{ fill: #bbb }} .masked {{ fill: #2a2a2a }} .partial {{ fill: #2b5a7d }} .full {{ fill: #6baed6 }} }}
</style>
<text class="label" x="{MARGIN}" y="{:.0}">keys →</text>
<text class="label" transform="translate({:.0} {MARGIN}) rotate(90)">queries →</text>
<text class="label" x="{:.2}" y="{:.0}" text-anchor="end">{} computed</text>
<rect class="masked" x="{MARGIN}" y="{MARGIN}" width="{width:.2}" height="{height:.2}"/>
"##,
            width + MARGIN + 4.0,
            height + MARGIN + 4.0,
            MARGIN - 9.0,
            MARGIN - 18.0,
            MARGIN + width,
            MARGIN - 9.0,
            percent(self.density_of(0)),
        );
        for row in 0..self.rows() {
            let queries = self.queries(row);
            for run in self.runs(0, row) {
                let keys = self.keys(run);
                // Writing to a string cannot fail.
                let _ = writeln!(
                    svg,
                    r#"<rect class="{}" x="{:.2}" y="{:.2}" width="{:.2}" height="{:.2}"/>"#,
                    if run.is_full { "full" } else { "partial" },
                    MARGIN + keys.start as f64 * unit,
                    MARGIN + queries.start as f64 * unit,
                    keys.len() as f64 * unit,
                    queries.len() as f64 * unit,
                );
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn percent(fraction: f64) -> String {
    match 100.0 * fraction {
        small if small < 1.0 => format!("{small:.2}%"),
        medium if medium < 10.0 => format!("{medium:.1}%"),
        large => format!("{large:.0}%"),
    }
}

#[cfg(test)]
mod tests {
    use crate::{AttentionShape, Pattern};

    #[test]
    fn every_run_is_a_rectangle() {
        let shape = AttentionShape::single_head(1, 128, 256);
        let svg = Pattern::Causal.plan(&shape, [64, 64]).to_svg();
        // Keys 0..128 full and 128..192 partial, then 0..192 and 192..256.
        assert_eq!(svg.matches(r#"class="full""#).count(), 2);
        assert_eq!(svg.matches(r#"class="partial""#).count(), 2);
        assert!(svg.contains(r#"x="268.00" y="28.00" width="120.00" height="120.00""#));
        assert!(svg.contains(">88% computed<"), "{svg}");
    }
}
