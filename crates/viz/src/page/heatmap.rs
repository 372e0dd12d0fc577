//! Interactive heatmap of a page: sticky axes, and a canvas drawn by the script.
//!
//! Weights are embedded as 16-bit integers in base64, a third of the size of decimals.

use std::fmt::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::text::width;
use crate::{Heatmap, Matrix, escape, visible};

/// Writes a heatmap with its controls and the weights of `layers`, of which layer and head can be
/// selected, or of the map itself.
pub(super) fn heatmap(html: &mut String, map: &Heatmap<'_>, layers: Option<&[Vec<Matrix>]>) {
    html.push_str("<div class=\"controls\">\n");
    let mut matrices = vec![];
    if let Some(layers) = layers {
        select(html, "layer", layers.len());
        select(html, "head", layers.iter().map(Vec::len).max().unwrap_or(1));
        for (layer, heads) in layers.iter().enumerate() {
            let heads = heads.iter().enumerate();
            matrices.extend(heads.map(|(head, matrix)| (layer, head, matrix)));
        }
    } else {
        matrices.push((0, 0, map.weights));
    }
    // Cells of short texts are larger; labels of long texts must be readable.
    let longest = map.queries.len().max(map.keys.len());
    let cell = (560 / longest.max(1)).clamp(16, 34);
    let gamma = has_small_weights(matrices.iter().map(|(.., matrix)| *matrix));
    let gamma = if gamma { " checked" } else { "" };
    let shared = layers.map_or("", |_| "<option value=\"shared\">shared</option>");
    let _ = write!(
        html,
        "<label>colour scale: <select class=\"colour-scale\"><option value=\"head\">per head</option>\
         <option value=\"row\">per row</option>{shared}</select></label>\n\
         <label><input class=\"gamma\" type=\"checkbox\"{gamma}>gamma (show small weights)</label>\n\
         <label>size <input class=\"size\" type=\"range\" min=\"14\" max=\"48\" value=\"{cell}\"></label>\n\
         <span class=\"scale\" aria-hidden=\"true\"><span class=\"min\"></span><canvas width=\"128\" height=\"1\">\
         </canvas><span class=\"max\"></span></span>\n</div>\n\
         <div class=\"map\" tabindex=\"0\" role=\"group\" style=\"--cell:{cell}px\" aria-label=\"{}: weights. \
         Use the arrow keys to move between cells, Home and End within a row, Page Up and Page Down within a \
         column\">\n<div class=\"grid\">\n<div class=\"corner\" aria-hidden=\"true\"></div>\n",
        escape(&map.title)
    );
    labels(html, "keys", map.keys);
    labels(html, "queries", map.queries);
    let _ = write!(
        html,
        "<div class=\"cells\"><canvas width=\"{}\" height=\"{}\" aria-hidden=\"true\"></canvas>\
         <div class=\"cursor\" hidden></div></div>\n</div>\n</div>\n\
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

/// Whether most rows would be pale, because the largest weight is far above theirs. The first query
/// of causal attention has only one visible key, so its weight is always 1.
fn has_small_weights<'a>(matrices: impl Iterator<Item = &'a Matrix>) -> bool {
    let mut largest = Vec::new();
    for matrix in matrices {
        for row in matrix.weights().chunks(matrix.columns()) {
            let weights = row.iter().map(|weight| matrix.normalized(*weight).abs());
            largest.push(weights.fold(0.0, f32::max));
        }
    }
    largest.sort_by(f32::total_cmp);
    let median = largest.get(largest.len() / 2);
    median.is_some_and(|median| *median < 0.5)
}

fn select(html: &mut String, name: &str, count: usize) {
    let _ = write!(html, "<label>{name} <select class=\"{name}\">");
    for i in 0..count {
        let _ = write!(html, "<option value=\"{i}\">{}</option>", i + 1);
    }
    if name == "head" && count > 1 {
        html.push_str("<option value=\"mean\">mean of all heads</option>");
    }
    html.push_str("</select></label>\n");
}

/// Writes the labels of an axis. Truncated labels have a tooltip.
fn labels(html: &mut String, class: &str, tokens: &[String]) {
    let _ = write!(html, "<div class=\"{class}\" aria-hidden=\"true\">");
    for token in tokens {
        let text = escape(&visible(token));
        // Single characters are horizontal, even if longer labels are vertical.
        let class = match token.chars().count() {
            0 | 1 => " class=\"single\"",
            _ => "",
        };
        // Approximate width at which the style sheet truncates.
        let title = (width(token) > 110.0).then(|| format!(" title=\"{text}\""));
        let title = title.unwrap_or_default();
        let _ = write!(html, "<span{class}{title}>{text}</span>");
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
        labels(&mut html, "keys", &tokens);
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
