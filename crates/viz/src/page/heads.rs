//! The heads of a stack of layers: all of them small, one of them large.

use std::fmt::Write;

use super::map::{map, weights};
use crate::heat::check;
use crate::{Heat, Matrix, PictureError, escape};

/// The weights of every head of every layer of an encoder, a decoder or what lies between.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadMaps {
    title: String,
    queries: Vec<String>,
    keys: Vec<String>,
    layers: Vec<Vec<Matrix>>,
}

impl HeadMaps {
    /// Weights by layer and head, a row for each of `queries` and a column for each of `keys`.
    ///
    /// # Errors
    ///
    /// If there is nothing to show, or a matrix does not have the size of the tokens.
    pub fn new(
        title: impl Into<String>,
        queries: Vec<String>,
        keys: Vec<String>,
        layers: Vec<Vec<Matrix>>,
    ) -> Result<Self, PictureError> {
        let title = title.into();
        if layers.is_empty() {
            return Err(no_layer(&title, 1, 0));
        }
        for (layer, heads) in layers.iter().enumerate() {
            if heads.is_empty() {
                return Err(no_head(&title, layer + 1, 1, 0));
            }
            for (head, matrix) in heads.iter().enumerate() {
                check(&title, (layer + 1, head + 1), &queries, &keys, matrix)?;
            }
        }
        Ok(Self {
            title,
            queries,
            keys,
            layers,
        })
    }

    /// One of them, by layer and head from 1, for an SVG or a PNG.
    ///
    /// # Errors
    ///
    /// If there is no such layer, or it has no such head.
    pub fn head(&self, layer: usize, head: usize) -> Result<Heat<'_>, PictureError> {
        let heads = layer.checked_sub(1).and_then(|at| self.layers.get(at));
        let heads = heads.ok_or_else(|| no_layer(&self.title, layer, self.layers.len()))?;
        let matrix = head.checked_sub(1).and_then(|at| heads.get(at));
        let matrix = matrix.ok_or_else(|| no_head(&self.title, layer, head, heads.len()))?;
        Ok(Heat {
            title: format!("{}, layer {layer}, head {head}", self.title),
            queries: &self.queries,
            keys: &self.keys,
            weights: matrix,
        })
    }

    /// What it shows.
    pub fn title(&self) -> &str {
        &self.title
    }

    pub(super) fn write(&self, html: &mut String) {
        let title = escape(&self.title);
        let _ = write!(
            html,
            "<p class=\"soft\">{} {}. A row is a token that attends, a column one that is \
             attended to. Choose a head below, or in the grid of all of them.</p>\n\
             <div class=\"overview\" role=\"group\" aria-label=\"{title}: all heads\">\n",
            self.layers.len(),
            match self.layers.len() {
                1 => "layer",
                _ => "layers",
            }
        );
        for (layer, heads) in self.layers.iter().enumerate() {
            let _ = writeln!(
                html,
                "<div class=\"row\"><span class=\"name\">layer {}</span>",
                layer + 1
            );
            for head in 0..heads.len() {
                let _ = writeln!(
                    html,
                    "<button type=\"button\" data-layer=\"{layer}\" data-head=\"{head}\" tabindex=\"-1\" \
                     aria-label=\"layer {}, head {}\"><canvas aria-hidden=\"true\"></canvas>\
                     <span>{1}</span></button>",
                    layer + 1,
                    head + 1
                );
            }
            html.push_str("</div>\n");
        }
        html.push_str("</div>\n");
        let heads: Vec<usize> = self.layers.iter().map(Vec::len).collect();
        let all: Vec<&Matrix> = self.layers.iter().flatten().collect();
        map(
            html,
            &self.title,
            Some(&heads),
            &self.queries,
            &self.keys,
            &all,
        );
        for (layer, heads) in self.layers.iter().enumerate() {
            for (head, matrix) in heads.iter().enumerate() {
                weights(html, layer, head, matrix);
            }
        }
    }
}

fn no_layer(title: &str, layer: usize, layers: usize) -> PictureError {
    PictureError(format!(
        "{title} has no layer {layer}: it has {layers}, counted from 1"
    ))
}

fn no_head(title: &str, layer: usize, head: usize, heads: usize) -> PictureError {
    PictureError(format!(
        "layer {layer} of {title} has no head {head}: it has {heads}, counted from 1"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heat::tests::words;

    fn maps(layers: Vec<Vec<Matrix>>) -> Result<HeadMaps, PictureError> {
        HeadMaps::new("Encoder", words("a b"), words("x y z"), layers)
    }

    #[test]
    fn every_head_is_there() {
        let matrix = Matrix::new(2, 3, vec![0.5; 6]).unwrap();
        let maps = maps(vec![vec![matrix.clone(); 3], vec![matrix]]).unwrap();
        let mut html = String::new();
        maps.write(&mut html);
        assert_eq!(html.matches("<button").count(), 4);
        assert_eq!(html.matches("class=\"weights\"").count(), 4);
        let svg = maps.head(1, 3).unwrap().to_svg();
        assert!(svg.contains("Encoder, layer 1, head 3"));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let said = |result: Result<HeadMaps, PictureError>| result.unwrap_err().to_string();
        assert_eq!(
            said(maps(vec![])),
            "Encoder has no layer 1: it has 0, counted from 1"
        );
        assert!(said(maps(vec![vec![]])).starts_with("layer 1 of Encoder has no head 1"));
        let matrix = Matrix::new(2, 3, vec![0.5; 6]).unwrap();
        let turned = Matrix::new(3, 2, vec![0.5; 6]).unwrap();
        let wrong = maps(vec![vec![matrix.clone()], vec![matrix.clone(), turned]]);
        assert!(said(wrong).starts_with("Encoder, layer 2, head 2: 3 rows and 2 columns"));
        let maps = maps(vec![vec![matrix]]).unwrap();
        for (layer, head) in [(0, 1), (2, 1), (1, 0), (1, 2)] {
            assert!(maps.head(layer, head).is_err(), "{layer} {head}");
        }
    }
}
