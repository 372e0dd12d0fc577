//! Heatmaps of all heads: an overview of all layers and heads, and one large heatmap.

use std::fmt::Write;

use super::heatmap::{MapControls, heatmap};
use crate::heatmap::{AXES, check};
use crate::{Heatmap, Matrix, VizError, escape};

/// Attention weights of all layers and heads of an encoder, a decoder or cross-attention.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadMaps {
    title: String,
    axes: [String; 2],
    queries: Vec<String>,
    /// Positions of the queries in their sequence, from 0.
    positions: Vec<usize>,
    keys: Vec<String>,
    layers: Vec<Vec<Matrix>>,
}

impl HeadMaps {
    /// Creates maps from weights by layer and head, with a row for each of `queries` and a column
    /// for each of `keys`.
    ///
    /// # Errors
    ///
    /// If there are no layers, heads or tokens, or the weights do not match the number of tokens.
    pub fn new(
        title: impl Into<String>,
        queries: Vec<String>,
        keys: Vec<String>,
        layers: Vec<Vec<Matrix>>,
    ) -> Result<Self, VizError> {
        let title = title.into();
        if layers.is_empty() {
            return Err(VizError(format!("{title}: no layers")));
        }
        for (layer, heads) in (1..).zip(&layers) {
            if heads.is_empty() {
                return Err(VizError(format!("{title}: layer {layer} has no heads")));
            }
            for (head, matrix) in (1..).zip(heads) {
                check(&title, (layer, head), &queries, &keys, matrix)?;
            }
        }
        Ok(Self {
            title,
            axes: AXES.map(str::to_owned),
            positions: (0..queries.len()).collect(),
            queries,
            keys,
            layers,
        })
    }

    /// Titles of the axes, instead of "query" and "key".
    pub fn with_axes(mut self, query: &str, key: &str) -> Self {
        self.axes = [query, key].map(str::to_owned);
        self
    }

    /// Positions of the queries in their sequence, from 0, if they are a selection.
    ///
    /// # Errors
    ///
    /// If their number is not that of the queries.
    pub fn with_query_positions(mut self, positions: Vec<usize>) -> Result<Self, VizError> {
        if positions.len() != self.queries.len() {
            return Err(VizError(format!(
                "{}: {} positions for {} queries",
                self.title,
                positions.len(),
                self.queries.len()
            )));
        }
        self.positions = positions;
        Ok(self)
    }

    /// Layer and head with the lowest [entropy](Matrix::entropy), counted from 1, among those of
    /// the given layer or with the given number; the first if no head has an entropy.
    pub fn sharpest(&self, layer: Option<usize>, head: Option<usize>) -> Option<(usize, usize)> {
        let mut sharpest: Option<(f64, (usize, usize))> = None;
        for (i, heads) in (1..).zip(&self.layers) {
            for (j, matrix) in (1..).zip(heads) {
                if layer.is_some_and(|layer| layer != i) || head.is_some_and(|head| head != j) {
                    continue;
                }
                let entropy = matrix.entropy().unwrap_or(f64::INFINITY);
                if sharpest.is_none_or(|(lowest, _)| entropy < lowest) {
                    sharpest = Some((entropy, (i, j)));
                }
            }
        }
        sharpest.map(|(_, index)| index)
    }

    /// Heatmap of one head for SVG or PNG output. Layer and head are counted from 1.
    ///
    /// # Errors
    ///
    /// If the layer or head is out of range.
    pub fn head(&self, layer: usize, head: usize) -> Result<Heatmap<'_>, VizError> {
        let title = &self.title;
        let out_of_range = |what: String, count: usize| {
            VizError(format!("{title}: {what} is out of range 1..={count}"))
        };
        let heads = layer.checked_sub(1).and_then(|i| self.layers.get(i));
        let heads =
            heads.ok_or_else(|| out_of_range(format!("layer {layer}"), self.layers.len()))?;
        let matrix = head.checked_sub(1).and_then(|i| heads.get(i));
        let matrix = matrix
            .ok_or_else(|| out_of_range(format!("head {head} of layer {layer}"), heads.len()))?;
        Ok(self.heatmap(format!("{title}, layer {layer}, head {head}"), matrix))
    }

    fn heatmap<'a>(&'a self, title: String, weights: &'a Matrix) -> Heatmap<'a> {
        let [query, key] = &self.axes;
        Heatmap {
            title,
            axes: [query, key],
            queries: &self.queries,
            keys: &self.keys,
            weights,
        }
    }

    /// Title of the section.
    pub fn title(&self) -> &str {
        &self.title
    }

    pub(super) fn write(&self, html: &mut String) {
        let title = escape(&self.title);
        let count = self.layers.len();
        let plural = if count == 1 { "" } else { "s" };
        let _ = write!(
            html,
            "<p class=\"soft\">{count} layer{plural}. Below each head: the mean entropy of its rows in bits, \
             lower is sharper. Select a head; the sharpest is selected first.</p>\n\
             <div class=\"overview\" role=\"group\" aria-label=\"{title}: all heads\">\n",
        );
        for (layer, heads) in self.layers.iter().enumerate() {
            let name = format!("<span class=\"name\">layer {}</span>", layer + 1);
            let _ = writeln!(html, "<div class=\"row\">{name}");
            for (head, matrix) in heads.iter().enumerate() {
                let entropy = matrix.entropy().map(|bits| format!("{bits:.2}"));
                let entropy = entropy.unwrap_or_else(|| "-".to_owned());
                let _ = writeln!(
                    html,
                    "<button type=\"button\" data-layer=\"{layer}\" data-head=\"{head}\" tabindex=\"-1\" \
                     aria-label=\"layer {}, head {}, entropy {entropy} bits\"><canvas aria-hidden=\"true\"></canvas>\
                     <span class=\"number\">{1}</span><span class=\"entropy\">{entropy}</span></button>",
                    layer + 1,
                    head + 1
                );
            }
            html.push_str("</div>\n");
        }
        html.push_str("</div>\n");
        let (layer, head) = self.sharpest(None, None).unwrap_or((1, 1));
        let map = self.heatmap(self.title.clone(), &self.layers[layer - 1][head - 1]);
        let controls = MapControls {
            layers: Some(&self.layers),
            selected: (layer - 1, head - 1),
            positions: Some(&self.positions),
        };
        heatmap(html, &map, &controls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heatmap::tests::words;

    fn maps(layers: Vec<Vec<Matrix>>) -> Result<HeadMaps, VizError> {
        HeadMaps::new("Encoder", words("a b"), words("x y z"), layers)
    }

    #[test]
    fn page_contains_every_head() {
        let matrix = Matrix::new(2, 3, vec![0.5; 6]).unwrap();
        let maps = maps(vec![vec![matrix.clone(); 3], vec![matrix]]).unwrap();
        let mut html = String::new();
        maps.write(&mut html);
        assert_eq!(html.matches("<button").count(), 4);
        assert_eq!(html.matches("class=\"weights\"").count(), 4);
        assert!(maps.clone().with_query_positions(vec![7]).is_err());
        let svg = maps.head(1, 3).unwrap().to_svg();
        assert!(svg.contains("Encoder, layer 1, head 3"));
    }

    #[test]
    fn sharpest_head_is_selected() {
        let flat = Matrix::new(2, 3, vec![0.5; 6]).unwrap();
        let sharp = Matrix::new(2, 3, vec![0.9, 0.1, 0.0, 0.0, 1.0, 0.0]).unwrap();
        let negative = Matrix::new(2, 3, vec![-1.0; 6]).unwrap();
        let layers = vec![vec![flat.clone(), negative], vec![flat, sharp]];
        let maps = maps(layers).unwrap().with_query_positions(vec![4, 900]);
        let maps = maps.unwrap().with_axes("query (target)", "key (source)");
        assert_eq!(maps.sharpest(None, None), Some((2, 2)));
        assert_eq!(maps.sharpest(Some(1), None), Some((1, 1)));
        assert_eq!(maps.sharpest(None, Some(1)), Some((1, 1)));
        assert_eq!(maps.sharpest(Some(3), None), None);
        let mut html = String::new();
        maps.write(&mut html);
        for part in [
            "<option value=\"1\" selected>2</option>",
            "layer 2, head 2, entropy 0.23 bits",
            "<span class=\"entropy\">-</span>",
            "<span class=\"single\" data-position=\"901\">b",
            "query (target)",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }

    #[test]
    fn invalid_layers_and_heads_are_rejected() {
        let message = |result: Result<HeadMaps, VizError>| result.unwrap_err().to_string();
        assert_eq!(message(maps(vec![])), "Encoder: no layers");
        assert_eq!(message(maps(vec![vec![]])), "Encoder: layer 1 has no heads");
        let matrix = Matrix::new(2, 3, vec![0.5; 6]).unwrap();
        let transposed = Matrix::new(3, 2, vec![0.5; 6]).unwrap();
        let wrong = maps(vec![vec![matrix.clone()], vec![matrix.clone(), transposed]]);
        assert!(message(wrong).starts_with("Encoder, layer 2, head 2: 3 rows and 2 columns"));
        let maps = maps(vec![vec![matrix]]).unwrap();
        for (layer, head, expected) in [
            (0, 1, "Encoder: layer 0 is out of range 1..=1"),
            (2, 1, "Encoder: layer 2 is out of range 1..=1"),
            (1, 0, "Encoder: head 0 of layer 1 is out of range 1..=1"),
            (1, 2, "Encoder: head 2 of layer 1 is out of range 1..=1"),
        ] {
            let error = maps.head(layer, head).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
