//! What attention must compute, told without Burn.
//!
//! - [`catalogue()`]: named problems, shared by conformance tests and benches;
//! - [`solve`]: the oracle, plain `f64` loops that yield the result, the weights
//!   and the gradients. It shares no code with what it checks;
//! - [`central_differences`]: an independent check of the oracle's own gradients;
//! - [`Tolerance`]: how far a backend may be off, by name and with a reason.

mod catalogue;
mod differences;
mod draw;
mod mask;
mod oracle;
mod problem;
mod tolerance;

pub use catalogue::{catalogue, find};
pub use differences::central_differences;
pub use mask::Mask;
pub use oracle::{Answer, solve};
pub use problem::{Inputs, Problem};
pub use tolerance::{Mismatch, Tolerance};
