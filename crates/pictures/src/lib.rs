//! Pictures that stand alone: nothing is loaded from anywhere.
//!
//! - [`plot`]: lines over two axes; [`Curves`]: losses and measures of a run;
//! - [`escape`], [`visible`]: text in a page; [`units`]: numbers the way people read them.

mod curves;
mod escape;
pub mod plot;
pub mod units;

pub use curves::{Better, Curve, Curves};
pub use escape::{escape, visible};
