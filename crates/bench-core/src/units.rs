//! Human-readable numbers, times and sizes.

pub use zoo_viz::units::{bytes, count, three_digits, time};
