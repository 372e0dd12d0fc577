//! Attention weights of chosen queries and attention entropy, without the n x n matrix.

pub(crate) mod entropy;
pub(crate) mod explain;
pub(crate) mod weights;

pub use entropy::{entropy, entropy_penalty};
pub use explain::explain;
