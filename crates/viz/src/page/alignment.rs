//! Alignment of a sequence-to-sequence model: lines between source and target tokens, and a
//! heatmap.

use super::heatmap::{MapControls, heatmap};
use crate::heatmap::check;
use crate::{Heatmap, Matrix, VizError};

/// Cross-attention weights between target and source tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Alignment {
    pub(super) title: String,
    source: Vec<String>,
    target: Vec<String>,
    weights: Matrix,
}

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
            axes: ["query (target)", "key (source)"],
            queries: &self.target,
            keys: &self.source,
            weights: &self.weights,
        }
    }

    pub(super) fn write(&self, html: &mut String) {
        heatmap(html, &self.heatmap(), &MapControls::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heatmap::tests::words;

    #[test]
    fn mismatched_sizes_are_rejected() {
        let weights = Matrix::new(2, 3, vec![0.5; 6]).unwrap();
        let transposed = Alignment::new("t", words("a b"), words("x y z"), weights);
        let error = transposed.unwrap_err().to_string();
        let expected = "2 rows and 3 columns for 3 queries and 2 keys";
        assert!(error.contains(expected), "{error}");
    }
}
