//! Reference implementation of attention, without Burn.
//!
//! - [`catalogue()`]: named problems.
//! - [`solve`]: the oracle, plain `f64` loops that compute the context, the weights and the
//!   gradients. It shares no code with the crates that it checks. [`solve_for`] solves a sample of
//!   the queries of problems that are too large. Its gradients are tested by central differences.
//! - [`entropy`]: entropy of the attention weights, with gradients.
//! - [`Problem::small_for`]: a short problem for each mechanism. [`Difference`] says how the
//!   mechanism differs from full attention, [`Requirement`] what it does not support.
//! - [`RecurrentProblem`]: the same for recurrent layers, with gradients by finite differences.
//! - [`Precision`] and [`Tolerance`]: maximum error of a backend, with reasons.

mod block_selection;
mod catalogue;
mod differential;
mod dropout;
mod entropy;
#[cfg(test)]
mod finite_differences;
mod formula;
mod gated;
mod linear;
mod linformer;
mod local_predictive;
mod lsh;
mod mask;
mod matrix;
mod mechanisms;
mod native_sparse;
mod nystrom;
mod problem;
mod recurrent;
mod requirements;
mod scores;
mod solution;
mod tolerance;

pub use block_selection::BlockSelection;
pub use catalogue::{bench_only, catalogue, find};
pub use entropy::{Entropies, entropy};
pub use formula::{FeatureMap, Formula, GatedRecurrence, RelativeTable};
pub use linformer::Projections;
pub use lsh::{Hashing, nearest_hashes};
pub use mask::Mask;
pub use mechanisms::{Parameter, expected_kv_heads};
pub use native_sparse::GatedBranches;
pub use problem::{Inputs, Problem};
pub use recurrent::{RecurrentInputs, RecurrentOutput, RecurrentProblem};
pub use requirements::{Requirement, SMALL_HEADS, SMALL_SEQUENCE, padding_effect};
pub use solution::{Solution, Terms, solve, solve_for};
pub use tolerance::{Mismatch, Precision, Tolerance};
pub use zoo_spec::{Cell as RecurrentCell, Difference};

/// `count` samples of a normal distribution with this standard deviation. The name is the seed.
pub fn normals(name: &str, count: usize, std: f64) -> Vec<f32> {
    zoo_spec::SplitMix64::named(name).normals(count, std)
}
