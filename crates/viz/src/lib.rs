//! Standalone visualisations without external resources.
//!
//! - [`AttentionPage`]: attention weights as one HTML page of [`HeadMaps`], [`Alignment`]s and
//!   [`Document`]s;
//! - [`Heatmap`]: one [`Matrix`] of weights with token labels, as SVG or PNG;
//! - [`plot`]: line plots; [`Curves`]: training curves;
//! - [`escape`], [`visible`]: text in HTML; [`units`]: number formatting.

mod colormap;
mod curves;
mod heatmap;
mod matrix;
mod page;
pub mod plot;
mod text;
pub mod units;

pub use colormap::Theme;
pub use curves::{Better, Curve, Curves};
pub use heatmap::Heatmap;
pub use matrix::Matrix;
pub use page::{Alignment, AttentionPage, Document, HeadMaps, Part, Sentence, Word};
pub use text::{escape, visible};

/// Weights or tokens that cannot be visualised.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct VizError(String);
