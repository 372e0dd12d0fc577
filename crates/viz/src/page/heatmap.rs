//! Interactive heatmap of a page: sticky axes, and a canvas drawn by the script.
//!
//! Weights are embedded as 16-bit integers in base64, a third of the size of decimals.

use std::fmt::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::text::width;
use crate::{Heatmap, Matrix, escape, visible};

/// What can be selected in a heatmap.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MapControls<'a> {
    /// Weights by layer and head; those of the map itself if there is no choice.
    pub(super) layers: Option<&'a [Vec<Matrix>]>,
    /// Layer and head that are shown first, from 0.
    pub(super) selected: (usize, usize),
    /// Positions of the queries, from 0, if they are a selection.
    pub(super) positions: Option<&'a [usize]>,
}

/// Writes a heatmap with its controls, and the lines between its tokens.
pub(super) fn heatmap(html: &mut String, map: &Heatmap<'_>, controls: &MapControls<'_>) {
    html.push_str("<div class=\"controls\">\n");
    let mut matrices = vec![];
    let layers = controls.layers;
    if let Some(layers) = layers {
        let (layer, head) = controls.selected;
        select(html, "layer", layers.len(), layer);
        let heads = layers.iter().map(Vec::len).max().unwrap_or(1);
        select(html, "head", heads, head);
        for (layer, heads) in layers.iter().enumerate() {
            let heads = heads.iter().enumerate();
            matrices.extend(heads.map(|(head, matrix)| (layer, head, matrix)));
        }
    } else {
        matrices.push((0, 0, map.weights));
    }
    // Cells of short texts are larger; labels of long texts must be readable.
    let longest = map.queries.len().max(map.keys.len());
    let cell = match longest {
        0..LONG => (560 / longest.max(1)).clamp(16, 34),
        // The whole text at a glance; labels are shown when it is enlarged.
        _ => (1200 / longest).max(2),
    };
    let smallest = if longest < LONG { 14 } else { 1 };
    let gamma = has_small_weights(matrices.iter().map(|(.., matrix)| *matrix));
    let gamma = if gamma { " checked" } else { "" };
    let (shared, head) = match layers {
        Some(_) => ("<option value=\"shared\">shared</option>", "per head"),
        None => ("", "shared"),
    };
    let [query, key] = map.axes.map(escape);
    let _ = write!(
        html,
        "<label>colour scale: <select class=\"colour-scale\">{shared}<option value=\"head\">{head}</option>\
         <option value=\"row\">per row</option></select></label>\n\
         <label><input class=\"gamma\" type=\"checkbox\"{gamma}>gamma (show small weights)</label>\n\
         <label>size <input class=\"size\" type=\"range\" min=\"{smallest}\" max=\"48\" value=\"{cell}\"></label>\n\
         <span class=\"scale\" aria-hidden=\"true\"><span class=\"min\"></span><canvas width=\"128\" height=\"1\">\
         </canvas><span class=\"max\"></span></span>\n</div>\n\
         <div class=\"views\"><div class=\"map\" tabindex=\"0\" role=\"group\" style=\"--cell:{cell}px\" aria-label=\"{}: weights. \
         Use the arrow keys to move between cells, Home and End within a row, Page Up and Page Down within a \
         column\">\n<div class=\"grid\">\n<div class=\"corner\" aria-hidden=\"true\"><span class=\"query-title\">{query} ↓\
         </span><span class=\"key-title\">{key} →</span></div>\n",
        escape(&map.title)
    );
    labels(html, "keys", map.keys, None);
    labels(html, "queries", map.queries, controls.positions);
    let _ = write!(
        html,
        "<div class=\"cells\"><canvas width=\"{}\" height=\"{}\" aria-hidden=\"true\"></canvas>\
         <div class=\"cursor\" hidden></div></div>\n</div>\n</div>\n\
         <div class=\"links\"><p class=\"soft\">{key} above, {query} below; lines are as strong as their weights. \
         Point at a token to see only its lines.</p><div class=\"links-scroll\"><svg aria-hidden=\"true\"></svg></div></div></div>\n\
         <p class=\"visually-hidden\" role=\"status\"></p>\n",
        map.keys.len(),
        map.queries.len()
    );
    // The script draws the embedded weights.
    for (layer, head, matrix) in matrices {
        let (low, high) = matrix.range();
        let data = encode(matrix);
        let _ = writeln!(
            html,
            "<script type=\"text/plain\" class=\"weights\" data-layer=\"{layer}\" data-head=\"{head}\" \
             data-low=\"{low}\" data-high=\"{high}\">{data}</script>"
        );
    }
}

/// More tokens than this have small cells without labels.
const LONG: usize = 300;

/// Whether most rows would be pale on the shared colour scale, because the largest weight is far
/// above theirs. The first query of causal attention has only one visible key, so its weight is
/// always 1.
fn has_small_weights<'a>(matrices: impl Iterator<Item = &'a Matrix>) -> bool {
    let mut largest = Vec::new();
    for matrix in matrices {
        for row in matrix.weights().chunks(matrix.columns()) {
            largest.push(row.iter().map(|weight| weight.abs()).fold(0.0, f32::max));
        }
    }
    largest.sort_by(f32::total_cmp);
    let median = largest.get(largest.len() / 2);
    let max = largest.last();
    median
        .zip(max)
        .is_some_and(|(median, max)| *median < 0.5 * max)
}

fn select(html: &mut String, name: &str, count: usize, selected: usize) {
    let _ = write!(html, "<label>{name} <select class=\"{name}\">");
    for i in 0..count {
        let selected = if i == selected { " selected" } else { "" };
        let _ = write!(html, "<option value=\"{i}\"{selected}>{}</option>", i + 1);
    }
    if name == "head" && count > 1 {
        html.push_str("<option value=\"mean\">mean of all heads</option>");
    }
    html.push_str("</select></label>\n");
}

/// Writes the labels of an axis. Truncated labels have a tooltip.
fn labels(html: &mut String, class: &str, tokens: &[String], positions: Option<&[usize]>) {
    let _ = write!(html, "<div class=\"{class}\" aria-hidden=\"true\">");
    for (i, token) in tokens.iter().enumerate() {
        let text = escape(&visible(token));
        // Single characters are horizontal, even if longer labels are vertical.
        let class = match token.chars().count() {
            0 | 1 => " class=\"single\"",
            _ => "",
        };
        // Approximate width at which the style sheet truncates.
        let title = (width(token) > 110.0).then(|| format!(" title=\"{text}\""));
        let title = title.unwrap_or_default();
        // Counted from 1; that of others is their index.
        let position = positions.map(|positions| positions[i]).filter(|p| *p != i);
        let position = position.map(|position| format!(" data-position=\"{}\"", position + 1));
        let position = position.unwrap_or_default();
        let _ = write!(html, "<span{class}{title}{position}>{text}</span>");
    }
    html.push_str("</div>\n");
}

/// Encodes weights as 16-bit integers over their range, in base64.
fn encode(matrix: &Matrix) -> String {
    let (low, high) = matrix.range();
    let mut bytes = Vec::with_capacity(2 * matrix.weights().len());
    for weight in matrix.weights() {
        // 0/0 of an empty range is NaN, which is converted to 0.
        let fraction = (weight - low) / (high - low);
        let step = (fraction * f32::from(u16::MAX)).round() as u16;
        bytes.extend(step.to_le_bytes());
    }
    BASE64_STANDARD.encode(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_is_enabled_for_small_weights() {
        let sharp = Matrix::new(2, 2, vec![1.0, 0.0, 0.2, 0.8]).unwrap();
        let mut causal = vec![0.0; 64];
        for row in 0..8 {
            causal[8 * row..=9 * row].fill(1.0 / (row + 1) as f32);
        }
        let causal = Matrix::new(8, 8, causal).unwrap();
        assert!(!has_small_weights([&sharp].into_iter()));
        assert!(has_small_weights([&causal].into_iter()));
        assert!(!has_small_weights([].into_iter()));
    }

    #[test]
    fn single_characters_and_tooltips_of_labels() {
        let mut html = String::new();
        let tokens = ["好".to_owned(), "ab".to_owned(), "x".repeat(40)];
        labels(&mut html, "keys", &tokens, None);
        assert!(html.contains("<span class=\"single\">好</span><span>ab</span><span title=\"xxx"));
    }

    #[test]
    fn weights_are_encoded_over_their_range() {
        // 0, 65535 and 32768, little-endian.
        let some = Matrix::new(1, 3, vec![-0.5, 0.5, 0.0]).unwrap();
        assert_eq!(encode(&some), "AAD//wCA");
        let zeros = Matrix::new(1, 1, vec![0.0]).unwrap();
        assert_eq!(encode(&zeros), "AAA=");
    }
}
