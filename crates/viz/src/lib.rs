//! Standalone visualisations without external resources.
//!
//! - [`AttentionPage`]: attention weights as one HTML page of [`HeadMaps`], [`Alignment`]s and
//!   [`Document`]s;
//! - [`Heatmap`]: one [`Matrix`] of weights with token labels, as SVG or PNG;
//! - [`plot`]: line plots, [`chart`]: the same with hover, zoom and a legend that hides lines; [`Curves`]: training curves;
//! - [`sortable`]: tables that can be sorted;
//! - [`escape`], [`visible`]: text in HTML; [`units`]: number formatting.

#[doc(hidden)]
pub mod browser;
pub mod chart;
mod colormap;
mod curves;
mod heatmap;
mod matrix;
mod page;
pub mod plot;
pub mod sortable;
mod text;
pub mod units;

pub use colormap::Theme;
pub use curves::{Better, Curve, Curves};
pub use heatmap::Heatmap;
pub use matrix::Matrix;
pub use page::{Alignment, AttentionPage, Document, HeadMaps, Part, Sentence, Word};
pub use text::{escape, visible};

/// Data of a page for its script.
fn json_script(class: &str, value: &serde_json::Value) -> String {
    // `<` would end the element in a string with `</script>`.
    let value = value.to_string().replace('<', "\\u003c");
    format!("<script type=\"application/json\" class=\"{class}\">{value}</script>")
}

/// Weights or tokens that cannot be visualised.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct VizError(String);
