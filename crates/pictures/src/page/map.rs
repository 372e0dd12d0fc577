//! A large heat map in a page: axes that stay in sight, and a canvas that the script fills.

use std::fmt::Write;

use super::pack::pack;
use crate::text::width;
use crate::{Matrix, escape, visible};

/// What can be chosen.
pub(super) enum Controls<'a> {
    /// A layer and a head of it; how many each has.
    Heads(&'a [usize]),
    /// Nothing: there is one matrix.
    One,
}

/// A map of the queries against the keys.
pub(super) fn map(
    html: &mut String,
    title: &str,
    controls: Controls<'_>,
    queries: &[String],
    keys: &[String],
) {
    html.push_str("<div class=\"controls\">\n");
    if let Controls::Heads(heads) = controls {
        choice(html, "layer", heads.len());
        choice(html, "head", heads.iter().copied().max().unwrap_or(1));
    }
    // Few tokens can be large; many still need letters that can be read.
    let longest = queries.len().max(keys.len());
    let cell = (560 / longest.max(1)).clamp(16, 34);
    let shades = match controls {
        Controls::Heads(_) => {
            "<option value=\"head\">the largest of this head</option>\
             <option value=\"all\">the largest of all heads</option>\
             <option value=\"row\">the largest of each row</option>"
        }
        Controls::One => {
            "<option value=\"head\">the largest of all</option>\
             <option value=\"row\">the largest of each row</option>"
        }
    };
    let _ = write!(
        html,
        "<label>darkest is <select class=\"by\">{shades}</select></label>\n\
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
        // About what the style sheet has room for.
        match width(token) > 110.0 {
            true => {
                let _ = write!(html, "<span title=\"{text}\">{text}</span>");
            }
            false => {
                let _ = write!(html, "<span>{text}</span>");
            }
        }
    }
    html.push_str("</div>\n");
}

/// The numbers of a matrix, for the script.
pub(super) fn weights(html: &mut String, layer: usize, head: usize, matrix: &Matrix) {
    let packed = pack(matrix);
    let _ = writeln!(
        html,
        "<script type=\"text/plain\" class=\"weights\" data-layer=\"{layer}\" data-head=\"{head}\" \
         data-low=\"{}\" data-high=\"{}\">{}</script>",
        packed.low, packed.high, packed.text
    );
}
