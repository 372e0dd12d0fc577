//! Pictures that stand alone: nothing is loaded from anywhere.
//!
//! - [`Heat`]: a [`Matrix`] of weights with tokens at its sides, as SVG or PNG;
//! - [`plot`]: lines over two axes; [`Curves`]: losses and measures of a run;
//! - [`escape`], [`visible`]: text in a page; [`units`]: numbers the way people read them.

mod curves;
mod error;
mod escape;
mod heat;
mod matrix;
pub mod plot;
mod shade;
mod text;
pub mod units;

pub use curves::{Better, Curve, Curves};
pub use error::PictureError;
pub use escape::{escape, visible};
pub use heat::Heat;
pub use matrix::Matrix;
pub use shade::Theme;
