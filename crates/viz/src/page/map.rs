//! A large heat map in a page: axes that stay in sight, and a canvas that the script fills.
//!
//! Weights are text in a page: 16 bits each, in base64. As decimals they would take three times the
//! room.

use std::fmt::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::text::width;
use crate::{Matrix, escape, visible};

/// A map of the queries against the keys. `heads` is how many each layer has, where a layer and a
/// head can be chosen.
pub(super) fn map(
    html: &mut String,
    title: &str,
    heads: Option<&[usize]>,
    queries: &[String],
    keys: &[String],
    matrices: &[&Matrix],
) {
    html.push_str("<div class=\"controls\">\n");
    if let Some(heads) = heads {
        choice(html, "layer", heads.len());
        choice(html, "head", heads.iter().copied().max().unwrap_or(1));
    }
    // Few tokens can be large; many still need letters that can be read.
    let longest = queries.len().max(keys.len());
    let cell = (560 / longest.max(1)).clamp(16, 34);
    let lifted = if are_small(matrices) { " checked" } else { "" };
    let shades = match heads {
        Some(_) => {
            "<option value=\"head\">the largest of this head</option>\
             <option value=\"all\">the largest of all heads</option>\
             <option value=\"row\">the largest of each row</option>"
        }
        None => {
            "<option value=\"head\">the largest of all</option>\
             <option value=\"row\">the largest of each row</option>"
        }
    };
    let _ = write!(
        html,
        "<label>full shade is <select class=\"by\">{shades}</select></label>\n\
         <label><input class=\"lift\" type=\"checkbox\"{lifted}>lift small weights</label>\n\
         <label>size <input class=\"size\" type=\"range\" min=\"14\" max=\"48\" value=\"{cell}\"></label>\n\
         <span class=\"scale\" aria-hidden=\"true\"><span class=\"least\"></span><canvas width=\"128\" height=\"1\">\
         </canvas><span class=\"most\"></span></span>\n</div>\n\
         <div class=\"map\" tabindex=\"0\" role=\"group\" style=\"--cell:{cell}px\" aria-label=\"{}: weights. \
         Arrow keys go from cell to cell, Home and End to the ends of a row, Page Up and Page Down to the ends \
         of a column\">\n<div class=\"grid\">\n<div class=\"corner\" aria-hidden=\"true\"></div>\n",
        escape(title)
    );
    labels(html, "keys", keys);
    labels(html, "queries", queries);
    let _ = write!(
        html,
        "<div class=\"cells\"><canvas width=\"{}\" height=\"{}\" aria-hidden=\"true\"></canvas>\
         <div class=\"cursor\" hidden></div></div>\n</div>\n</div>\n\
         <p class=\"hidden\" role=\"status\"></p>\n",
        keys.len(),
        queries.len()
    );
}

/// Whether most rows would be pale: the largest weight of all is far above theirs. The first
/// query of a causal attention sees itself alone, so that its weight is always 1.
fn are_small(matrices: &[&Matrix]) -> bool {
    let mut largest = Vec::new();
    for matrix in matrices {
        for row in matrix.weights().chunks(matrix.columns()) {
            let weights = row.iter().map(|weight| matrix.share(*weight).abs());
            largest.push(weights.fold(0.0, f32::max));
        }
    }
    largest.sort_by(f32::total_cmp);
    largest
        .get(largest.len() / 2)
        .is_some_and(|middle| *middle < 0.5)
}

fn choice(html: &mut String, what: &str, count: usize) {
    let _ = write!(html, "<label>{what} <select class=\"{what}\">");
    for at in 0..count {
        let _ = write!(html, "<option value=\"{at}\">{}</option>", at + 1);
    }
    if what == "head" && count > 1 {
        html.push_str("<option value=\"mean\">mean of all</option>");
    }
    html.push_str("</select></label>\n");
}

/// Tokens along a side. Those cut off have their whole text in a title.
fn labels(html: &mut String, class: &str, tokens: &[String]) {
    let _ = write!(html, "<div class=\"{class}\" aria-hidden=\"true\">");
    for token in tokens {
        let text = escape(&visible(token));
        // A single letter stands upright, also where longer labels run downwards.
        let class = match token.chars().count() {
            0 | 1 => " class=\"one\"",
            _ => "",
        };
        // More than the style sheet has room for, about.
        let title = match width(token) > 110.0 {
            true => format!(" title=\"{text}\""),
            false => String::new(),
        };
        let _ = write!(html, "<span{class}{title}>{text}</span>");
    }
    html.push_str("</div>\n");
}

/// The numbers of a matrix, for the script.
pub(super) fn weights(html: &mut String, layer: usize, head: usize, matrix: &Matrix) {
    let (low, high) = matrix.range();
    let text = packed(matrix);
    let _ = writeln!(
        html,
        "<script type=\"text/plain\" class=\"weights\" data-layer=\"{layer}\" data-head=\"{head}\" \
         data-low=\"{low}\" data-high=\"{high}\">{text}</script>"
    );
}

/// The weights of a matrix in steps between the ends of its range.
fn packed(matrix: &Matrix) -> String {
    let (low, high) = matrix.range();
    let whole = high - low;
    let mut bytes = Vec::with_capacity(2 * matrix.weights().len());
    for weight in matrix.weights() {
        let share = if whole > 0.0 {
            (weight - low) / whole
        } else {
            0.0
        };
        let step = (share * f32::from(u16::MAX)).round() as u16;
        bytes.extend(step.to_le_bytes());
    }
    BASE64_STANDARD.encode(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_weights_are_lifted() {
        let sharp = Matrix::new(2, 2, vec![1.0, 0.0, 0.2, 0.8]).unwrap();
        let mut causal = vec![0.0; 64];
        for row in 0..8 {
            causal[8 * row..=9 * row].fill(1.0 / (row + 1) as f32);
        }
        let causal = Matrix::new(8, 8, causal).unwrap();
        assert!(!are_small(&[&sharp]));
        assert!(are_small(&[&causal]));
        assert!(!are_small(&[]));
    }

    #[test]
    fn labels_stand_upright_or_tell_what_is_cut() {
        let mut html = String::new();
        labels(
            &mut html,
            "keys",
            &["好".to_owned(), "ab".to_owned(), "x".repeat(40)],
        );
        assert!(html.contains("<span class=\"one\">好</span><span>ab</span><span title=\"xxx"));
    }

    #[test]
    fn weights_are_steps_of_their_range() {
        // 0, 65535 and 32768, the low byte first.
        let some = Matrix::new(1, 3, vec![-0.5, 0.5, 0.0]).unwrap();
        assert_eq!(packed(&some), "AAD//wCA");
        let zeros = Matrix::new(1, 1, vec![0.0]).unwrap();
        assert_eq!(packed(&zeros), "AAA=");
    }
}
