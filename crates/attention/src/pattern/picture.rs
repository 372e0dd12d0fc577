//! A plan to look at: its tiles as an SVG.

use std::fmt::Write;

use super::plan::TilePlan;

/// The longer side, in pixels.
const SIDE: f64 = 480.0;
/// Room for the words at the top and at the left.
const MARGIN: f64 = 28.0;

impl TilePlan {
    /// The plan of the first example as a picture: queries go down, keys to the right;
    /// whole tiles are dark, tiles with something hidden light, the rest is not computed.
    pub fn to_svg(&self) -> String {
        let [seq_q, seq_k] = self.seq().map(|size| size as f64);
        let unit = SIDE / seq_q.max(seq_k);
        let (width, height) = (seq_k * unit, seq_q * unit);
        let mut svg = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {:.0} {:.0}" font-family="system-ui, sans-serif" font-size="13">
<style>
  .words {{ fill: #444 }} .none {{ fill: #eee }} .part {{ fill: #9ecae1 }} .whole {{ fill: #2171b5 }}
  @media (prefers-color-scheme: dark) {{ .words {{ fill: #bbb }} .none {{ fill: #2a2a2a }} .part {{ fill: #2b5a7d }} .whole {{ fill: #6baed6 }} }}
</style>
<text class="words" x="{MARGIN}" y="{:.0}">keys →</text>
<text class="words" transform="translate({:.0} {MARGIN}) rotate(90)">queries →</text>
<text class="words" x="{:.2}" y="{:.0}" text-anchor="end">{} computed</text>
<rect class="none" x="{MARGIN}" y="{MARGIN}" width="{width:.2}" height="{height:.2}"/>
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
                // Writing to a string does not fail.
                let _ = writeln!(
                    svg,
                    r#"<rect class="{}" x="{:.2}" y="{:.2}" width="{:.2}" height="{:.2}"/>"#,
                    if run.is_whole { "whole" } else { "part" },
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

fn percent(share: f64) -> String {
    match 100.0 * share {
        small if small < 1.0 => format!("{small:.2}%"),
        few if few < 10.0 => format!("{few:.1}%"),
        many => format!("{many:.0}%"),
    }
}

#[cfg(test)]
mod tests {
    use crate::{AttentionShape, Pattern};

    #[test]
    fn every_run_is_a_rectangle() {
        let shape = AttentionShape::of_sequences(1, 128, 256);
        let svg = Pattern::Causal.plan(&shape, [64, 64]).to_svg();
        // Keys 0..128 whole and 128..192 in part, then 0..192 and 192..256.
        assert_eq!(svg.matches(r#"class="whole""#).count(), 2);
        assert_eq!(svg.matches(r#"class="part""#).count(), 2);
        assert!(svg.contains(r#"x="268.00" y="28.00" width="120.00" height="120.00""#));
        assert!(svg.contains(">88% computed<"), "{svg}");
    }
}
