//! Pictures that stand alone: nothing is loaded from anywhere.
//!
//! - [`AttentionPage`]: where a model attends, as one HTML page of [`HeadMaps`], [`Alignment`]s and
//!   [`Document`]s;
//! - [`Heat`]: a [`Matrix`] of weights with tokens at its sides, as SVG or PNG;
//! - [`plot`]: lines over two axes; [`Curves`]: losses and measures of a run;
//! - [`escape`], [`visible`]: text in a page; [`units`]: numbers the way people read them.

mod curves;
mod error;
mod heat;
mod matrix;
mod page;
pub mod plot;
mod shade;
mod text;
pub mod units;

pub use curves::{Better, Curve, Curves};
pub use error::PictureError;
pub use heat::Heat;
pub use matrix::Matrix;
pub use page::{Alignment, AttentionPage, Document, HeadMaps, Part, Sentence, Word};
pub use shade::Theme;
pub use text::{escape, visible};
