//! What attention must compute, told without Burn.
//!
//! - [`catalogue()`]: named problems;
//! - [`solve`]: the oracle, plain `f64` loops that yield the result, the weights
//!   and the gradients. It shares no code with what it checks. Of problems too
//!   large for that, [`solve_for`] solves a sample of the queries. Its own tests check
//!   gradients by central differences;
//! - [`entropy`]: how spread out the weights are, with its gradients;
//! - [`small_for_tests`]: every mechanism at sizes that short sequences show it by, what sets it
//!   apart from full attention ([`Difference`]) and what it refuses ([`Input`]);
//! - [`RecurrentProblem`]: the same for recurrent layers, with gradients by differences;
//! - [`Precision`] and [`Tolerance`]: how far a backend may be off, and why.

mod catalogue;
#[cfg(test)]
mod differences;
mod dropped;
mod entropy;
mod formula;
mod hashed;
mod mask;
mod mechanisms;
mod oracle;
mod predicted;
mod problem;
mod products;
mod recurrent;
mod scores;
mod small;
mod tolerance;

pub use catalogue::{catalogue, find, only_measured};
pub use entropy::{Entropies, entropy};
pub use formula::{Features, Formula};
pub use hashed::Hashing;
pub use mask::Mask;
pub use mechanisms::{Parameter, kv_heads_of};
pub use oracle::{Answer, Terms, solve, solve_for};
pub use problem::{Inputs, Problem};
pub use recurrent::{RecurrentAnswer, RecurrentInputs, RecurrentProblem, Unit};
pub use small::{Input, SMALL_HEADS, SMALL_SEQUENCE, padding_reaches, small_for_tests};
pub use tolerance::{Mismatch, Precision, Tolerance};
pub use zoo_spec::Difference;

/// `count` normal numbers of the given spread, a stream of its own for each name.
pub fn normals(name: &str, count: usize, spread: f64) -> Vec<f32> {
    zoo_spec::Draw::named(name).normals(count, spread)
}
