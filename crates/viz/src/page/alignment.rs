//! Which source word a translation looked at, word by word.

use std::fmt::Write;

use super::map::{map, weights};
use crate::heat::check;
use crate::text::{shortened, width};
use crate::{Heat, Matrix, PictureError, escape, visible};

/// The alignment of a sequence-to-sequence model.
#[derive(Debug, Clone, PartialEq)]
pub struct Alignment {
    pub(super) title: String,
    source: Vec<String>,
    target: Vec<String>,
    weights: Matrix,
}

/// Sizes of the strands, in the SVG's own units.
const TOP: f64 = 22.0;
const BOTTOM: f64 = 132.0;
const HEIGHT: f64 = 154.0;
/// Letters of a token between the strands.
const LETTERS: usize = 14;
/// A strand thinner than this would only be a veil over the others.
const LEAST: f32 = 0.05;

impl Alignment {
    /// Weights with a row for each of `target` and a column for each of `source`.
    ///
    /// # Errors
    ///
    /// If there is nothing to show, or the weights do not have the size of the tokens.
    pub fn new(
        title: impl Into<String>,
        source: Vec<String>,
        target: Vec<String>,
        weights: Matrix,
    ) -> Result<Self, PictureError> {
        let title = title.into();
        check(&title, (1, 1), &target, &source, &weights)?;
        Ok(Self {
            title,
            source,
            target,
            weights,
        })
    }

    /// Its heat map, for an SVG or a PNG.
    pub fn heat(&self) -> Heat<'_> {
        Heat {
            title: self.title.clone(),
            queries: &self.target,
            keys: &self.source,
            weights: &self.weights,
        }
    }

    pub(super) fn write(&self, html: &mut String) {
        html.push_str(
            "<p class=\"soft\">Above what was read, below what was written; a strand is as strong \
             as its weight. In the map, a row is a token that was written.</p>\n<div class=\"strands\" \
             tabindex=\"0\" role=\"group\" aria-label=\"strands; the map below tells them one by one\">\n",
        );
        self.strands(html);
        html.push_str("</div>\n");
        map(
            html,
            &self.title,
            None,
            &self.target,
            &self.source,
            &[&self.weights],
        );
        weights(html, 0, 0, &self.weights);
    }

    /// Source and target on two lines, with strands between them.
    fn strands(&self, html: &mut String) {
        let label = |token: &String| shortened(&visible(token), LETTERS);
        let source: Vec<String> = self.source.iter().map(label).collect();
        let target: Vec<String> = self.target.iter().map(label).collect();
        let (from, from_end) = places(&source);
        let (to, to_end) = places(&target);
        let whole = from_end.max(to_end);
        // Both in the middle, so that a monotone alignment hangs straight down.
        let (from_shift, to_shift) = ((whole - from_end) / 2.0, (whole - to_end) / 2.0);
        let _ = writeln!(
            html,
            "<svg viewBox=\"0 0 {whole:.0} {HEIGHT}\" width=\"{whole:.0}\" height=\"{HEIGHT}\" aria-hidden=\"true\">"
        );
        for (row, x2) in to.iter().enumerate() {
            for (column, x1) in from.iter().enumerate() {
                let share = self.weights.share(self.weights.at(row, column)).abs();
                if share < LEAST {
                    continue;
                }
                let (x1, x2) = (x1 + from_shift, x2 + to_shift);
                let (y1, y2) = (TOP + 6.0, BOTTOM - 14.0);
                let middle = (y1 + y2) / 2.0;
                let _ = writeln!(
                    html,
                    "<path d=\"M{x1:.1} {y1}C{x1:.1} {middle} {x2:.1} {middle} {x2:.1} {y2}\" \
                     stroke-opacity=\"{:.2}\" stroke-width=\"{:.1}\"/>",
                    0.15 + 0.85 * share,
                    0.6 + 3.4 * share
                );
            }
        }
        for (texts, places, shift, y) in [
            (&source, &from, from_shift, TOP),
            (&target, &to, to_shift, BOTTOM + 4.0),
        ] {
            for (text, x) in texts.iter().zip(places) {
                let (x, text) = (x + shift, escape(text));
                let _ = writeln!(html, "<text x=\"{x:.1}\" y=\"{y}\">{text}</text>");
            }
        }
        html.push_str("</svg>\n");
    }
}

/// The middle of each token on a line of them, and where the line ends.
fn places(texts: &[String]) -> (Vec<f64>, f64) {
    let mut end = 0.0;
    let places = texts
        .iter()
        .map(|text| {
            let room = (width(text) * 1.1 + 14.0).max(24.0);
            end += room;
            end - room / 2.0
        })
        .collect();
    (places, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heat::tests::words;

    #[test]
    fn strands_are_drawn_where_there_is_weight() {
        let weights = Matrix::new(2, 3, vec![0.97, 0.03, 0.0, 0.1, 0.3, 0.6]).unwrap();
        let alignment = Alignment::new("t", words("3rd <of> May"), words("05 好"), weights);
        let mut html = String::new();
        alignment.unwrap().write(&mut html);
        // 0.03 of 0.97 is too little, and nothing is nothing.
        assert_eq!(html.matches("<path").count(), 4);
        assert!(
            html.contains("&lt;of&gt;</text>") && html.contains("好</text>"),
            "{html}"
        );
    }

    #[test]
    fn sizes_must_agree() {
        let weights = Matrix::new(2, 3, vec![0.5; 6]).unwrap();
        let turned = Alignment::new("t", words("a b"), words("x y z"), weights);
        let error = turned.unwrap_err().to_string();
        assert!(
            error.contains("2 rows and 3 columns for 3 queries and 2 keys"),
            "{error}"
        );
    }

    #[test]
    fn tokens_do_not_overlap() {
        let texts = words("a internationalisation 好久不见 b");
        let (places, end) = places(&texts);
        for (at, pair) in places.windows(2).enumerate() {
            let needed = (width(&texts[at]) + width(&texts[at + 1])) / 2.0;
            assert!(pair[1] - pair[0] > needed);
        }
        assert!(places[3] < end);
    }
}
