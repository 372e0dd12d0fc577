//! Alignment of a sequence-to-sequence model: lines between source and target tokens, and a
//! heatmap.

use std::fmt::Write;

use super::heatmap::heatmap;
use crate::heatmap::check;
use crate::text::{truncated, width};
use crate::{Heatmap, Matrix, VizError, escape, visible};

/// Cross-attention weights between target and source tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Alignment {
    pub(super) title: String,
    source: Vec<String>,
    target: Vec<String>,
    weights: Matrix,
}

const TOP: f64 = 22.0;
const BOTTOM: f64 = 132.0;
const HEIGHT: f64 = 154.0;
const MAX_LABEL_LEN: usize = 14;
/// Weights below this fraction of the maximum are not drawn.
const MIN_WEIGHT: f32 = 0.05;

impl Alignment {
    /// Creates an alignment from weights with a row for each of `target` and a column for each of
    /// `source`.
    ///
    /// # Errors
    ///
    /// If there are no tokens, or the weights do not match their number.
    pub fn new(
        title: impl Into<String>,
        source: Vec<String>,
        target: Vec<String>,
        weights: Matrix,
    ) -> Result<Self, VizError> {
        let title = title.into();
        check(&title, (1, 1), &target, &source, &weights)?;
        Ok(Self {
            title,
            source,
            target,
            weights,
        })
    }

    /// Heatmap for SVG or PNG output.
    pub fn heatmap(&self) -> Heatmap<'_> {
        Heatmap {
            title: self.title.clone(),
            queries: &self.target,
            keys: &self.source,
            weights: &self.weights,
        }
    }

    pub(super) fn write(&self, html: &mut String) {
        html.push_str(
            "<p class=\"soft\">Source tokens are above, target tokens below; lines are as strong as \
             their weights. Rows of the heatmap are target tokens.</p>\n<div class=\"links\" \
             tabindex=\"0\" role=\"group\" aria-label=\"alignment; the heatmap below lists all weights\">\n",
        );
        self.write_links(html);
        html.push_str("</div>\n");
        heatmap(html, &self.heatmap(), None);
    }

    /// Writes source and target tokens on two rows, with lines between them.
    fn write_links(&self, html: &mut String) {
        let label = |token: &String| truncated(&visible(token), MAX_LABEL_LEN);
        let source: Vec<String> = self.source.iter().map(label).collect();
        let target: Vec<String> = self.target.iter().map(label).collect();
        let (from, from_end) = centres(&source);
        let (to, to_end) = centres(&target);
        let width = from_end.max(to_end);
        // Centred, so that a monotonic alignment is vertical.
        let (from_shift, to_shift) = ((width - from_end) / 2.0, (width - to_end) / 2.0);
        let _ = writeln!(
            html,
            "<svg viewBox=\"0 0 {width:.0} {HEIGHT}\" width=\"{width:.0}\" height=\"{HEIGHT}\" aria-hidden=\"true\">"
        );
        for (row, x2) in to.iter().enumerate() {
            for (column, x1) in from.iter().enumerate() {
                let value = self.weights.normalized(self.weights.get(row, column)).abs();
                if value < MIN_WEIGHT {
                    continue;
                }
                let (x1, x2) = (x1 + from_shift, x2 + to_shift);
                let (y1, y2) = (TOP + 6.0, BOTTOM - 14.0);
                let middle = (y1 + y2) / 2.0;
                let _ = writeln!(
                    html,
                    "<path d=\"M{x1:.1} {y1}C{x1:.1} {middle} {x2:.1} {middle} {x2:.1} {y2}\" \
                     stroke-opacity=\"{:.2}\" stroke-width=\"{:.1}\"/>",
                    0.15 + 0.85 * value,
                    0.6 + 3.4 * value
                );
            }
        }
        for (texts, centres, shift, y) in [
            (&source, &from, from_shift, TOP),
            (&target, &to, to_shift, BOTTOM + 4.0),
        ] {
            for (text, x) in texts.iter().zip(centres) {
                let (x, text) = (x + shift, escape(text));
                let _ = writeln!(html, "<text x=\"{x:.1}\" y=\"{y}\">{text}</text>");
            }
        }
        html.push_str("</svg>\n");
    }
}

/// Horizontal centre of each token on a row, and the width of the row.
fn centres(texts: &[String]) -> (Vec<f64>, f64) {
    let mut end = 0.0;
    let centre = |text: &String| {
        let cell = (width(text) * 1.1 + 14.0).max(24.0);
        end += cell;
        end - cell / 2.0
    };
    (texts.iter().map(centre).collect(), end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heatmap::tests::words;

    #[test]
    fn small_weights_are_not_drawn() {
        let weights = Matrix::new(2, 3, vec![0.97, 0.03, 0.0, 0.1, 0.3, 0.6]).unwrap();
        let alignment = Alignment::new("t", words("3rd <of> May"), words("05 好"), weights);
        let mut html = String::new();
        alignment.unwrap().write(&mut html);
        // 0.03 of 0.97 is below the threshold.
        assert_eq!(html.matches("<path").count(), 4);
        let has_tokens = html.contains("&lt;of&gt;</text>") && html.contains("好</text>");
        assert!(has_tokens, "{html}");
    }

    #[test]
    fn mismatched_sizes_are_rejected() {
        let weights = Matrix::new(2, 3, vec![0.5; 6]).unwrap();
        let transposed = Alignment::new("t", words("a b"), words("x y z"), weights);
        let error = transposed.unwrap_err().to_string();
        let expected = "2 rows and 3 columns for 3 queries and 2 keys";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn tokens_do_not_overlap() {
        let texts = words("a internationalisation 好久不见 b");
        let (centres, end) = centres(&texts);
        for (i, pair) in centres.windows(2).enumerate() {
            let needed = (width(&texts[i]) + width(&texts[i + 1])) / 2.0;
            assert!(pair[1] - pair[0] > needed);
        }
        assert!(centres[3] < end);
    }
}
