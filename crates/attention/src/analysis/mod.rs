//! Where a mechanism attends, and how spread out its attention is: weights of chosen queries
//! and entropies, without the n x n matrix.

pub(crate) mod entropy;
pub(crate) mod explain;
pub(crate) mod weighing;

pub use entropy::{entropy, entropy_penalty};
pub use explain::explain;
