//! Attention that sees some of the keys, where it takes more than a
//! [pattern](crate::Pattern) to compute only these.
//!
//! Tiles that nobody sees into are not computed. But keys that lie scattered are in every
//! tile: they are brought together first, attended to on their own, and
//! [joined](crate::merge) exactly.

mod fixed;
mod lsh;
mod strided;

pub use fixed::fixed;
pub use lsh::{Lsh, lsh};
pub(crate) use lsh::{hidden_by_hashes, units};
pub use strided::strided;
pub(crate) use strided::strided_pattern;
